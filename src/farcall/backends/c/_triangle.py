"""Trilu: the upper or lower triangle of each matrix; other elements become 0."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import ALL, c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import shared
from farcall.backends.c._node import Unsupported, has_input, int_attr, operand, rank, want_dtypes
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.graph.dims import dims, product


def _check(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    if rank(operand(node, 0)) < 2:
        raise Unsupported("rank below 2")
    if has_input(node, 1) and product(dims(operand(node, 1))) != 1:
        raise Unsupported("the diagonal is not one number")


@loops("Trilu", check=_check)
def _trilu(node: ir.Node) -> Iterator[Step]:
    """Row by row: below the first kept column, or above the last, zeros."""
    x, out = operand(node, 0), node.outputs[0]
    *batch, rows, columns = dims(x)
    kernel = Kernel()
    p, q = kernel.read(x), kernel.write(out)
    height, width = kernel.dim(rows), kernel.dim(columns)
    diagonal = f"{kernel.read(operand(node, 1))}[0]" if has_input(node, 1) else "0"
    upper = int_attr(node, "upper", 1) != 0
    # Within +-(height + width), a diagonal keeps all or nothing; beyond, its sum with a row could overflow.
    kernel.line(f"int64_t k = {diagonal}, reach = {height} + {width};")
    kernel.line("k = k > reach ? reach : k < -reach ? -reach : k;")
    with shared(kernel, [("b", product(batch), 1), ("i", rows, 1)], product((ELEMENT, columns))):
        kernel.line(f"int64_t edge = i + k{'' if upper else ' + 1'};")
        kernel.line(f"edge = edge < 0 ? 0 : edge > {width} ? {width} : edge;")
        kernel.line(f"const int64_t row = (b * {height} + i) * {width};")
        for start, end, kept in (("0", "edge", not upper), ("edge", width, upper)):
            with kernel.loop("j", end, start=start):
                kernel.line(f"{q}[row + j] = {f'{p}[row + j]' if kept else f'({c_type(out.dtype)})0'};")
    yield kernel.step()
