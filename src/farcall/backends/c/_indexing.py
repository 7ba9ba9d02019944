"""Operators that address elements by index: Gather, Slice, Expand, Shape and the like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import onnx_ir as ir

from farcall.backends._ctext import ALL, c_literal
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import coalesce, shared
from farcall.backends.c._node import (
    Unsupported,
    constant,
    constant_operand,
    has_input,
    int_attr,
    ints_attr,
    known_dims,
    label,
    normalize_axis,
    operand,
    opset,
    rank,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import allocating, loops
from farcall.backends.c._shaping import strided_copy
from farcall.graph._broadcasts import stretched
from farcall.graph._operand_rules import slice_first
from farcall.graph.dims import Dim, dims, product, same

_INT64 = {ir.DataType.INT64}
_INDICES = {ir.DataType.INT64, ir.DataType.INT32}


def _output(kernel: Kernel, node: ir.Node, index: int) -> str:
    """The elements of the output, whose shape is the operand ``index`` (of Expand, broadcast).

    A computed operand must give the dims that were inferred.
    """
    out = node.outputs[0]
    if constant(operand(node, index)) is not None:
        return kernel.write(out)
    given = kernel.read(operand(node, index))
    source = dims(operand(node, 0)) if index else ()
    rank, length = len(dims(out)), len(dims(out)) if not index else _length(node, index)
    sizes = []
    for axis in range(rank):
        own = source[axis - rank] if rank - axis <= len(source) else 1
        wanted = f"{given}[{axis - rank + length}]" if rank - axis <= length else "1"
        if index and own != 1:
            _check_expanded(kernel, node, axis, kernel.dim(own), wanted)
        sizes.append(wanted if own == 1 else f"({wanted} == 1 ? {kernel.dim(own)} : {wanted})")
    return kernel.allocate(out, sizes, label(node))


def _check_expanded(kernel: Kernel, node: ir.Node, axis: int, own: str, wanted: str) -> None:
    """Refuse a size of Expand's shape that neither is that of the input nor stretches it."""
    about = stretched(node)
    if about is None:
        parts = (
            f"{label(node)}: axis {axis} of its output has ",
            wanted,
            " elements by the shape, and ",
            own,
        )
        end = " by the input"
    else:
        text = f"{about.reader}: axis {axis} of its result has "
        parts = (text, own, f" elements by `{about.own}`, and ", wanted)
        end = f" by `{about.other}`"
    refusal = kernel.fail_with("ValueError", *parts, f"{end}; equal sizes, or a 1, fit")
    kernel.line(f"if ({wanted} != 1 && {own} != 1 && {wanted} != {own}) {refusal}")


def _length(node: ir.Node, index: int) -> int:
    length = dims(operand(node, index))[0]
    assert isinstance(length, int)  # noqa: S101 - checked before
    return length


def _check_shape_operand(node: ir.Node, index: int) -> None:
    count = known_dims(operand(node, index))
    if len(count) != 1 or not isinstance(count[0], int):
        raise Unsupported("the rank of the output is known only at run time")


def _check_constant_of_shape(node: ir.Node) -> None:
    want_dtypes(node, _INT64, 0)
    _check_shape_operand(node, 0)


@allocating("ConstantOfShape", check=_check_constant_of_shape)
@loops("ConstantOfShape", check=_check_constant_of_shape)
def _constant_of_shape(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    out = node.outputs[0]
    q = _output(kernel, node, 0)
    tensor = node.attributes["value"].as_tensor().numpy() if "value" in node.attributes else None
    text = c_literal(0 if tensor is None else tensor.reshape(-1)[0].item(), out.dtype)
    total = product(dims(out))
    with kernel.parallel("i", kernel.dim_parameter(total), ELEMENT, product((ELEMENT, total))):
        kernel.line(f"{q}[i] = {text};")
    yield kernel.step()


def _check_any_input(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)


@loops("Shape", check=_check_any_input)
def _shape(node: ir.Node) -> Iterator[Step]:
    shape = dims(operand(node, 0))
    start, end = int_attr(node, "start", 0), int_attr(node, "end", len(shape))
    kernel = Kernel()
    q = kernel.write(node.outputs[0])
    for i, dim in enumerate(shape[start:end]):
        kernel.line(f"{q}[{i}] = {kernel.dim_parameter(dim)};")
    yield kernel.step()


@loops("Size", check=_check_any_input)
def _size(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    kernel.line(
        f"{kernel.write(node.outputs[0])}[0] = {kernel.dim_parameter(product(dims(operand(node, 0))))};"
    )
    yield kernel.step()


def _check_expand(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    _check_shape_operand(node, 1)


@allocating("Expand", check=_check_expand)
@loops("Expand", check=_check_expand)
def _expand(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    x, out = operand(node, 0), node.outputs[0]
    _output(kernel, node, 1)
    if all(dim == 1 or same(dim, size) for dim, size in _aligned(node)):
        copy_broadcast(kernel, x, out, dims(out), dims(x))
    else:
        _expand_some(kernel, node)
    yield kernel.step()


def _aligned(node: ir.Node) -> list[tuple[Dim, Dim]]:
    """For each axis of the output, the dim of the input and its own."""
    given, made = dims(operand(node, 0)), dims(node.outputs[0])
    return list(zip((*(1,) * (len(made) - len(given)), *given), made, strict=True))


def _expand_some(kernel: Kernel, node: ir.Node) -> None:
    """Loops for dims of which the call decides whether they are 1, and broadcast."""
    p, q, pairs = kernel.read(operand(node, 0)), kernel.write(node.outputs[0]), _aligned(node)
    given, made = ([kernel.dim(pair[side]) for pair in pairs] for side in (0, 1))
    for axis, (dim, size) in enumerate(pairs):
        if dim != 1 and not same(dim, size):
            parts = (f"{label(node)}: dim {axis} is ", given[axis], "; 1 or ", made[axis], " fits")
            refusal = kernel.fail_with("ValueError", *parts)
            kernel.line(f"if ({given[axis]} != 1 && {given[axis]} != {made[axis]}) {refusal}")
    count = kernel.dim(product(size for _, size in pairs))
    equal = " && ".join(f"{dim} == {size}" for dim, size in zip(given, made, strict=True) if dim != size)
    with kernel.block(f"if ({count} && {equal})"):
        kernel.line(f"memcpy({q}, {p}, (size_t){count} * sizeof *{q});")
    source, place = "0", "0"
    with kernel.block(f"else if ({count})"), ExitStack() as stack:
        for axis, (dim, size) in enumerate(zip(given, made, strict=True)):
            stack.enter_context(kernel.loop(f"i{axis}", size))
            source = f"({source}) * {dim} + ({dim} == 1 ? 0 : i{axis})"
            place = f"({place}) * {size} + i{axis}"
        kernel.line(f"{q}[{place}] = {p}[{source}];")


def copy_broadcast(
    kernel: Kernel, source: ir.Value, out: ir.Value, domain: Sequence[Dim], view: Sequence[Dim]
) -> None:
    """Write loops that copy ``source``, seen as ``view``, to the elements of ``out``, seen as ``domain``."""
    p, q = kernel.read(source), kernel.write(out)
    nest = coalesce(domain, [view, domain])
    # Without elements, the loops around the one of length 0 could still be long.
    with kernel.block(f"if ({kernel.dim(product(domain))})"), ExitStack() as stack:
        loops = [(f"i{axis}", dim, 1) for axis, dim in enumerate(nest.dims)]
        outer, inner = (loops[:-1], loops[-1:]) if len(loops) > 1 else (loops, [])
        stack.enter_context(shared(kernel, outer, product((ELEMENT, *(dim for _, dim, _ in inner)))))
        for name, dim, _ in inner:
            stack.enter_context(kernel.loop(name, kernel.dim(dim)))
        places = [
            " + ".join(
                f"i{axis} * {kernel.dim(nest.stride(number, axis))}"
                for axis in range(len(nest.dims))
                if nest.moves[number][axis]
            )
            or "0"
            for number in range(2)
        ]
        kernel.line(f"{q}[{places[1]}] = {p}[{places[0]}];")


def _check_gather(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    want_dtypes(node, _INDICES, 1)
    normalize_axis(int_attr(node, "axis", 0), rank(operand(node, 0)))


@loops("Gather", check=_check_gather)
def _gather(node: ir.Node) -> Iterator[Step]:
    """Copy rows by index. An index outside the axis is an error: it would read out of bounds."""
    data, indices = operand(node, 0), operand(node, 1)
    shape = dims(data)
    axis = normalize_axis(int_attr(node, "axis", 0), len(shape))
    kernel = Kernel()
    p, n, q = kernel.read(data), kernel.read(indices), kernel.write(node.outputs[0])
    length, inner = (kernel.dim(d) for d in (shape[axis], product(shape[axis + 1 :])))
    count = kernel.dim(product(dims(indices)))
    rows = product((*shape[:axis], *dims(indices)))
    cost = product((ELEMENT, *shape[axis + 1 :]))
    begin, end = kernel.split(rows, cost)
    with kernel.block(f"for (int64_t at = {begin}; at < {end}; ++at)"):
        kernel.line(f"const int64_t i = at / {count}, j = at % {count};")
        kernel.index("row", f"{n}[j]", length, label(node), f"axis {axis}")
        with kernel.loop("k", inner):
            kernel.line(f"{q}[(i * {count} + j) * {inner} + k] = {p}[(i * {length} + row) * {inner} + k];")
    yield kernel.step()


def slices_of(node: ir.Node) -> dict[int, tuple[int, int]]:
    """Axis -> (start, step)."""
    count = rank(operand(node, 0))
    if opset(node) < 10:
        starts = ints_attr(node, "starts", [])
        axes, steps = ints_attr(node, "axes", range(len(starts))), [1] * len(starts)
    else:
        starts = constant_operand(node, 1).ravel().tolist()
        constant_operand(node, 2)
        axes = constant_operand(node, 3).ravel().tolist() if has_input(node, 3) else list(range(len(starts)))
        steps = constant_operand(node, 4).ravel().tolist() if has_input(node, 4) else [1] * len(starts)
    if 0 in steps:
        raise Unsupported("a step of 0")
    return {
        normalize_axis(axis, count): (start, step)
        for axis, start, step in zip(axes, starts, steps, strict=True)
    }


def _check_slice(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    slices_of(node)


@loops("Slice", check=_check_slice)
def _slice(node: ir.Node) -> Iterator[Step]:
    x, out = operand(node, 0), node.outputs[0]
    shape, target = dims(x), dims(out)
    strides = [product(shape[axis + 1 :]) for axis in range(len(shape))]
    origin: Dim = 0
    for axis, (start, step) in slices_of(node).items():
        origin = origin + slice_first(shape[axis], start, step) * strides[axis]
        strides[axis] = product((strides[axis], step))
    lengths: list[Dim] = []
    steps: list[Dim] = []
    for axis, dim in enumerate(target):
        if dim == 1:
            continue
        if lengths and steps[-1] == product((strides[axis], dim)):  # the next row begins where this one ends
            lengths[-1], steps[-1] = product((lengths[-1], dim)), strides[axis]
        else:
            lengths.append(dim)
            steps.append(strides[axis])
    yield strided_copy(x, out, lengths, steps, origin)
