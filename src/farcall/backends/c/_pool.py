"""MaxPool, AveragePool and LRN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_literal, c_type
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    float_attr,
    int_attr,
    ints_attr,
    operand,
    output_used,
    rank,
    want_dtypes,
)
from farcall.backends.c._registry import loops
from farcall.backends.c._window import Axis, axes_of, position, rows_of_windows, taps_of_row
from farcall.graph.dims import dims, product

_D = ir.DataType
_TILE = 64


def _check(node: ir.Node) -> None:
    extra = {_D.INT8, _D.UINT8} if node.op_type == "MaxPool" else set()
    want_dtypes(node, FLOATS | extra)
    if rank(operand(node, 0)) < 3:
        raise Unsupported(f"rank {rank(operand(node, 0))}; a batch, channels and spatial axes are needed")
    axes_of(node, ints_attr(node, "kernel_shape", []))


class _Pool:
    """The loops of a pool: over planes, and over rows of windows in each plane."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self.kernel = Kernel()
        x = operand(node, 0)
        self.kind = c_type(x.dtype)
        self.axes = axes_of(node, ints_attr(node, "kernel_shape", []))
        self.p, self.q = self.kernel.read(x), self.kernel.write(node.outputs[0])
        self.planes = self.kernel.dim(product(dims(x)[:2]))
        self.plane = self.kernel.dim(product(axis.size for axis in self.axes))
        self.out_plane = self.kernel.dim(product(axis.out for axis in self.axes))
        self.width = self.kernel.dim(self.axes[-1].out)

    def rows(self, stack: ExitStack) -> None:
        """Open the loops; ``in`` is the input plane, ``line`` the output row."""
        stack.enter_context(self.kernel.loop("n", self.planes))
        self.kernel.line(f"const {self.kind}* const in = {self.p} + n * {self.plane};")
        row = stack.enter_context(rows_of_windows(self.kernel, self.axes))
        self.kernel.line(f"{self.kind}* restrict line = {self.q} + n * {self.out_plane} + {row};")

    def accumulate(self, start: str, body: str) -> None:
        """Accumulate the taps of every window of the row; ``body`` adds element ``x`` to ``line[o]``."""
        with self.kernel.loop("o", self.width):
            self.kernel.line(f"line[o] = {start};")
        with taps_of_row(self.kernel, self.axes) as place:
            self.kernel.line(f"const {self.kind}* const from = in + {place};")
            with self.kernel.loop("o", "hi", start="lo"):
                stride = self.axes[-1].stride
                at = "o" if stride == 1 else f"o * {stride}"
                self.kernel.line(f"const {self.kind} x = from[{at}];\n{body}")


@loops("MaxPool", check=_check)
def _max_pool(node: ir.Node) -> Iterator[Step]:
    if output_used(node, 1):
        yield _max_pool_with_indices(node)
        return
    pool = _Pool(node)
    dtype = operand(node, 0).dtype
    with ExitStack() as stack:
        pool.rows(stack)
        pool.accumulate(scalar.lowest(dtype), f"line[o] = {scalar.larger(dtype, 'x', 'line[o]')};")
    yield pool.kernel.step()


def _max_pool_with_indices(node: ir.Node) -> Step:
    """One window at a time. Indices count the elements of the whole input, in row- or column-major order."""
    pool = _Pool(node)
    kernel, axes, last = pool.kernel, pool.axes, len(pool.axes) - 1
    indices = kernel.write(node.outputs[1])
    with ExitStack() as stack:
        pool.rows(stack)
        stack.enter_context(kernel.loop(f"o{last}", pool.width))
        kernel.line(f"{pool.kind} best = {scalar.lowest(operand(node, 0).dtype)};\nint64_t where = 0;")
        with ExitStack() as taps:
            for i, axis in enumerate(axes):
                taps.enter_context(kernel.loop(f"k{i}", str(axis.taps)))
                kernel.line(f"const int64_t y{i} = {position(kernel, axis, f'o{i}', f'k{i}')};")
                kernel.line(f"if (y{i} < 0 || y{i} >= {kernel.dim(axis.size)}) continue;")
            kernel.line(f"const {pool.kind} x = in[{_flat(kernel, axes, range(last + 1))}];")
            order = range(last, -1, -1) if int_attr(node, "storage_order", 0) else range(last + 1)
            kernel.line(f"if (x > best || x != x) best = x, where = {_flat(kernel, axes, order)};")
        kernel.line(f"line[o{last}] = best;")
        kernel.line(f"{indices}[line - {pool.q} + o{last}] = n * {pool.plane} + where;")
    return kernel.step()


def _flat(kernel: Kernel, axes: list[Axis], order: range) -> str:
    text = ""
    for i in order:
        text = f"({text}) * {kernel.dim(axes[i].size)} + y{i}" if text else f"y{i}"
    return text


@loops("AveragePool", check=_check)
def _average_pool(node: ir.Node) -> Iterator[Step]:
    pool = _Pool(node)
    kernel, axes = pool.kernel, pool.axes
    padded = bool(int_attr(node, "count_include_pad", 0))
    with ExitStack() as stack:
        pool.rows(stack)
        pool.accumulate("0", "line[o] += x;")
        kernel.file_scope(_COUNT)
        outer = [f"({_count(kernel, axis, f'o{i}', padded)})" for i, axis in enumerate(axes[:-1])]
        kernel.line(f"const int64_t outer = {' * '.join(outer) or '1'};")
        with kernel.loop("o", pool.width):
            kernel.line(f"const int64_t count = outer * {_count(kernel, axes[-1], 'o', padded)};")
            kernel.line(f"line[o] /= ({pool.kind})(count > 0 ? count : 1);")
    yield kernel.step()


# The number of taps of a window that begins at `start` whose position is in low .. high - 1.
_COUNT = """static inline int64_t farcall_taps(int64_t start, int64_t low, int64_t high, int64_t taps,
    int64_t dilation) {
  const int64_t first = start < low ? (low - start + dilation - 1) / dilation : 0;
  const int64_t beyond = start < high ? (high - start + dilation - 1) / dilation : 0;
  const int64_t end = beyond < taps ? beyond : taps;
  return end > first ? end - first : 0;
}"""


def _count(kernel: Kernel, axis: Axis, out: str, padded: bool) -> str:
    size, begin, end = (kernel.dim(dim) for dim in (axis.size, axis.begin, axis.end))
    start = f"{out} * {axis.stride} - {begin}"
    low, high = (f"-{begin}", f"{size} + {end}") if padded else ("0", size)
    return f"farcall_taps({start}, {low}, {high}, {axis.taps}, {axis.dilation})"


def _check_lrn(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    if rank(operand(node, 0)) < 2:
        raise Unsupported("rank below 2")


@loops("LRN", check=_check_lrn)
def _lrn(node: ir.Node) -> Iterator[Step]:
    """Divide by a power of the sum of squares over neighbouring channels."""
    x = operand(node, 0)
    dtype, kind, size = x.dtype, c_type(x.dtype), int_attr(node, "size", 1)
    kernel = Kernel()
    p, q = kernel.read(x), kernel.write(node.outputs[0])
    channels, inner = kernel.dim(dims(x)[1]), kernel.dim(product(dims(x)[2:]))
    alpha, beta, bias = (
        c_literal(value, dtype)
        for value in (
            float_attr(node, "alpha", 1e-4) / size,
            float_attr(node, "beta", 0.75),
            float_attr(node, "bias", 1.0),
        )
    )
    with (
        kernel.loop("n", kernel.dim(dims(x)[0])),
        kernel.loop("c", channels),
        kernel.loop("s", inner, step=_TILE),
    ):
        kernel.line(f"const int64_t tile = {inner} - s < {_TILE} ? {inner} - s : {_TILE};")
        kernel.line(f"int64_t c0 = c - {(size - 1) // 2}, c1 = c + {size // 2};")
        kernel.line(f"if (c0 < 0) c0 = 0;\nif (c1 > {channels} - 1) c1 = {channels} - 1;")
        kernel.line(f"{kind} total[{_TILE}] = {{0}};")
        with kernel.block("for (int64_t d = c0; d <= c1; ++d)"), kernel.loop("t", "tile"):
            kernel.line(f"const {kind} v = {p}[(n * {channels} + d) * {inner} + s + t];\ntotal[t] += v * v;")
        with kernel.loop("t", "tile"):
            kernel.line(f"const int64_t at = (n * {channels} + c) * {inner} + s + t;")
            power = f"{scalar.function(dtype, 'pow')}({bias} + {alpha} * total[t], {beta})"
            kernel.line(f"{q}[at] = {p}[at] / {power};")
    yield kernel.step()
