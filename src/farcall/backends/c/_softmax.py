"""Softmax and LogSoftmax, over one axis (since opset 13) or over all axes from one on (before)."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_type
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._math import DECAY_UNIT
from farcall.backends.c._node import flattened_extents, operand, want_dtypes
from farcall.backends.c._parallel import ELEMENT, FUNCTION
from farcall.backends.c._registry import loops
from farcall.graph.dims import Dim, product

_LANES = 32  # partial results of a row: gcc 12 makes no vectors of 16
_FEW = 12  # elements behind the last lanes that are computed one by one
_TILE = 64  # neighbouring rows that are reduced together if the axis is not the last


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    flattened_extents(node)


@loops("Softmax", "LogSoftmax", check=_check)
def _softmax(node: ir.Node) -> Iterator[Step]:
    outer, length, inner = flattened_extents(node)
    yield _Softmax(node, inner == 1).write(outer, length, inner)


class _Softmax:
    """Maximum, exponentials with their total, quotient: each is a loop over several lanes.

    If the axis is the last, lanes are partial results of one row; else they are neighbouring rows, so that
    memory is read in order. No loop carries a sum from one step to the next, so compilers use vectors.
    """

    def __init__(self, node: ir.Node, last: bool) -> None:
        self.kernel = Kernel()
        self.last = last
        self.log = node.op_type == "LogSoftmax"
        self.dtype = dtype = node.outputs[0].dtype
        self.kind, self.libm_log = c_type(dtype), scalar.function(dtype, "log")
        self.exp = scalar.function(dtype, "decay")
        self.unit = f" * {DECAY_UNIT}" if dtype == ir.DataType.FLOAT else ""
        self.p, self.q = self.kernel.read(operand(node, 0)), self.kernel.write(node.outputs[0])

    def write(self, outer: Dim, length: Dim, inner: Dim) -> Step:
        kernel = self.kernel
        count = kernel.dim(length)
        with kernel.parallel("i", outer, product((2 * ELEMENT + FUNCTION, length, inner))):
            if self.last:
                kernel.line(f"const {self.kind}* in = {self.p} + i * {count};")
                kernel.line(f"{self.kind}* out = {self.q} + i * {count};")
                self._row(count)
            else:
                self._tiles(count, kernel.dim(inner))
        return kernel.step()

    def _row(self, count: str) -> None:
        kernel, kind = self.kernel, self.kind
        kernel.line(f"const {kind} top = {_top(kernel, self.dtype)}(in, {count});")
        if self.log:
            total = _row_function(kernel, self.dtype, "total", f"{{1}} += {self.exp}({{0}} - top);")
            kernel.line(f"const {kind} shift = {self.libm_log}({total}(in, {count}, top){self.unit});")
            with kernel.loop("k", count):
                kernel.line("out[k] = in[k] - top - shift;")
            return
        power = f"const {kind} power = {self.exp}({{0}} - top); {{2}} = power; {{1}} += power;"
        powers = _row_function(kernel, self.dtype, "powers", power)
        kernel.line(f"const {kind} share = 1 / {powers}(in, {count}, top, out);")
        with kernel.loop("k", count):
            kernel.line("out[k] *= share;")

    def _tiles(self, count: str, inner: str) -> None:
        kernel, kind = self.kernel, self.kind
        at = f"(i * {count} + k) * {inner} + j + t"
        with kernel.loop("j", inner, step=_TILE):
            kernel.line(f"const int64_t width = {inner} - j < {_TILE} ? {inner} - j : {_TILE};")
            kernel.line(f"{kind} top[{_TILE}], total[{_TILE}];")
            with kernel.loop("t", "width"):
                kernel.line("top[t] = -INFINITY, total[t] = 0;")
            self._tile(count, f"const {kind} x = {self.p}[{at}];\ntop[t] = x > top[t] ? x : top[t];")
            if self.log:
                self._tile(count, f"total[t] += {self.exp}({self.p}[{at}] - top[t]);")
                with kernel.loop("t", "width"):
                    kernel.line(f"total[t] = {self.libm_log}(total[t]{self.unit});")
                self._tile(count, f"{self.q}[{at}] = {self.p}[{at}] - top[t] - total[t];")
                return
            self._tile(count, f"total[t] += {self.q}[{at}] = {self.exp}({self.p}[{at}] - top[t]);")
            self._tile(count, f"{self.q}[{at}] /= total[t];")

    def _tile(self, count: str, body: str) -> None:
        with self.kernel.loop("k", count), self.kernel.loop("t", "width"):
            self.kernel.line(body)


def powers_in_place(kernel: Kernel, dtype: ir.DataType | None, row: str, count: str) -> str:
    """Write what makes the numerators of softmax of a row of numbers; C of 1 divided by their sum."""
    power = f"const {c_type(dtype)} power = {scalar.function(dtype, 'decay')}({{0}} - top); "
    powers = _row_function(kernel, dtype, "powers_here", power + "{2} = power; {1} += power;", in_place=True)
    return f"1 / {powers}({row}, {count}, {_top(kernel, dtype)}({row}, {count}))"


def _top(kernel: Kernel, dtype: ir.DataType | None) -> str:
    """The function of the maximum of a row."""
    return _row_function(kernel, dtype, "top", "{1} = {0} > {1} ? {0} : {1};")


def _row_function(
    kernel: Kernel, dtype: ir.DataType | None, name: str, step: str, in_place: bool = False
) -> str:
    """A function that computes the maximum or a sum of a row in lanes; its name.

    ``step`` is C for one element: ``{0}`` stands for it, ``{1}`` for the partial result, ``{2}`` for the
    element that it becomes, of another row or ``in_place``. It is a function since gcc 12 does not keep what
    several such loops need in registers.
    """
    kind = c_type(dtype)
    function, is_top, makes = f"farcall_row_{name}_{kind}", name == "top", "{2}" in step
    join = "{0} = {1} > {0} ? {1} : {0};" if is_top else "{0} += {1};"
    halves = (_LANES >> k for k in range(1, _LANES.bit_length()))
    pairs = "\n".join(  # whose results do not wait for each other
        f"  for (int t = 0; t < {half}; ++t) {{ {join.format('lane[t]', f'lane[t + {half}]')} }}"
        for half in halves
    )
    out = "in" if in_place else "out"
    given = [f"{kind}* restrict in" if in_place else f"const {kind}* restrict in", "int64_t count"]
    given += [] if is_top else [f"{kind} top"]
    given += [f"{kind}* restrict out"] if makes and not in_place else []
    keep = f"memcpy({out} + k, made, (size_t)(count - k) * sizeof *made);" if makes else "(void)made;"
    kernel.file_scope(f"""static __attribute__((noinline))
{kind} {function}({", ".join(given)}) {{
  {kind} lane[{_LANES}];
  int64_t k = 0;
  for (int t = 0; t < {_LANES}; ++t) lane[t] = {"-INFINITY" if is_top else "0"};
  for (; k + {_LANES} <= count; k += {_LANES})
    for (int t = 0; t < {_LANES}; ++t) {{ {step.format("in[k + t]", "lane[t]", f"{out}[k + t]")} }}
  if (count - k > {_FEW}) {{
    {kind} rest[{_LANES}], made[{_LANES}];
    for (int t = 0; t < {_LANES}; ++t) rest[t] = -INFINITY;
    memcpy(rest, in + k, (size_t)(count - k) * sizeof *in);
    for (int t = 0; t < {_LANES}; ++t) {{ {step.format("rest[t]", "lane[t]", "made[t]")} }}
    {keep}
    k = count;
  }}
  for (; k < count; ++k) {{ {step.format("in[k]", "lane[0]", f"{out}[k]")} }}
{pairs}
  return lane[0];
}}""")
    return function
