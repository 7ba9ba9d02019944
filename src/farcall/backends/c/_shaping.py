"""Operators that change dims (views) or copy elements: Reshape, Transpose, Concat and the like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack

import onnx_ir as ir

from farcall.backends._ctext import ALL, STORED, c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    constant,
    differ,
    has_input,
    int_attr,
    ints_attr,
    known_dims,
    label,
    normalize_axis,
    operand,
    opset,
    output_used,
    rank,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops, view
from farcall.backends.c._turn_text import tile_source
from farcall.backends.c_backend_kit import itemsize
from farcall.graph.dims import Dim, dims, product, same


def _no_steps() -> Iterable[Step]:
    return ()


def _check_view(node: ir.Node) -> None:
    want_dtypes(node, STORED, 0)
    before, after = product(known_dims(operand(node, 0))), product(known_dims(node.outputs[0]))
    if not same(before, after):
        raise Unsupported(f"it cannot be seen that {before} elements are {after}")


@view("Identity", "Flatten", check=_check_view)
def _identity(node: ir.Node) -> Iterable[Step]:
    return _no_steps()


@view("Reshape", check=_check_view)
def _reshape(node: ir.Node) -> Iterator[Step]:
    """Check at run time that a computed shape equals the inferred dims."""
    wanted = operand(node, 1)
    if constant(wanted) is not None:
        return
    kernel = Kernel()
    given = kernel.read(wanted)
    source, target = dims(operand(node, 0)), dims(node.outputs[0])
    refusal = kernel.fail("ValueError", f"{label(node)}: its shape operand is not the shape {_text(target)}")
    for axis, dim in enumerate(target):
        accepted = [f"{given}[{axis}] != {kernel.dim(dim)}", f"{given}[{axis}] != -1"]
        if not int_attr(node, "allowzero", 0) and axis < len(source) and same(source[axis], dim):
            accepted.append(f"{given}[{axis}] != 0")
        kernel.line(f"if ({' && '.join(accepted)}) {refusal}")
    yield kernel.step()


def _check_axes(node: ir.Node) -> None:
    """A call checks that what a Squeeze leaves out is 1."""
    try:
        _check_view(node)
    except Unsupported:
        if node.op_type == "Unsqueeze" or not _knows_axes(node):
            raise


def _knows_axes(node: ir.Node) -> bool:
    return opset(node) < 13 or not has_input(node, 1) or constant(operand(node, 1)) is not None


@view("Squeeze", "Unsqueeze", check=_check_axes)
def _squeeze(node: ir.Node) -> Iterator[Step]:
    """Check at run time that computed axes give the inferred dims."""
    if not _knows_axes(node):
        yield _verify_axes(node)


def _verify_axes(node: ir.Node) -> Step:
    """Compare both shapes: a named axis has size 1 in the longer one, and the shorter one lacks it."""
    short, long = dims(operand(node, 0)), dims(node.outputs[0])
    if node.op_type == "Squeeze":
        short, long = long, short
    kernel = Kernel()
    given, count = kernel.read(operand(node, 1)), kernel.dim(dims(operand(node, 1))[0])
    refusal = kernel.fail(
        "ValueError", f"{label(node)}: its axes do not lead to the shape {_text(dims(node.outputs[0]))}"
    )
    kernel.line(f"int64_t named[{max(len(long), 1)}] = {{0}};")
    with kernel.loop("i", count):
        kernel.line(f"const int64_t axis = {given}[i] < 0 ? {given}[i] + {len(long)} : {given}[i];")
        kernel.line(f"if (axis < 0 || axis >= {len(long)}) {refusal}")
        kernel.line("named[axis] = 1;")
    kernel.line("int64_t left = 0;")
    if short:
        kernel.line(f"const int64_t small[{len(short)}] = {{{', '.join(kernel.dim(d) for d in short)}}};")
    for axis, dim in enumerate(long):
        text = kernel.dim(dim)
        kept = f"left >= {len(short)} || small[left++] != {text}" if short else "1"
        kernel.line(f"if (named[{axis}] ? {text} != 1 : ({kept})) {refusal}")
    kernel.line(f"if (left != {len(short)}) {refusal}")
    return kernel.step()


def _text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _check_dropout(node: ir.Node) -> None:
    _check_view(node)
    if output_used(node, 1) and node.outputs[1].dtype != ir.DataType.BOOL:
        raise Unsupported("the mask is not bool")


@view("Dropout", check=_check_dropout)
def _dropout(node: ir.Node) -> Iterator[Step]:
    """Inference, and a ratio of 0, drop nothing: the mask, if it is used, is true everywhere."""
    if output_used(node, 1):
        kernel = Kernel()
        mask, count = kernel.write(node.outputs[1]), kernel.dim(product(dims(node.outputs[1])))
        kernel.line(f"memset({mask}, 1, (size_t){count});")
        yield kernel.step()


def permutation(node: ir.Node) -> list[int]:
    """The input axis of each output axis of a Transpose."""
    count = rank(operand(node, 0))
    return ints_attr(node, "perm", range(count - 1, -1, -1))


def _check_transpose(node: ir.Node) -> None:
    want_dtypes(node, ALL)
    if sorted(permutation(node)) != list(range(rank(operand(node, 0)))):
        raise Unsupported(f"perm {permutation(node)}")


@loops("Transpose", check=_check_transpose)
def _transpose(node: ir.Node) -> Iterator[Step]:
    source = operand(node, 0)
    yield permuted_copy(source, node.outputs[0], dims(source), permutation(node))


def permuted_copy(source: ir.Value, out: ir.Value, shape: Sequence[Dim], order: Sequence[int]) -> Step:
    """Copy ``source``, seen as ``shape``, to ``out``, whose axes are those of ``shape`` in ``order``."""
    strides = [product(shape[axis + 1 :]) for axis in range(len(shape))]
    return strided_copy(source, out, *_merge_axes(shape, strides, order))


def _merge_axes(
    shape: Sequence[Dim], strides: Sequence[Dim], perm: Sequence[int]
) -> tuple[list[Dim], list[Dim]]:
    """Dims of the output and their strides in the input; axes that stay adjacent are merged."""
    lengths: list[Dim] = []
    steps: list[Dim] = []
    previous = -2
    for axis in perm:
        if shape[axis] == 1:
            continue
        if axis == previous + 1 and lengths:
            lengths[-1] = product((lengths[-1], shape[axis]))
            steps[-1] = strides[axis]
        else:
            lengths.append(shape[axis])
            steps.append(strides[axis])
        previous = axis
    return lengths, steps


_PIECE = 4096  # elements of one row that are copied at once
_TILE = 16  # elements: a tile of 16 lines of 64 bytes stays in the L1 cache


def strided_copy(
    source: ir.Value, out: ir.Value, lengths: Sequence[Dim], strides: Sequence[Dim], start: Dim = 0
) -> Step:
    """Copy elements of ``source`` that are ``strides`` apart to ``out``, row-major over ``lengths``."""
    kernel = Kernel()
    read, write = kernel.read(source), kernel.write(out)
    origin = f"{kernel.dim(start)} + " if start != 0 else ""
    last = len(lengths) - 1
    if last < 0:
        kernel.line(f"{write}[0] = {read}[{origin}0];")
        return kernel.step()
    if last and strides[last] != 1 and strides[last - 1] == 1:
        return _tiled_copy(kernel, source.dtype, (read, write), lengths, strides, origin)
    with ExitStack() as stack:
        for axis in range(last):
            stack.enter_context(_copy_loop(kernel, lengths, axis))
        kernel.line(f"const int64_t from = {origin}{_sum_of(kernel, strides[:last])};")
        kernel.line(f"const int64_t to = {_row_major(kernel, lengths, last)};")
        with kernel.loop("j", kernel.dim(lengths[last])):
            kernel.line(f"{write}[to + j] = {read}[from + j * {kernel.dim(strides[last])}];")
    return kernel.step()


def _tiled_copy(
    kernel: Kernel,
    dtype: ir.DataType | None,
    pointers: tuple[str, str],
    lengths: Sequence[Dim],
    strides: Sequence[Dim],
    origin: str,
) -> Step:
    """Transpose the last two axes in tiles that fit the cache."""
    last, kind, (read, write) = len(lengths) - 1, c_type(dtype), pointers
    kernel.file_scope(tile_source(kind, itemsize(dtype)))
    rows, columns = kernel.dim(lengths[last - 1]), kernel.dim(lengths[last])
    with ExitStack() as stack:
        for axis in range(last - 1):
            stack.enter_context(_copy_loop(kernel, lengths, axis))
        kernel.line(f"const int64_t from = {origin}{_sum_of(kernel, strides[: last - 1])};")
        kernel.line(f"const int64_t to = {_row_major(kernel, lengths, last - 1)};")
        tiles = kernel.loop("r", rows, step=_TILE)
        if last == 1:
            tiles = kernel.parallel("r", lengths[0], product((ELEMENT * _TILE, lengths[1])), step=_TILE)
        stack.enter_context(tiles)
        stack.enter_context(kernel.loop("c", columns, step=_TILE))
        kernel.line(f"const int64_t r1 = r + {_TILE} < {rows} ? r + {_TILE} : {rows};")
        kernel.line(f"const int64_t c1 = c + {_TILE} < {columns} ? c + {_TILE} : {columns};")
        apart = kernel.dim(strides[last])
        target, given = f"{write} + to + r * {columns} + c", f"{read} + from + r + c * {apart}"
        kernel.line(f"farcall_transpose_{kind}(r1 - r, c1 - c, {target}, {columns}, {given}, {apart});")
    return kernel.step()


def _copy_loop(kernel: Kernel, lengths: Sequence[Dim], axis: int) -> AbstractContextManager[None]:
    """The loop over an axis of a copy; threads share the first one."""
    if axis:
        return kernel.loop(f"i{axis}", lengths[axis])
    return kernel.parallel("i0", lengths[0], product((ELEMENT, *lengths[1:])))


def _sum_of(kernel: Kernel, strides: Sequence[Dim]) -> str:
    return " + ".join(f"i{axis} * {kernel.dim(stride)}" for axis, stride in enumerate(strides)) or "0"


def _row_major(kernel: Kernel, lengths: Sequence[Dim], outer: int) -> str:
    """The offset of the row at ``i0, i1, ...``, for the first ``outer`` axes."""
    terms = (f"i{axis} * {kernel.dim(product(lengths[axis + 1 :]))}" for axis in range(outer))
    return " + ".join(terms) or "0"


def _check_concat(node: ir.Node) -> None:
    want_dtypes(node, ALL)
    normalize_axis(int_attr(node, "axis", 1), rank(node.outputs[0]))


@loops("Concat", check=_check_concat)
def _concat(node: ir.Node) -> Iterator[Step]:
    out = node.outputs[0]
    shape = dims(out)
    axis = normalize_axis(int_attr(node, "axis", 1), len(shape))
    outer, row = product(shape[:axis]), product(shape[axis:])
    offset: Dim = 0
    for value in node.inputs:
        if value is None:
            continue
        length = product(dims(value)[axis:])
        yield copy_rows(value, out, outer, length, (length, 0), (row, offset))
        offset = offset + length


def copy_rows(
    source: ir.Value, out: ir.Value, rows: Dim, length: Dim, read: tuple[Dim, Dim], write: tuple[Dim, Dim]
) -> Step:
    """Copy ``rows`` runs of ``length`` elements; ``read`` and ``write`` are (row stride, first offset)."""
    kernel = Kernel()
    p, q, size = kernel.read(source), kernel.write(out), itemsize(out.dtype)
    count, run = kernel.dim_parameter(rows), kernel.dim_parameter(length)
    ends = (kernel.dim_parameter(read[0]), kernel.dim_parameter(read[1]))
    starts = (kernel.dim_parameter(write[0]), kernel.dim_parameter(write[1]))
    kernel.line(f"if ({run} == 0) return;")
    to, origin = f"{q} + {starts[1]}", f"{p} + {ends[1]}"
    if rows == 1:
        with kernel.parallel("i", run, ELEMENT * _PIECE, product((ELEMENT, length)), step=_PIECE):
            kernel.line(f"const int64_t count = {run} - i < {_PIECE} ? {run} - i : {_PIECE};")
            kernel.line(f"memcpy({to} + i, {origin} + i, (size_t)count * {size});")
        return kernel.step()
    with kernel.parallel("i", count, f"{ELEMENT}. * {run}", product((ELEMENT, rows, length))):
        kernel.line(f"memcpy({to} + i * {starts[0]}, {origin} + i * {ends[0]}, (size_t){run} * {size});")
    return kernel.step()


def _check_split(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    shape = dims(operand(node, 0))
    axis = normalize_axis(int_attr(node, "axis", 0), len(shape))
    lengths = [known_dims(out)[axis] for out in node.outputs]
    if differ(sum(lengths[1:], lengths[0]), shape[axis]):
        raise Unsupported(f"parts of {_text(lengths)} do not make up a dim of {shape[axis]}")


@loops("Split", check=_check_split)
def _split(node: ir.Node) -> Iterator[Step]:
    source = operand(node, 0)
    shape = dims(source)
    axis = normalize_axis(int_attr(node, "axis", 0), len(shape))
    outer, row = product(shape[:axis]), product(shape[axis:])
    if opset(node) >= 13 and has_input(node, 1) and constant(operand(node, 1)) is None:
        yield _verify_lengths(node, axis)
    offset: Dim = 0
    for index, out in enumerate(node.outputs):
        length = product(dims(out)[axis:])
        if output_used(node, index):
            yield copy_rows(source, out, outer, length, (row, offset), (length, 0))
        offset = offset + length


def _verify_lengths(node: ir.Node, axis: int) -> Step:
    """Check at run time that computed lengths equal the inferred ones."""
    kernel = Kernel()
    given = kernel.read(operand(node, 1))
    refusal = kernel.fail("ValueError", f"{label(node)}: its lengths are not those that were inferred")
    for index, out in enumerate(node.outputs):
        kernel.line(f"if ({given}[{index}] != {kernel.dim(dims(out)[axis])}) {refusal}")
    return kernel.step()
