"""OneHot and EyeLike: tensors with few other elements than one. ReverseSequence."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import ALL, FLOATS, INTEGERS, UNSIGNED, c_literal, c_type
from farcall.backends.c import _scalar as scalar
from farcall.backends.c._elements import verify_same, want_same
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    constant,
    int_attr,
    label,
    normalize_axis,
    operand,
    opset,
    rank,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import allocating, loops
from farcall.graph.dims import dims, product

_D = ir.DataType
_FARTHEST = 2**60  # a diagonal further out is outside of any matrix


def _check_one_hot(node: ir.Node) -> None:
    want_dtypes(node, FLOATS | INTEGERS, 0, 1)
    want_dtypes(node, ALL, 2)
    if product(dims(operand(node, 1))) != 1 or dims(operand(node, 2)) != (2,):
        raise Unsupported("expected one depth and two values")
    _one_hot_axis(node)


def _one_hot_axis(node: ir.Node) -> int:
    return normalize_axis(int_attr(node, "axis", -1), rank(node.outputs[0]))


@allocating("OneHot", check=_check_one_hot)
@loops("OneHot", check=_check_one_hot)
def _one_hot(node: ir.Node) -> Iterator[Step]:
    """The second value at each index, else the first. An index outside of the depth marks nothing."""
    indices, out, axis = operand(node, 0), node.outputs[0], _one_hot_axis(node)
    shape, length = dims(indices), dims(out)[axis]
    kernel = Kernel()
    n, values = kernel.read(indices), kernel.read(operand(node, 2))
    inner = kernel.dim(product(shape[axis:]))
    if constant(operand(node, 1)) is None:
        given = scalar.convert(operand(node, 1).dtype, _D.INT64, f"{kernel.read(operand(node, 1))}[0]")
        kernel.line(f"const int64_t given = {given};")
        sizes = list(map(kernel.dim, shape))
        sizes.insert(axis, "given")
        kernel.allocate(out, sizes, label(node))
    q, depth = kernel.write(out), kernel.dim(length)
    kernel.line(f"const {c_type(out.dtype)} off = {values}[0], on = {values}[1];")
    with kernel.loop("i", product(dims(out))):
        kernel.line(f"{q}[i] = off;")
    with kernel.loop("i", product(shape[:axis])), kernel.loop("j", inner):
        place = f"{n}[i * {inner} + j]"
        if indices.dtype in UNSIGNED:  # the largest ones are negative as int64
            kernel.line(f"if ((uint64_t){place} >= (uint64_t){depth}) continue;")
        kernel.line(f"int64_t at = {scalar.convert(indices.dtype, _D.INT64, place)};")
        if opset(node) >= 11:
            kernel.line(f"at += at < 0 ? {depth} : 0;")
        kernel.line(f"if (at >= 0 && at < {depth}) {q}[(i * {depth} + at) * {inner} + j] = on;")
    yield kernel.step()


def _check_eye(node: ir.Node) -> None:
    if rank(operand(node, 0)) != 2:
        raise Unsupported(f"rank {rank(operand(node, 0))}")


@loops("EyeLike", check=_check_eye)
def _eye_like(node: ir.Node) -> Iterator[Step]:
    """1 on a diagonal, else 0."""
    out = node.outputs[0]
    rows, columns = dims(out)
    kernel = Kernel()
    q, width, total = kernel.write(out), kernel.dim(columns), kernel.dim(product((rows, columns)))
    offset = c_literal(max(min(int_attr(node, "k", 0), _FARTHEST), -_FARTHEST), _D.INT64)
    kernel.line(f"memset({q}, 0, (size_t){total} * sizeof *{q});")
    with kernel.loop("i", rows):
        kernel.line(f"const int64_t j = i + {offset};")
        kernel.line(f"if (j >= 0 && j < {width}) {q}[i * {width} + j] = 1;")
    yield kernel.step()


def _check_reverse(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    want_dtypes(node, {_D.INT64}, 1)
    batch, time = int_attr(node, "batch_axis", 1), int_attr(node, "time_axis", 0)
    if sorted((batch, time)) != [0, 1] or rank(operand(node, 0)) < 2:
        raise Unsupported(f"batch_axis {batch} and time_axis {time} of rank {rank(operand(node, 0))}")
    want_same("the lengths", dims(operand(node, 1)), (dims(operand(node, 0))[batch],))


@loops("ReverseSequence", check=_check_reverse)
def _reverse_sequence(node: ir.Node) -> Iterator[Step]:
    """The first steps of each sequence in reverse, as many as its length says; later ones stay."""
    x, lengths, batch = operand(node, 0), operand(node, 1), int_attr(node, "batch_axis", 1)
    shape = dims(x)
    kernel = Kernel()
    p, n, q = kernel.read(x), kernel.read(lengths), kernel.write(node.outputs[0])
    verify_same(kernel, node, "the lengths", dims(lengths), (shape[batch],))
    most, width, inner = kernel.dim(shape[1 - batch]), kernel.dim(shape[1]), kernel.dim(product(shape[2:]))
    parts = (f"{label(node)}: a length of ", f"{n}[b]", ", of ", most, " steps")
    with kernel.parallel("b", shape[batch], product((ELEMENT, shape[1 - batch], *shape[2:]))):
        kernel.line(f"if ({n}[b] < 0 || {n}[b] > {most}) {kernel.fail_with('ValueError', *parts)}")
        with kernel.loop("t", most):
            kernel.line(f"const int64_t s = t < {n}[b] ? {n}[b] - 1 - t : t;")
            to, origin = (f"b * {width} + {step}" if batch == 0 else f"{step} * {width} + b" for step in "ts")
            with kernel.loop("k", inner):
                kernel.line(f"{q}[({to}) * {inner} + k] = {p}[({origin}) * {inner} + k];")
    yield kernel.step()
