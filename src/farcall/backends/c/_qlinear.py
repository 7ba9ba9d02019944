"""Products of quantized operands: MatMulInteger, ConvInteger, QLinearMatMul and QLinearConv.

Operands less their zero points are multiplied and added as 32-bit words that wrap around. The operators whose
result is quantized multiply the sum, as a float, by the product of the scales of the operands divided by the
scale of the result, and round to the nearest, ties to even, before the zero point is added. So does
onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import c_literal, c_type
from farcall.backends.c._bytes import is_fixed, multiply_bytes
from farcall.backends.c._bytes_conv import ByteConvolution, has_byte_weights
from farcall.backends.c._bytes_conv_text import HEIGHT
from farcall.backends.c._conv import check_shapes
from farcall.backends.c._convolution import Convolution
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._matmul import broadcast, product_of
from farcall.backends.c._nest import nested
from farcall.backends.c._node import (
    Unsupported,
    constant,
    float_attr,
    has_input,
    int_attr,
    operand,
    rank,
    want_dtypes,
)
from farcall.backends.c._quantized import NARROW, bounds, widened, zero_point
from farcall.backends.c._registry import loops
from farcall.graph.dims import Dim, dims, product, same

_D = ir.DataType
View = tuple[Dim, ...]


@dataclass(frozen=True)
class Quantized:
    """The indices of a quantized operand, its scale and its zero point among the inputs of a node."""

    value: int
    scale: int
    zero: int


NONE = -1
A, B, OUT = Quantized(0, 1, 2), Quantized(3, 4, 5), Quantized(NONE, 6, 7)


def view_of(value: ir.Value | None, views: Sequence[tuple[View, View]]) -> View:
    """The dims by which a scale or zero point broadcasts: ``()`` for one element.

    Args:
        value: A scale or a zero point, if there is one.
        views: Other dims that it may have, and by which it then broadcasts.

    Raises:
        Unsupported: Its dims are none of these.
    """
    if value is None or product(dims(value)) == 1:
        return ()
    own = dims(value)
    for shape, view in views:
        if len(own) == len(shape) and all(map(same, own, shape)):
            return view
    raise Unsupported(
        f"`{value.name}` of rank {rank(value)} is neither one number nor one for each row or channel"
    )


def _rows(node: ir.Node, matrix: int, index: int) -> View:
    """By which dims input ``index`` broadcasts over the left operand: one number for each row."""
    left = dims(operand(node, matrix))
    rows = (*left[:-1], 1)
    return view_of(zero_point(node, index), [(rows, rows), *([(rows[:1], rows)] if len(left) == 2 else [])])


def columns_view(node: ir.Node, matrix: int, index: int) -> View:
    """By which dims input ``index`` broadcasts over the right operand: one number for each column."""
    right = dims(operand(node, matrix))
    columns = (*right[:-2], *([1] if len(right) > 1 else []), right[-1])
    own = [(columns, columns)] if len(right) > 1 else []
    return view_of(zero_point(node, index), [*own, *([(right[-1:], columns)] if len(right) > 1 else [])])


def _check_ranks(node: ir.Node, b: int) -> None:
    if min(rank(operand(node, 0)), rank(operand(node, b))) < 1:
        raise Unsupported("a scalar operand")


# ---- MatMulInteger and ConvInteger ----


def _check_matmul_integer(node: ir.Node) -> None:
    want_dtypes(node, NARROW)
    _check_ranks(node, 1)
    _rows(node, 0, 2), columns_view(node, 1, 3)


@loops("MatMulInteger", check=_check_matmul_integer)
def _matmul_integer(node: ir.Node) -> Iterator[Step]:
    kernel, zeros = Kernel(), (zero_point(node, 2), zero_point(node, 3))
    if is_fixed(operand(node, 1), zeros[1]) and _rows(node, 0, 2) == ():
        target = f"((uint32_t*){kernel.write(node.outputs[0])})"
        multiply_bytes(kernel, (operand(node, 0), zeros[0]), (operand(node, 1), zeros[1]), False, target)
        yield kernel.step()
        return
    a = widened(kernel, operand(node, 0), zero_point(node, 2), _rows(node, 0, 2))
    b = widened(kernel, operand(node, 1), zero_point(node, 3), columns_view(node, 1, 3))
    shapes = dims(operand(node, 0)), dims(operand(node, 1))
    product_of(kernel, _D.UINT32, shapes, a, b, kernel.write(node.outputs[0]))
    yield kernel.step()


def _weight_view(node: ir.Node, weight: int, index: int) -> View:
    """By which dims input ``index`` broadcasts over the weight: one number for each output channel."""
    outs, *inner = dims(operand(node, weight))
    return view_of(zero_point(node, index), [((outs,), (outs, *(1 for _ in inner)))])


def _check_conv_integer(node: ir.Node) -> None:
    want_dtypes(node, NARROW)
    check_shapes(node)
    view_of(zero_point(node, 2), ())
    _weight_view(node, 1, 3)


@loops("ConvInteger", check=_check_conv_integer)
def _conv_integer(node: ir.Node) -> Iterator[Step]:
    byte_conv = Convolution(node, _D.UINT32)
    if has_byte_weights(byte_conv, zero_point(node, 3)):
        x = operand(node, 0), zero_point(node, 2)
        target = f"((uint32_t*){byte_conv.kernel.write(node.outputs[0])})"
        ByteConvolution(byte_conv, x, None).write(target)
        yield byte_conv.kernel.step()
        return
    conv = _convolution(node, Quantized(0, NONE, 2), Quantized(1, NONE, 3))
    conv.y = f"((uint32_t*){conv.kernel.write(node.outputs[0])})"
    conv.write()
    yield conv.kernel.step()


def _convolution(node: ir.Node, x: Quantized, w: Quantized) -> Convolution:
    """The convolution without its result. Padding is the zero point, which is 0 in the widened input."""
    conv = Convolution(node, _D.UINT32, w.value)
    conv.x = widened(conv.kernel, operand(node, x.value), zero_point(node, x.zero), ())
    view = _weight_view(node, w.value, w.zero)
    conv.w = widened(conv.kernel, operand(node, w.value), zero_point(node, w.zero), view)
    return conv


# ---- QLinearMatMul and QLinearConv ----


def _check_linear(node: ir.Node) -> None:
    want_dtypes(node, NARROW, 0, 2, 3, 5, 7)
    want_dtypes(node, {_D.FLOAT}, 1, 4, 6)
    view_of(zero_point(node, 6), ())
    view_of(zero_point(node, 7), ())


def _check_qlinear_matmul(node: ir.Node) -> None:
    _check_linear(node)
    _check_ranks(node, 3)
    for index in (1, 2):
        _rows(node, 0, index)
    for index in (4, 5):
        columns_view(node, 3, index)


@loops("QLinearMatMul", check=_check_qlinear_matmul)
def _qlinear_matmul(node: ir.Node) -> Iterator[Step]:
    kernel, out = Kernel(), node.outputs[0]
    shapes = dims(operand(node, 0)), dims(operand(node, 3))
    zeros = zero_point(node, 2), zero_point(node, 5)
    if is_fixed(operand(node, 3), zeros[1]) and _rows(node, 0, 1) == _rows(node, 0, 2) == ():
        finish = requantize_rows(kernel, node, int(shapes[1][-1]), columns_view(node, 3, 4))
        operands = (operand(node, 0), zeros[0]), (operand(node, 3), zeros[1])
        multiply_bytes(kernel, *operands, False, "", finish)
        yield kernel.step()
        return
    sums = kernel.scratch(_D.UINT32, product(dims(out)))
    a = widened(kernel, operand(node, 0), zero_point(node, 2), _rows(node, 0, 2))
    b = widened(kernel, operand(node, 3), zero_point(node, 5), columns_view(node, 3, 5))
    product_of(kernel, _D.UINT32, shapes, a, b, sums)
    left, right = shapes
    domain = (
        *broadcast(left[:-2], right[:-2]),
        left[-2] if len(left) > 1 else 1,
        right[-1] if len(right) > 1 else 1,
    )
    requantize(kernel, node, sums, domain, (_rows(node, 0, 1), columns_view(node, 3, 4)))
    yield kernel.step()


def _check_qlinear_conv(node: ir.Node) -> None:
    _check_linear(node)
    want_dtypes(node, {_D.INT32}, 8)
    check_shapes(node, weight=3)
    for index in (1, 2):
        view_of(zero_point(node, index), ())
    for index in (4, 5):
        _weight_view(node, 3, index)
    outs = dims(operand(node, 3))[0]
    if has_input(node, 8) and not same(product(dims(operand(node, 8))), outs):
        raise Unsupported(f"the bias has {product(dims(operand(node, 8)))} elements for {outs} channels")


@loops("QLinearConv", check=_check_qlinear_conv)
def _qlinear_conv(node: ir.Node) -> Iterator[Step]:
    out = node.outputs[0]
    byte_conv = Convolution(node, _D.UINT32, weight=3)
    if has_byte_weights(byte_conv, zero_point(node, 5)):
        x = operand(node, 0), zero_point(node, 2)
        ByteConvolution(byte_conv, x, zero_point(node, 8)).write(
            f"((uint8_t*){byte_conv.kernel.write(node.outputs[0])})", *channel_scales(byte_conv, node, HEIGHT)
        )
        yield byte_conv.kernel.step()
        return
    conv = _convolution(node, A, B)
    conv.b = f"((const uint32_t*){conv.kernel.read(operand(node, 8))})" if has_input(node, 8) else ""
    conv.y = conv.kernel.scratch(_D.UINT32, product(dims(out)))
    conv.write()
    channels = _weight_view(node, 3, 4) and (dims(out)[1], *(1 for _ in dims(out)[2:]))
    requantize(conv.kernel, node, conv.y, dims(out), ((), channels))
    yield conv.kernel.step()


def requantize(
    kernel: Kernel,
    node: ir.Node,
    sums: str,
    domain: Sequence[Dim],
    views: tuple[View, View],
    result: Quantized = OUT,
) -> None:
    """Write the output of a node with the inputs ``A``, ``B`` and ``result``.

    ``sums`` points to the sums of products, over ``domain``, over which the scales of A and B broadcast by
    ``views``. An attribute ``alpha`` multiplies them. Without the scale of the result, it is a float.
    """
    factors = _factors(kernel, node, views, zero_point(node, result.scale))
    with nested(kernel, domain, [domain, *(view for _, view in factors)]) as (at, *offsets):
        texts = [f"{name}[{offset}]" for (name, _), offset in zip(factors, offsets, strict=True)]
        _write_result(kernel, node, f"{sums}[{at}]", texts, at, result)


def requantize_rows(
    kernel: Kernel,
    node: ir.Node,
    columns: int,
    view: View,
    result: Quantized = OUT,
    bias: Callable[[str, str], str] | None = None,
) -> Callable[[str, str, str], None]:
    """What :func:`multiply_bytes` calls to write some rows of the output of a node.

    The scale of B broadcasts by ``view``. ``bias`` is a word to add, in C, for a row and a column.
    """
    factors = _factors(kernel, node, ((), view), zero_point(node, result.scale))
    texts = [f"{name}[{'j' if own else '0'}]" for name, own in factors]

    def finish(sums: str, first: str, rows: str) -> None:
        with kernel.loop("i", rows), kernel.loop("j", str(columns)):
            more = f" + {bias(f'({first} + i)', 'j')}" if bias else ""
            at = f"({first} + i) * {columns} + j"
            _write_result(kernel, node, f"({sums}[i * {columns} + j]{more})", texts, at, result)

    return finish


def channel_scales(conv: Convolution, node: ir.Node, more: int, spread: bool = False) -> tuple[str, str]:
    """How sums of a convolution become bytes, and the index of the factor of a channel, which is ``channel``.

    ``more`` factors can be read behind the last one. With ``spread``, each channel has its own.
    """
    kernel = conv.kernel
    factors = _factors(kernel, node, ((), _weight_view(node, 3, 4)), zero_point(node, OUT.scale))
    own = spread or any(view for _, view in factors)
    count = conv.group * conv.outs if own else 1
    made = kernel.scratch(_D.FLOAT, count + more)
    texts = [f"{name}[{'m' if view else '0'}]" for name, view in factors]
    with kernel.loop("m", str(count)):
        kernel.line(f"{made}[m] = {_product(node, texts)};")
    zero, dtype = zero_point(node, OUT.zero), node.outputs[0].dtype
    assert dtype is not None  # noqa: S101 - checked before
    limits = np.iinfo(dtype.numpy())
    low, high = int_attr(node, "low", limits.min), int_attr(node, "high", limits.max)
    origin = f"*{kernel.read(zero)}" if zero is not None else "0"
    ends = f"{low} - {origin}, {high} - {origin}, {origin}"
    kernel.line(f"farcall_bytes_scale scale = {{{made}, {int(own)}, {ends}}};")
    return "&scale", "channel" if own else "0"


def _write_result(
    kernel: Kernel, node: ir.Node, total: str, factors: Sequence[str], at: str, result: Quantized
) -> None:
    """Write the element ``at`` of the output from its sum."""
    out = node.outputs[0]
    q, kind = kernel.write(out), c_type(out.dtype)
    zero = zero_point(node, result.zero)
    origin = f"*{kernel.read(zero)}" if zero is not None else "0"
    kernel.line(f"const float sum = (float)(int32_t){total} * ({_product(node, factors)});")
    value = f"({kind})farcall_quantize(sum, {origin}, {bounds(node)})"
    kernel.line(f"{q}[{at}] = {'sum' if out.dtype == _D.FLOAT else value};")


def _product(node: ir.Node, texts: Sequence[str]) -> str:
    """The product of factors, in the order of onnxruntime: the result depends on it."""
    if len(texts) == 1:
        return texts[0]
    alpha = float_attr(node, "alpha", 1.0)
    first = [] if alpha == 1.0 else [c_literal(alpha, _D.FLOAT)]
    return " * ".join([*first, *texts[:2]]) + (f" / {texts[2]}" if len(texts) > 2 else "")


def _factors(
    kernel: Kernel, node: ir.Node, views: tuple[View, View], result: ir.Value | None
) -> list[tuple[str, View]]:
    """Pointers to the scales of A, B and the result, with their views; or to one table of constants."""
    values = [operand(node, which.scale) for which in (A, B)] + ([] if result is None else [result])
    data = [constant(value) for value in values]
    if views[0] == () and all(item is not None for item in data):
        a, b, *divisor = (np.asarray(item, np.float32).ravel() for item in data)
        factor = (
            np.float32(float_attr(node, "alpha", 1.0)) * a * b / (divisor[0] if divisor else np.float32(1))
        )
        return [(kernel.table(factor), views[1])]
    return [(kernel.read(value), view) for value, view in zip(values, (*views, ()), strict=False)]
