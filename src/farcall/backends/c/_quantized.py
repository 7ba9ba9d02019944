"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear, and operands of integer products made wide.

Rounding is to the nearest, ties to even, and results saturate (ONNX operator set 21, QuantizeLinear).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import c_type
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import nested
from farcall.backends.c._node import (
    Unsupported,
    constant,
    differ,
    extents,
    has_input,
    int_attr,
    normalize_axis,
    operand,
    rank,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import Expression, Operands, elementwise, loops, variant
from farcall.graph.dims import Dim, ceildiv, dims, product, same

_D = ir.DataType
NARROW = frozenset({_D.INT8, _D.UINT8})
_STORED = NARROW | {_D.INT16, _D.UINT16}  # dtypes of quantized elements that have a C type


def _scale_view(node: ir.Node, value: ir.Value) -> tuple[Dim, ...]:
    """The dims by which a scale or zero point broadcasts over input 0: one for all, or one for each index."""
    shape = dims(value)
    if product(shape) == 1:
        return ()
    whole = dims(operand(node, 0))
    if len(shape) != 1:
        raise Unsupported(
            f"input `{value.name}` has rank {len(shape)}; one scale, or one for each index of an axis"
        )
    axis = normalize_axis(int_attr(node, "axis", 1), len(whole))
    if differ(shape[0], whole[axis]):
        raise Unsupported(
            f"input `{value.name}` has {shape[0]} elements for axis {axis} of size {whole[axis]}"
        )
    return (shape[0], *(1 for _ in whole[axis + 1 :]))


def _operands(node: ir.Node) -> Operands:
    x = operand(node, 0)
    given = [operand(node, i) for i in (1, 2) if has_input(node, i)]
    return [(x, dims(x)), *((value, _scale_view(node, value)) for value in given)]


def _check_scales(node: ir.Node) -> None:
    for _ in _operands(node):  # refuses scales that do not fit
        pass


def _check_quantize_dtypes(node: ir.Node) -> None:
    want_dtypes(node, {_D.FLOAT}, 1)
    want_dtypes(node, {_D.FLOAT}, 0)
    if int_attr(node, "precision", _D.FLOAT.value) not in (0, _D.FLOAT.value):
        raise Unsupported("precision other than float32")
    if node.outputs[0].dtype not in _STORED | {_D.FLOAT}:
        raise Unsupported("an output that is neither int8, uint8, int16, uint16 nor float8")


def _check_quantize(node: ir.Node) -> None:
    _check_quantize_dtypes(node)
    _check_scales(node)


@elementwise("QuantizeLinear", check=_check_quantize, operands=_operands)
def _quantize(node: ir.Node, x: str, scale: str, zero: str = "0") -> str:
    dtype = node.outputs[0].dtype
    assert dtype is not None  # noqa: S101 - checked before
    if dtype == _D.FLOAT:  # of a float8, which a Cast makes of it
        return f"{x} / {scale} + {zero}"
    return f"({c_type(dtype)})farcall_quantize({x} / {scale}, {zero}, {bounds(node)})"


def bounds(node: ir.Node) -> str:
    """The least and the largest result of a node whose result is quantized, as arguments.

    The attributes ``low`` and ``high`` are of nodes that stand for several (farcall.backends.c._qdq).
    """
    dtype = node.outputs[0].dtype
    low = str(int_attr(node, "low", 0)) if "low" in node.attributes else scalar.lowest(dtype)
    high = str(int_attr(node, "high", 0)) if "high" in node.attributes else scalar.highest(dtype)
    return f"{low}, {high}"


def _check_dequantize_dtypes(node: ir.Node) -> None:
    want_dtypes(node, {_D.FLOAT}, 1)
    want_dtypes(node, _STORED | {_D.INT32, _D.FLOAT}, 0)  # a float stands for a float8
    if node.outputs[0].dtype != _D.FLOAT:
        raise Unsupported("an output other than float32")


def _check_dequantize(node: ir.Node) -> None:
    _check_dequantize_dtypes(node)
    _check_scales(node)


@elementwise("DequantizeLinear", check=_check_dequantize, operands=_operands)
def _dequantize(node: ir.Node, x: str, scale: str, zero: str = "0") -> str:
    if operand(node, 0).dtype == _D.FLOAT:
        return f"({x} - {zero}) * {scale}"
    return f"(float)((int64_t){x} - {zero}) * {scale}"


# ---- one scale for each block of an axis ----


def _in_blocks(node: ir.Node) -> bool:
    return int_attr(node, "block_size", 0) != 0


def _check_blocks(node: ir.Node) -> None:
    whole, size = dims(operand(node, 0)), int_attr(node, "block_size", 0)
    axis = normalize_axis(int_attr(node, "axis", 1), len(whole))
    if size < 0:
        raise Unsupported(f"block_size={size}")
    wanted = (*whole[:axis], ceildiv(whole[axis], size), *whole[axis + 1 :])
    for value in (operand(node, i) for i in (1, 2) if has_input(node, i)):
        if rank(value) != len(wanted) or not all(map(same, dims(value), wanted)):
            raise Unsupported(
                f"input `{value.name}` has the shape {dims(value)}; {wanted} is needed for blocks of {size} "
                f"on axis {axis}"
            )


def _check_quantize_blocks(node: ir.Node) -> None:
    _check_quantize_dtypes(node)
    _check_blocks(node)


def _check_dequantize_blocks(node: ir.Node) -> None:
    _check_dequantize_dtypes(node)
    _check_blocks(node)


@variant("QuantizeLinear", check=_check_quantize_blocks, when=_in_blocks)
def _quantize_blocks(node: ir.Node) -> Iterator[Step]:
    yield _blocks(node, _quantize)


@variant("DequantizeLinear", check=_check_dequantize_blocks, when=_in_blocks)
def _dequantize_blocks(node: ir.Node) -> Iterator[Step]:
    yield _blocks(node, _dequantize)


def _blocks(node: ir.Node, expression: Expression) -> Step:
    kernel = Kernel()
    x, given = operand(node, 0), [operand(node, i) for i in (1, 2) if has_input(node, i)]
    axis, size = normalize_axis(int_attr(node, "axis", 1), rank(x)), int_attr(node, "block_size", 0)
    outer, count, inner = extents(dims(x), axis)
    p, q = kernel.read(x), kernel.write(node.outputs[0])
    scales = list(map(kernel.read, given))
    length, width = kernel.dim(count), kernel.dim(inner)
    with kernel.loop("o", kernel.dim(outer)), kernel.loop("a", length):
        blocks = kernel.dim(ceildiv(count, size))
        kernel.line(f"const int64_t from = (o * {length} + a) * {width};")
        kernel.line(f"const int64_t block = (o * {blocks} + a / {size}) * {width};")
        with kernel.loop("i", width):
            text = expression(node, f"{p}[from + i]", *(f"{scale}[block + i]" for scale in scales))
            kernel.line(f"{q}[from + i] = {text};")
    return kernel.step()


def _check_dynamic(node: ir.Node) -> None:
    want_dtypes(node, {_D.FLOAT})


# Lanes, so that compilers use vectors.
_RANGE = """\
static inline void farcall_range_of_row(const float* x, int64_t n, float* low, float* high) {
  float least[32] = {0}, most[32] = {0};
  for (int64_t i = 0; i < n; i += 32)
    for (int64_t t = 0; t < (n - i < 32 ? n - i : 32); ++t) {
      least[t] = x[i + t] < least[t] ? x[i + t] : least[t];
      most[t] = x[i + t] > most[t] ? x[i + t] : most[t];
    }
  *low = least[0];
  *high = most[0];
  for (int64_t t = 1; t < 32; ++t) {
    *low = least[t] < *low ? least[t] : *low;
    *high = most[t] > *high ? most[t] : *high;
  }
}"""


@loops("DynamicQuantizeLinear", check=_check_dynamic)
def _dynamic_quantize(node: ir.Node) -> Iterator[Step]:
    """The range of the elements, widened to include 0, becomes 0 to 255; with all 0, the scale is 1."""
    source, (y, scale, zero) = operand(node, 0), node.outputs
    count = product(dims(source))
    first = Kernel()
    first.file_scope(_RANGE)
    first.line("float low, high;")
    first.line(f"farcall_range_of_row({first.read(source)}, {first.dim(count)}, &low, &high);")
    first.line("const float step = high == low ? 1 : (high - low) / 255;")
    first.line(f"*{first.write(scale)} = step;")
    first.line(f"*{first.write(zero)} = (uint8_t)farcall_quantize(-low / step, 0, 0, 255);")
    yield first.step()
    second = Kernel()
    x, made = second.read(source), second.write(y)
    second.line(f"const float step = *{second.read(scale)};")
    second.line(f"const uint8_t origin = *{second.read(zero)};")
    with second.parallel("i", count, ELEMENT):
        second.line(f"{made}[i] = (uint8_t)farcall_quantize({x}[i] / step, origin, 0, 255);")
    yield second.step()


# ---- operands of MatMulInteger and ConvInteger ----


def widened(kernel: Kernel, value: ir.Value, zero: ir.Value | None, view: Sequence[Dim]) -> str:
    """A pointer to the elements of ``value`` minus the zero point, as 32-bit words that wrap around.

    ``view`` are the dims by which ``zero`` broadcasts. Constants are widened now, others in each call.
    """
    data = constant(value)
    origin = constant(zero) if zero is not None else np.zeros((), np.int32)
    if data is not None and origin is not None:
        return kernel.table(_difference(data, origin, view))
    copy = kernel.scratch(_D.UINT32, product(dims(value)))
    source = kernel.read(value)
    minus = f" - {kernel.read(zero)}" if zero is not None else ""
    with nested(kernel, dims(value), [dims(value), view]) as (at, origin_at):
        kernel.line(f"{copy}[{at}] = (uint32_t)({source}[{at}]{minus and f'{minus}[{origin_at}]'});")
    return copy


def _difference(data: np.ndarray, origin: np.ndarray, view: Sequence[Dim]) -> np.ndarray:
    shape = [int(dim) for dim in view]
    return (data.astype(np.int32) - origin.astype(np.int32).reshape(shape)).astype(np.uint32)


def zero_point(node: ir.Node, index: int) -> ir.Value | None:
    """The zero point at ``index``, if it is given."""
    return operand(node, index) if has_input(node, index) else None
