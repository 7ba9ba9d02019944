"""Where the largest or smallest element of an axis is: ArgMax, ArgMin, Hardmax."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, INTEGERS, c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import shared
from farcall.backends.c._node import (
    Unsupported,
    extents,
    flattened_extents,
    int_attr,
    label,
    normalize_axis,
    operand,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.graph.dims import Dim, dims, product

_TILE = 64  # neighbouring rows that are searched together, so that memory is read in order
_LANES = 32  # parts of one long row that are searched together


def _extents(node: ir.Node) -> tuple[Dim, Dim, Dim]:
    shape = dims(operand(node, 0))
    return extents(shape, normalize_axis(int_attr(node, "axis", 0), len(shape)))


def _check_arg(node: ir.Node) -> None:
    want_dtypes(node, FLOATS | INTEGERS)
    outer, length, inner = _extents(node)
    if length == 0 and product((outer, inner)) != 0:
        raise Unsupported("an axis without elements")


@loops("ArgMax", "ArgMin", check=_check_arg)
def _arg(node: ir.Node) -> Iterator[Step]:
    outer, length, inner = _extents(node)
    kernel = Kernel()
    q, width = kernel.write(node.outputs[0]), kernel.dim(inner)
    if not isinstance(length, int):
        refusal = kernel.fail("ValueError", f"{label(node)}: the axis has no elements")
        some = kernel.dim(product((outer, inner)))
        kernel.line(f"if ({kernel.dim(length)} == 0 && {some} != 0) {refusal}")
    better = _better(node, "<" if node.op_type == "ArgMin" else ">")
    _search(
        kernel,
        operand(node, 0),
        (outer, length, inner),
        better,
        bool(int_attr(node, "select_last_index", 0)),
        f"for (int64_t t = 0; t < wide; ++t) {q}[i * {width} + j + t] = at[t];",
    )
    yield kernel.step()


def _better(node: ir.Node, sign: str) -> Callable[[str, str], str]:
    """Whether element ``x`` replaces ``best``. As in numpy, a NaN is both the largest and the smallest."""
    floats = operand(node, 0).dtype in FLOATS
    if int_attr(node, "select_last_index", 0):
        return lambda x, best: f"{x} {sign}= {best}" + (f" || {x} != {x}" if floats else "")
    return lambda x, best: f"{x} {sign} {best}" + (f" || ({x} != {x} && {best} == {best})" if floats else "")


def _search(
    kernel: Kernel,
    source: ir.Value,
    sizes: tuple[Dim, Dim, Dim],
    better: Callable[[str, str], str],
    last: bool,
    use: str,
) -> None:
    """Find the best elements along the middle of ``sizes``: of row ``i``, ``wide`` columns from ``j`` on.

    ``last``: of equal ones, the last. ``use`` is what is done with their places, ``at``.
    """
    outer, length, inner = sizes
    kind, p = c_type(source.dtype), kernel.read(source)
    count, width = kernel.dim(length), kernel.dim(inner)
    tile = 1 if inner == 1 else _TILE
    with shared(kernel, [("i", outer, 1), ("j", inner, tile)], product((ELEMENT, length, tile))):
        kernel.line(f"const {kind}* in = {p} + i * {count} * {width} + j;")
        kernel.line(f"const int64_t wide = {width} - j < {tile} ? {width} - j : {tile};")
        kernel.line(f"{kind} best[{tile}];\nint64_t at[{tile}], begin = 1;")
        with kernel.loop("t", "wide"):
            kernel.line("best[t] = in[t];\nat[t] = 0;")
        if tile == 1 and not (isinstance(length, int) and length < 2 * _LANES):
            kernel.line(_in_lanes(kind, count, better, last))
        with kernel.loop("k", count, start="begin"), kernel.loop("t", "wide"):
            kernel.line(f"const {kind} x = in[k * {width} + t];")
            kernel.line(f"if ({better('x', 'best[t]')}) {{ best[t] = x; at[t] = k; }}")
        kernel.line(use)


def _in_lanes(kind: str, count: str, better: Callable[[str, str], str], last: bool) -> str:
    """C: the best of a long row, but for its last elements: of each lane, then of the lanes."""
    wins, loses = better("x", "best[0]"), better("best[0]", "x")
    wins = f"({wins}) && (!({loses}) || k > at[0])" if last else f"({wins}) || (!({loses}) && k < at[0])"
    return f"""\
if ({count} >= {2 * _LANES} && {count} <= INT32_MAX) {{
  {kind} lane[{_LANES}];
  int32_t place[{_LANES}];
  for (int64_t t = 0; t < {_LANES}; ++t) lane[t] = in[t], place[t] = 0;
  for (begin = {_LANES}; begin + {_LANES} <= {count}; begin += {_LANES})
    for (int64_t t = 0; t < {_LANES}; ++t) {{
      const {kind} x = in[begin + t];
      if ({better("x", "lane[t]")}) {{ lane[t] = x; place[t] = (int32_t)begin; }}
    }}
  for (int64_t t = 0; t < {_LANES}; ++t) {{
    const {kind} x = lane[t];
    const int64_t k = place[t] + t;
    if ({wins}) {{ best[0] = x; at[0] = k; }}
  }}
}}"""


def _check_hardmax(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    flattened_extents(node)


@loops("Hardmax", check=_check_hardmax)
def _hardmax(node: ir.Node) -> Iterator[Step]:
    """1 at the first maximum, else 0."""
    outer, length, inner = flattened_extents(node)
    source, kernel = operand(node, 0), Kernel()
    q, total = kernel.write(node.outputs[0]), kernel.dim(product(dims(source)))
    kernel.line(f"if ({total} == 0) return;")
    count, width = kernel.dim(length), kernel.dim(inner)
    use = (
        f"for (int64_t k = 0; k < {count}; ++k)\n"
        f"  for (int64_t t = 0; t < wide; ++t) {q}[(i * {count} + k) * {width} + j + t] = k == at[t];"
    )
    _search(kernel, source, (outer, length, inner), _better(node, ">"), last=False, use=use)
    yield kernel.step()
