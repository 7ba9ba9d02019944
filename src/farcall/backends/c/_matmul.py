"""Gemm and MatMul, on the blocked matrix product of :mod:`farcall.backends.c._gemm`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_literal
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._epilogue import Epilogue
from farcall.backends.c._finished import call_finished
from farcall.backends.c._gemm import (
    ZERO,
    Left,
    Right,
    Start,
    call_gemm,
    open_parts,
    packed_right,
    plain_left,
    plain_right,
    turned_right,
)
from farcall.backends.c._kernel import Kernel, Step
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
from farcall.backends.c._registry import finishing, loops
from farcall.graph.dims import Dim, dims, product

_D = ir.DataType
_WIDE = frozenset({_D.INT32, _D.INT64, _D.UINT32, _D.UINT64})


def _check_matmul(node: ir.Node) -> None:
    want_dtypes(node, FLOATS | _WIDE)
    if min(rank(operand(node, 0)), rank(operand(node, 1))) < 1:
        raise Unsupported("a scalar operand")


@loops("MatMul", check=_check_matmul)
def _matmul(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    a, b, out = operand(node, 0), operand(node, 1), node.outputs[0]
    data = constant(b)
    packed = data is not None and data.ndim == 2
    second = packed_right(kernel, data) if packed and data is not None else kernel.read(b)
    shapes = (dims(a), dims(b))
    product_of(kernel, out.dtype, shapes, kernel.read(a), second, kernel.write(out), splits=True)
    yield kernel.step()


def _finishes(node: ir.Node, epilogue: Epilogue) -> bool:
    """Whether B is a constant matrix, which all rows of A share, and elements cost less than an exponential.

    A loop of its own over exponentials takes no longer: they, not the memory, take its time.
    """
    data = constant(operand(node, 1))
    return data is not None and data.ndim == 2 and not epilogue.is_costly


@finishing("MatMul", when=_finishes)
def _finished_matmul(node: ir.Node, epilogue: Epilogue) -> Iterator[Step]:
    a, data = operand(node, 0), constant(operand(node, 1))
    assert data is not None  # noqa: S101 - of a matrix
    kernel, (k, n) = Kernel(), data.shape
    shape = product(dims(a)[:-1]), n, k
    right, left = packed_right(kernel, data), plain_left(kernel.read(a), str(k))
    yield _finished(kernel, node, shape, left, right, ZERO, epilogue)


def _finished(
    kernel: Kernel,
    node: ir.Node,
    shape: tuple[Dim, Dim, Dim],
    left: Left,
    right: Right,
    start: Start,
    epilogue: Epilogue | None,
) -> Step:
    """A product and its epilogue. A row that this adds before all else is what the sums start with."""
    target = node.outputs[0] if epilogue is None else epilogue.output
    added = epilogue.added_row() if epilogue and start == ZERO else None
    if added is not None:
        row, epilogue = added
        start = Start(kernel.read(row), "0", "1")
    sizes = [kernel.dim(dim) for dim in shape]
    with ExitStack() as stack:
        parts = open_parts(kernel, stack, target.dtype, shape, left, right)
        c = kernel.write(target), sizes[1]
        call_finished(kernel, target.dtype, sizes, left, right, c, start, parts, epilogue)
    return kernel.step()


def product_of(
    kernel: Kernel,
    dtype: ir.DataType | None,
    shapes: tuple[Sequence[Dim], Sequence[Dim]],
    p0: str,
    second: str | Right,
    q: str,
    *,
    splits: bool = False,
) -> None:
    """Write the product, as of MatMul, of operands with these shapes.

    ``p0``, ``second`` and ``q`` point to the elements of the operands and of the result. ``splits``: the
    kernel does nothing else, so that threads may compute parts of it.
    """
    left, right = map(list, shapes)
    left = [1, *left] if len(left) == 1 else left
    right = [*right, 1] if len(right) == 1 else right
    m, k, n = left[-2], left[-1], right[-1]
    batch = broadcast(left[:-2], right[:-2])
    if all(dim == 1 for dim in right[:-2]):  # all batches share B: treat the batch as more rows of A
        m, batch, left = product((*left[:-2], m)), [], [product(left[:-1]), k]
    sizes = [kernel.dim(d) for d in (m, n, k)]
    x = f"{p0} + {batch_offset(kernel, left[:-2], batch, product((m, k)))}"
    z = f"{q} + {batch_offset(kernel, batch, batch, product((m, n)))}"
    if isinstance(second, str):
        y = f"{second} + {batch_offset(kernel, right[:-2], batch, product((k, n)))}"
        second = plain_right(dtype, y, sizes[1])
    a, c = plain_left(x, sizes[2]), (z, sizes[1])
    with ExitStack() as stack:
        parts = None
        if splits:
            axes = [(f"i{axis}", dim) for axis, dim in enumerate(batch)]
            parts = open_parts(kernel, stack, dtype, (m, n, k), a, second, axes)
        else:
            for axis, dim in enumerate(batch):
                stack.enter_context(kernel.loop(f"i{axis}", kernel.dim(dim)))
        call_gemm(kernel, dtype, sizes, a, second, c, ZERO, parts)


def broadcast(left: Sequence[Dim], right: Sequence[Dim]) -> list[Dim]:
    """The dims of two operands that broadcast to each other."""
    count = max(len(left), len(right))
    pairs = zip(_pad(left, count), _pad(right, count), strict=True)
    return [b if a == 1 else a for a, b in pairs]


def _pad(shape: Sequence[Dim], count: int) -> list[Dim]:
    return [*([1] * (count - len(shape))), *shape]


def batch_offset(kernel: Kernel, shape: Sequence[Dim], batch: Sequence[Dim], matrix: Dim) -> str:
    """C: the place of matrix ``i0, i1, ...`` of ``batch`` in an operand whose batch has this ``shape``."""
    terms: list[str] = []
    scale = matrix
    for axis, dim in reversed(list(enumerate(_pad(shape, len(batch))))):
        if dim != 1:
            terms.append(f"i{axis} * {kernel.dim(scale)}")
            scale = product((scale, dim))
    return " + ".join(terms) or "0"


def _check_gemm(node: ir.Node) -> None:
    want_dtypes(node, FLOATS | _WIDE)
    if operand(node, 0).dtype not in FLOATS:
        for name in ("alpha", "beta"):
            if float_attr(node, name, 1.0) != 1.0:
                raise Unsupported(f"{name} with integers")
    if rank(operand(node, 0)) != 2 or rank(operand(node, 1)) != 2:
        raise Unsupported("operands that are not matrices")


@loops("Gemm", check=_check_gemm)
def _gemm(node: ir.Node) -> Iterator[Step]:
    return _gemm_steps(node, None)


def _scales(node: ir.Node) -> bool:
    """Whether the kernel multiplies A, or C, by a number before the product."""
    return float_attr(node, "alpha", 1.0) != 1.0 or (_has_bias(node) and float_attr(node, "beta", 1.0) != 1.0)


@finishing("Gemm", when=lambda node, epilogue: _finishes(node, epilogue) and not _scales(node))
def _finished_gemm(node: ir.Node, epilogue: Epilogue) -> Iterator[Step]:
    return _gemm_steps(node, epilogue)


def _gemm_steps(node: ir.Node, epilogue: Epilogue | None) -> Iterator[Step]:
    a, b, out = operand(node, 0), operand(node, 1), node.outputs[0]
    m, n = dims(out)
    k = dims(a)[0 if int_attr(node, "transA", 0) else 1]
    kernel = Kernel()
    p0 = kernel.read(a)
    sizes = [kernel.dim(d) for d in (m, n, k)]
    right = _second(kernel, node, b, sizes)
    alpha = float_attr(node, "alpha", 1.0)
    if alpha != 1.0:
        p0 = _scaled(kernel, p0, a, alpha)
    left = plain_left(p0, "1", sizes[0]) if int_attr(node, "transA", 0) else plain_left(p0, sizes[2])
    start = _bias(kernel, node)
    if not _scales(node):
        yield _finished(kernel, node, (m, n, k), left, right, start, epilogue)
        return
    q = kernel.write(out)  # in one part: the kernel has written what all parts would read
    scaled = _scaled_bias(kernel, node, q, start, sizes)
    call_gemm(kernel, out.dtype, sizes, left, right, (q, sizes[1]), scaled)
    yield kernel.step()


def _has_bias(node: ir.Node) -> bool:
    return has_input(node, 2) and float_attr(node, "beta", 1.0) != 0.0


def _bias(kernel: Kernel, node: ir.Node) -> Start:
    """C as it broadcasts."""
    if not _has_bias(node):
        return ZERO
    value = operand(node, 2)
    shape = _pad(dims(value), 2)
    row = "0" if shape[0] == 1 else kernel.dim(shape[1])
    return Start(kernel.read(value), row, "0" if shape[1] == 1 else "1")


def _scaled_bias(kernel: Kernel, node: ir.Node, q: str, c: Start, sizes: Sequence[str]) -> Start | None:
    """What the product is added to: C, or, if that is None, the output, which then holds ``beta * C``."""
    beta = float_attr(node, "beta", 1.0)
    if c == ZERO or beta == 1.0:
        return c
    with kernel.loop("i", sizes[0]), kernel.loop("j", sizes[1]):
        factor = c_literal(beta, node.outputs[0].dtype)
        kernel.line(f"{q}[i * {sizes[1]} + j] = {factor} * {c.pointer}[i * {c.row} + j * {c.column}];")
    return None


def _scaled(kernel: Kernel, pointer: str, value: ir.Value, alpha: float) -> str:
    count = product(dims(value))
    dtype = value.dtype
    assert dtype is not None  # noqa: S101 - checked before
    copy = kernel.scratch(dtype, count)
    with kernel.loop("i", kernel.dim(count)):
        kernel.line(f"{copy}[i] = {scalar.wrapping(dtype, c_literal(alpha, dtype), '*', f'{pointer}[i]')};")
    return copy


def _second(kernel: Kernel, node: ir.Node, value: ir.Value, sizes: Sequence[str]) -> Right:
    """B: a constant is packed now."""
    data, transposed = constant(value), bool(int_attr(node, "transB", 0))
    if data is not None:
        return packed_right(kernel, data.T if transposed else data)
    pointer, dtype = kernel.read(value), value.dtype
    assert dtype is not None  # noqa: S101 - checked before
    if not transposed:
        return plain_right(dtype, pointer, sizes[1])
    return turned_right(dtype, pointer, sizes[2])


def transposed_copy(kernel: Kernel, pointer: str, value: ir.Value, dtype: ir.DataType) -> str:
    """A pointer to the elements of a matrix of the shape of ``value``, transposed."""
    rows, columns = (kernel.dim(dim) for dim in dims(value))
    copy = kernel.scratch(dtype, product(dims(value)))
    with kernel.loop("r", rows, step=16), kernel.loop("c", columns, step=16):
        kernel.line(f"const int64_t r1 = r + 16 < {rows} ? r + 16 : {rows};")
        kernel.line(f"const int64_t c1 = c + 16 < {columns} ? c + 16 : {columns};")
        with kernel.loop("j", "c1", start="c"), kernel.loop("i", "r1", start="r"):
            kernel.line(f"{copy}[j * {rows} + i] = {pointer}[i * {columns} + j];")
    return copy
