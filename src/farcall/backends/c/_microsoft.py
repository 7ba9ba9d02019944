"""Quantized operators of ``com.microsoft``, whose results are those of onnxruntime, bit for bit.

onnxruntime multiplies by quotients of scales, in an order that decides how halves are rounded. So the order
of operations is part of these operators, and compilers may not fuse a multiplication and an addition of them:
one in double and one in float they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest

import onnx_ir as ir

from farcall.backends._ctext import c_type
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._bytes import is_fixed, multiply_bytes
from farcall.backends.c._gemm import ZERO, Start, call_gemm, plain_left, plain_right
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._matmul import transposed_copy
from farcall.backends.c._node import (
    Unsupported,
    extents,
    int_attr,
    normalize_axis,
    operand,
    rank,
    want_dtypes,
)
from farcall.backends.c._qlinear import (
    NONE,
    Quantized,
    View,
    columns_view,
    requantize,
    requantize_rows,
    view_of,
)
from farcall.backends.c._quantized import NARROW, bounds, widened, zero_point
from farcall.backends.c._registry import Operands, elementwise, loops
from farcall.graph.dims import Dim, dims, product, same

_D = ir.DataType


# ---- sums and products of elements ----


def _operands(node: ir.Node) -> Operands:
    values = [operand(node, index) for index in range(8)]
    return [(value, dims(value) if index in (0, 3) else ()) for index, value in enumerate(values)]


def _check_binary(node: ir.Node) -> None:
    want_dtypes(node, NARROW, 0, 2, 3, 5, 7)
    want_dtypes(node, {_D.FLOAT}, 1, 4, 6)
    for index in (1, 2, 4, 5, 6, 7):
        view_of(operand(node, index), ())


@elementwise(
    "com.microsoft::QLinearAdd", "com.microsoft::QLinearMul", check=_check_binary, operands=_operands
)
def _binary(node: ir.Node, *elements: str) -> str:
    name = "add" if node.op_type == "QLinearAdd" else "mul"
    kind = c_type(node.outputs[0].dtype)
    if _repeats_left(node):
        elements = (*elements[3:6], *elements[:3], *elements[6:])
    return f"({kind})farcall_qlinear_{name}({', '.join(elements)}, {bounds(node)})"


def _repeats_left(node: ir.Node) -> bool:
    """Whether a row of the result repeats one element of the first operand.

    onnxruntime's kernel for a row takes the repeated element as its second operand, and the order of a sum
    decides how near halves are rounded.
    """
    left, right = (reversed(dims(operand(node, index))) for index in (0, 3))
    for mine, other in zip_longest(left, right, fillvalue=1):
        if mine != 1 or other != 1:
            return mine == 1
    return False


# ---- mean ----


def _check_global_pool(node: ir.Node) -> None:
    want_dtypes(node, NARROW, 0, 2, 4)
    want_dtypes(node, {_D.FLOAT}, 1, 3)
    if int_attr(node, "channels_last", 0):
        raise Unsupported("channels_last")
    if rank(operand(node, 0)) < 3:
        raise Unsupported(f"rank {rank(operand(node, 0))}; a batch, channels and spatial axes are needed")
    for index in (1, 2, 3, 4):
        view_of(zero_point(node, index), ())


@loops("com.microsoft::QLinearGlobalAveragePool", check=_check_global_pool)
def _global_pool(node: ir.Node) -> Iterator[Step]:
    kernel, x = Kernel(), operand(node, 0)
    p = kernel.read(x)
    count = kernel.dim(product(dims(x)[2:]))
    with kernel.loop("n", kernel.dim(product(dims(x)[:2]))):
        kernel.line(f"const {c_type(x.dtype)}* const plane = {p} + n * {count};\nint32_t sum = 0;")
        with kernel.loop("i", count):
            kernel.line("sum += plane[i];")
        mean_of_sum(kernel, node, "sum", "n", count)
    yield kernel.step()


def mean_of_sum(kernel: Kernel, node: ir.Node, total: str, at: str, count: str) -> None:
    """Write element ``at`` of the output, the mean of ``count`` elements, from their sum."""
    out, zeros = node.outputs[0], [zero_point(node, index) for index in (2, 4)]
    scale, result = (kernel.read(operand(node, index)) for index in (1, 3))
    zero, origin = (f"*{kernel.read(value)}" if value is not None else "0" for value in zeros)
    kernel.line(f"const float factor = *{scale} / (*{result} * (float){count});")
    kernel.line(f"const float total = (float)({total} - (int32_t){count} * {zero});")
    value = f"farcall_quantize(total * factor, {origin}, {bounds(node)})"
    kernel.line(f"{kernel.write(out)}[{at}] = ({c_type(out.dtype)}){value};")


# ---- softmax ----


def _rows(node: ir.Node) -> tuple[Dim, Dim, Dim]:
    """The extents outside of a row, of it, and inside; the attribute ``opset`` says what a row is."""
    shape, axis = dims(operand(node, 0)), int_attr(node, "axis", -1)
    axis = normalize_axis(axis, len(shape))
    if int_attr(node, "opset", 13) >= 13:
        return extents(shape, axis)
    return product(shape[:axis]), product(shape[axis:]), 1


def _check_softmax(node: ir.Node) -> None:
    want_dtypes(node, NARROW, 0, 2, 4)
    want_dtypes(node, {_D.FLOAT}, 1, 3)
    _rows(node)
    for index in (1, 2, 3, 4):
        view_of(zero_point(node, index), ())


@loops("com.microsoft::QLinearSoftmax", check=_check_softmax)
def _softmax(node: ir.Node) -> Iterator[Step]:
    """Powers come from a table: differences from a row's largest element are small integers.

    onnxruntime rounds down how many steps of the result 1 has.
    """
    kernel, x, out = Kernel(), operand(node, 0), node.outputs[0]
    p, q = kernel.read(x), kernel.write(out)
    scale, result = (kernel.read(operand(node, index)) for index in (1, 3))
    zero = zero_point(node, 4)
    origin = f"*{kernel.read(zero)}" if zero is not None else "0"
    outer, length, inner = map(kernel.dim, _rows(node))
    kernel.line(f"double powers[256];\nconst double steps = floor(1.0 / (double)*{result});")
    with kernel.loop("i", "256"):
        kernel.line(f"powers[i] = exp(-(double)i * (double)*{scale});")
    with kernel.loop("i", outer), kernel.loop("j", inner):
        kernel.line(f"const int64_t first = i * {length} * {inner} + j;")
        kernel.line(f"int32_t top = {scalar.lowest(x.dtype)};\ndouble total = 0;")
        value = f"{p}[first + k * {inner}]"
        with kernel.loop("k", length):
            kernel.line(f"top = {value} > top ? {value} : top;")
        with kernel.loop("k", length):
            kernel.line(f"total += powers[top - {value}];")
        with kernel.loop("k", length):
            share = f"(float)(powers[top - {value}] * steps / total)"
            text = f"farcall_quantize({share}, {origin}, {bounds(node)})"
            kernel.line(f"{q}[first + k * {inner}] = ({c_type(out.dtype)}){text};")
    yield kernel.step()


# ---- matrix product with a bias ----

_A, _B, _OUT = Quantized(0, 1, 2), Quantized(3, 4, 5), Quantized(NONE, 7, 8)
_BIAS = 6


def _check_gemm(node: ir.Node) -> None:
    want_dtypes(node, NARROW, 0, 2, 3, 5, 8)
    want_dtypes(node, {_D.FLOAT}, 1, 4, 7)
    want_dtypes(node, {_D.INT32}, _BIAS)
    if rank(operand(node, 0)) != 2 or rank(operand(node, 3)) != 2:
        raise Unsupported("operands that are not matrices")
    for index in (_A.scale, _A.zero, _OUT.scale, _OUT.zero):
        view_of(zero_point(node, index), ())
    for index in (_B.scale, _B.zero):
        _each_column(node, index)
    bias = zero_point(node, _BIAS)
    if bias is not None and (rank(bias) > 2 or not _broadcasts(node, bias)):
        raise Unsupported(f"a bias of shape {dims(bias)} for a result of shape {dims(node.outputs[0])}")


def _broadcasts(node: ir.Node, bias: ir.Value) -> bool:
    pairs = zip(reversed(dims(bias)), reversed(dims(node.outputs[0])), strict=False)
    return all(dim == 1 or same(dim, size) for dim, size in pairs)


def _each_column(node: ir.Node, index: int) -> View:
    """By which dims input ``index`` broadcasts over the transposed or plain right operand."""
    value, rows = zero_point(node, index), dims(operand(node, 3))[0]
    if not int_attr(node, "transB", 0):
        return columns_view(node, 3, index)
    return view_of(value, [((rows,), (rows, 1)), ((rows, 1), (rows, 1))])


@loops("com.microsoft::QGemm", check=_check_gemm)
def _gemm(node: ir.Node) -> Iterator[Step]:
    kernel, out = Kernel(), node.outputs[0]
    a, b = operand(node, 0), operand(node, 3)
    m, n = dims(out)
    k = dims(a)[0 if int_attr(node, "transA", 0) else 1]
    sizes = [kernel.dim(dim) for dim in (m, n, k)]
    columns = () if _each_column(node, _B.scale) == () else (n,)
    zeros = zero_point(node, _A.zero), zero_point(node, _B.zero)
    if is_fixed(b, zeros[1]) and not int_attr(node, "transA", 0):
        finish = requantize_rows(kernel, node, int(n), columns, _OUT, _bias(kernel, node))
        multiply_bytes(kernel, (a, zeros[0]), (b, zeros[1]), bool(int_attr(node, "transB", 0)), "", finish)
        yield kernel.step()
        return
    sums = kernel.scratch(_D.UINT32, product((m, n)))
    left = widened(kernel, a, zero_point(node, _A.zero), ())
    right = widened(kernel, b, zero_point(node, _B.zero), _each_column(node, _B.zero))
    if int_attr(node, "transB", 0):
        right = transposed_copy(kernel, right, b, _D.UINT32)
    call_gemm(
        kernel,
        _D.UINT32,
        sizes,
        plain_left(left, "1", sizes[0]) if int_attr(node, "transA", 0) else plain_left(left, sizes[2]),
        plain_right(_D.UINT32, right, sizes[1]),
        (sums, sizes[1]),
        _start(kernel, node),
    )
    requantize(kernel, node, sums, (m, n), ((), columns), _OUT)
    yield kernel.step()


def _bias(kernel: Kernel, node: ir.Node) -> Callable[[str, str], str] | None:
    """The bias for a row and a column of the result."""
    if zero_point(node, _BIAS) is None:
        return None
    start = _start(kernel, node)
    return lambda i, j: f"({start.pointer})[{i} * {start.row} + {j} * {start.column}]"


def _start(kernel: Kernel, node: ir.Node) -> Start:
    """The bias as it broadcasts over the result."""
    bias = zero_point(node, _BIAS)
    if bias is None:
        return ZERO
    rows, columns = (1, 1, *dims(bias))[-2:]
    row = "0" if rows == 1 else kernel.dim(columns)
    return Start(f"(const uint32_t*){kernel.read(bias)}", row, "0" if columns == 1 else "1")
