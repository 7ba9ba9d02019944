"""CumSum and CumProd: each element is the sum or product of those before it along an axis."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, INTEGERS
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    constant,
    extents,
    int_attr,
    label,
    normalize_axis,
    operand,
    rank,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.graph.dims import dims, product

_AXIS = {ir.DataType.INT32, ir.DataType.INT64}


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS | INTEGERS, 0)
    want_dtypes(node, _AXIS, 1)
    if rank(operand(node, 0)) == 0:
        raise Unsupported("a scalar has no axis")
    if product(dims(operand(node, 1))) != 1:
        raise Unsupported("the axis is not one number")
    _known_axis(node)


def _known_axis(node: ir.Node) -> int | None:
    data = constant(operand(node, 1))
    return None if data is None else normalize_axis(int(data.item()), rank(operand(node, 0)))


@loops("CumSum", "CumProd", check=_check)
def _cumulate(node: ir.Node) -> Iterator[Step]:
    """Planes along the axis, one after the other: each is the one before it, and one plane of operands."""
    x, out = operand(node, 0), node.outputs[0]
    kernel = Kernel()
    p, q = kernel.read(x), kernel.write(out)
    outer, length, inner = _sizes(kernel, node)
    known = _known_axis(node)
    exclusive, reverse = (bool(int_attr(node, name, 0)) for name in ("exclusive", "reverse"))
    symbol, neutral = ("+", 0) if node.op_type == "CumSum" else ("*", 1)
    if known is None:
        planes = kernel.loop("i", outer)
    else:
        before, *others = extents(dims(x), known)
        planes = kernel.parallel("i", before, product((ELEMENT, *others)))
    with planes, kernel.loop("k", length):
        kernel.line(f"const int64_t plane = {f'{length} - 1 - k' if reverse else 'k'};")
        kernel.line(f"const int64_t here = (i * {length} + plane) * {inner};")
        kernel.line(f"const int64_t before = here {'+' if reverse else '-'} {inner};")
        kernel.line("(void)before;")
        with kernel.block("if (k == 0)"), kernel.loop("j", inner):
            kernel.line(f"{q}[here + j] = {neutral if exclusive else f'{p}[here + j]'};")
        with kernel.block("else"), kernel.loop("j", inner):
            taken = f"{p}[{'before' if exclusive else 'here'} + j]"
            text = scalar.wrapping(out.dtype, f"{q}[before + j]", symbol, taken)
            kernel.line(f"{q}[here + j] = {text};")
    yield kernel.step()


def _sizes(kernel: Kernel, node: ir.Node) -> tuple[str, str, str]:
    """C expressions for the number of elements before, along and after the axis, which may be computed."""
    shape, axis = dims(operand(node, 0)), _known_axis(node)
    if axis is not None:
        outer, length, inner = map(kernel.dim, extents(shape, axis))
        return outer, length, inner
    given, count = f"{kernel.read(operand(node, 1))}[0]", len(shape)
    refusal = kernel.fail_with(
        "ValueError", f"{label(node)}: axis ", given, f" is outside of {-count} to {count - 1}"
    )
    kernel.line(f"const int64_t axis = {given} < 0 ? (int64_t){given} + {count} : (int64_t){given};")
    kernel.line(f"if (axis < 0 || axis >= {count}) {refusal}")
    kernel.line(f"const int64_t shape[] = {{{', '.join(map(kernel.dim, shape))}}};")
    kernel.line("int64_t outer = 1, inner = 1;")
    with kernel.loop("a", count):
        kernel.line("if (a < axis) outer *= shape[a];\nif (a > axis) inner *= shape[a];")
    return "outer", "shape[axis]", "inner"
