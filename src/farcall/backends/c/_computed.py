"""Reshape, Squeeze, Unsqueeze, Slice and Split whose operands are computed, so that the data decides sizes.

The kernels here read the operands at run time, and allocate what these ask for. If the operands are
constants, the modules of the operators have faster kernels, or need none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import onnx_ir as ir

from farcall.backends._ctext import ALL, itemsize
from farcall.backends.c._elements import verify_same
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    has_input,
    int_attr,
    known_dims,
    label,
    normalize_axis,
    operand,
    output_used,
    rank,
    want_dtypes,
)
from farcall.backends.c._registry import allocating, computed, is_late
from farcall.graph.dims import Dim, dims, late, product, same

_INT64 = {ir.DataType.INT64}
_INDICES = {ir.DataType.INT64, ir.DataType.INT32}


def _count(node: ir.Node, index: int) -> int:
    """The number of elements of an operand of rank 1."""
    shape = known_dims(operand(node, index))
    if len(shape) != 1 or not isinstance(shape[0], int):
        raise Unsupported(f"the length of input {index} is known only at run time")
    return shape[0]


def _array(kernel: Kernel, name: str, items: list[str]) -> None:
    kernel.line(f"const int64_t {name}[] = {{{', '.join(items) or '0'}}};")


def _copy(kernel: Kernel, node: ir.Node, q: str) -> None:
    """Copy all elements of the input."""
    x = operand(node, 0)
    total = kernel.dim_parameter(product(dims(x)))
    kernel.line(f"if ({total}) memcpy({q}, {kernel.read(x)}, (size_t){total} * {itemsize(x.dtype)});")


def _is_no_view(node: ir.Node) -> bool:
    """Whether it cannot be seen before the model runs that a Reshape keeps the number of elements."""
    if is_late(node):
        return True
    before, after = (dims(value) for value in (operand(node, 0), node.outputs[0]))
    return not same(product(before), product(after))


def _check_reshape(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    want_dtypes(node, _INT64, 1)
    if _count(node, 1) != rank(node.outputs[0]):
        raise Unsupported(f"a shape of {_count(node, 1)} elements for rank {rank(node.outputs[0])}")


@allocating("Reshape", check=_check_reshape, when=_is_no_view)
def _reshape(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    x, count = operand(node, 0), rank(node.outputs[0])
    given, total = kernel.read(operand(node, 1)), kernel.dim_parameter(product(dims(x)))
    _array(kernel, "size", list(map(kernel.dim, dims(x))))
    kernel.line(f"int64_t want[{max(count, 1)}] = {{0}}, known = 1, hole = -1;\n_Bool wide = 0;")

    def refuse(first: str, *parts: str) -> str:
        return kernel.fail_with("ValueError", f"{label(node)}: its shape {first}", *parts)

    with kernel.loop("i", str(count)):
        kernel.line(f"want[i] = {given}[i];")
        if not int_attr(node, "allowzero", 0):
            missing = refuse("has 0 for axis ", "i", ", which the input lacks")
            kernel.line(f"if (want[i] == 0 && i >= {rank(x)}) {missing}")
            kernel.line("if (want[i] == 0) want[i] = size[i];")
        kernel.line(f"if (want[i] < -1) {refuse('has ', 'want[i]')}")
        kernel.line(f"if (want[i] == -1 && hole >= 0) {refuse('has -1 twice, at axis ', 'i')}")
        kernel.line("if (want[i] == -1) hole = i;")
        kernel.line("else wide |= __builtin_mul_overflow(known, want[i], &known);")
    other = refuse("has ", "known", " elements without -1, and the input has ", total)
    kernel.line(f"if (wide || (hole < 0 && known != {total})) {other}")
    kernel.line(f"if (hole >= 0 && (known == 0 ? {total} != 0 : {total} % known != 0)) {other}")
    made, new = dims(node.outputs[0]), late(node.outputs[0])
    _array(kernel, "made", ["0" if str(dim) in new else kernel.dim(dim) for dim in made])
    # Any number fits where another is 0, also that which the other sizes of the model need.
    kernel.line(f"if (hole >= 0) want[hole] = known == 0 ? made[hole] : {total} / known;")
    _copy(kernel, node, kernel.allocate(node.outputs[0], [f"want[{i}]" for i in range(count)], label(node)))
    yield kernel.step()


def _check_axes(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    want_dtypes(node, _INT64, 1)
    _count(node, 1)


@allocating("Squeeze", "Unsqueeze", check=_check_axes)
def _squeeze(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    x, out = operand(node, 0), node.outputs[0]
    shape, is_squeeze = dims(x), node.op_type == "Squeeze"
    longer = max(len(shape), rank(out))
    given = kernel.read(operand(node, 1))
    _array(kernel, "size", list(map(kernel.dim, shape)))
    kernel.line(f"int64_t named[{max(longer, 1)}] = {{0}}, want[{longer + 1}] = {{0}}, count = 0;")
    with kernel.loop("i", str(_count(node, 1))):
        kernel.index("axis", f"{given}[i]", str(longer), label(node), "its list of axes")
        kernel.line("named[axis] = 1;")
    if is_squeeze:
        with kernel.loop("d", str(longer)):
            wide = (f"{label(node)}: axis ", "d", " has ", "size[d]", " elements; expected 1")
            kernel.line(f"if (named[d] && size[d] != 1) {kernel.fail_with('ValueError', *wide)}")
            kernel.line("if (!named[d]) want[count++] = size[d];")
    else:
        with kernel.loop("d", str(longer)):
            kernel.line(
                f"want[d] = named[d] ? 1 : count < {len(shape)} ? size[count] : 0;\ncount += !named[d];"
            )
    expected = rank(out) if is_squeeze else len(shape)
    parts = (f"{label(node)}: its axes leave ", "count", f" others; expected {expected}")
    kernel.line(f"if (count != {expected}) {kernel.fail_with('ValueError', *parts)}")
    _copy(kernel, node, kernel.allocate(out, [f"want[{i}]" for i in range(rank(out))], label(node)))
    yield kernel.step()


def _lengths(node: ir.Node) -> dict[int, Dim]:
    """How many elements the bounds, axes and steps of a Slice have, some perhaps only when it runs."""
    found = {}
    for index in range(1, 5):
        if has_input(node, index):
            shape = known_dims(operand(node, index))
            if len(shape) != 1:
                raise Unsupported(f"input {index} of rank {len(shape)}; expected 1")
            found[index] = shape[0]
    return found


def _check_slice(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    lengths = _lengths(node)
    for index in lengths:
        want_dtypes(node, _INDICES, index)
    numbers = [size for size in lengths.values() if isinstance(size, int)]
    if len(set(numbers)) > 1:
        raise Unsupported(f"bounds, axes and steps of {', '.join(map(str, numbers))} elements")
    if not has_input(node, 3) and numbers and numbers[0] > rank(operand(node, 0)):
        raise Unsupported(f"slices of {numbers[0]} axes, of rank {rank(operand(node, 0))}")


@allocating("Slice", check=_check_slice, when=computed(1, 2, 3, 4))
def _slice(node: ir.Node) -> Iterator[Step]:
    """Take elements at equal steps of each axis; starts and ends outside of an axis are clamped to it."""
    kernel = Kernel()
    x, count = operand(node, 0), rank(operand(node, 0))
    p = kernel.read(x)
    _array(kernel, "size", list(map(kernel.dim, dims(x))))
    kernel.line(
        f"int64_t first[{count + 1}] = {{0}}, step[{count + 1}], want[{count + 1}], pitch[{count + 1}];"
    )
    kernel.line(f"pitch[{max(count - 1, 0)}] = 1;")
    kernel.line(f"for (int64_t d = {count - 2}; d >= 0; --d) pitch[d] = pitch[d + 1] * size[d + 1];")
    with kernel.loop("d", str(count)):
        kernel.line("step[d] = 1, want[d] = size[d];")
    with kernel.loop("i", _verified_length(kernel, node, count)):
        _read_slice(kernel, node, count)
    q = kernel.allocate(node.outputs[0], [f"want[{i}]" for i in range(count)], label(node))
    _write_slice(kernel, count, p, q)
    yield kernel.step()


def _verified_length(kernel: Kernel, node: ir.Node, most: int) -> Dim:
    """Write the checks that the bounds of a Slice are as many as its axes; returns how many they are."""
    lengths = _lengths(node)
    count = min(lengths.values(), key=lambda size: not isinstance(size, int))
    for index, size in lengths.items():
        if not isinstance(size, int):
            verify_same(kernel, node, f"input {index}", [size], [count])
    if not isinstance(count, int) and not has_input(node, 3):
        n = kernel.dim(count)
        parts = (f"{label(node)}: bounds of ", n, f" axes; expected at most {most}")
        kernel.line(f"if ({n} > {most}) {kernel.fail_with('ValueError', *parts)}")
    return count


def _read_slice(kernel: Kernel, node: ir.Node, count: int) -> None:
    """Read the bounds of one axis."""
    start, end = (f"{kernel.read(operand(node, index))}[i]" for index in (1, 2))
    if has_input(node, 3):
        kernel.index(
            "axis", f"{kernel.read(operand(node, 3))}[i]", str(count), label(node), "its list of axes"
        )
    else:
        kernel.line("const int64_t axis = i;")
    by = f"{kernel.read(operand(node, 4))}[i]" if has_input(node, 4) else "1"
    kernel.line(f"const int64_t n = size[axis];\nint64_t from = {start}, to = {end}, by = {by};")
    zero = kernel.fail_with("ValueError", f"{label(node)}: axis ", "axis", " has a step of 0")
    kernel.line(f"if (by == 0) {zero}")
    kernel.line("by = by > n + 1 ? n + 1 : by < -n - 1 ? -n - 1 : by;")  # further, one element is taken
    kernel.line("const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;")
    for name in ("from", "to"):
        kernel.line(f"if ({name} < 0) {name} += n;")
        kernel.line(f"{name} = {name} < low ? low : {name} > high ? high : {name};")
    kernel.line("if (from < 0 && n) from = 0;")  # by < 0: ONNX takes the first element
    kernel.line("const int64_t length = by > 0 ? (to - from + by - 1) / by : (from - to - by - 1) / -by;")
    kernel.line("first[axis] = from, step[axis] = by, want[axis] = length > 0 ? length : 0;")


def _write_slice(kernel: Kernel, count: int, p: str, q: str) -> None:
    if not count:
        kernel.line(f"{q}[0] = {p}[0];")
        return
    kernel.line("int64_t to = 0;")
    last = count - 1
    with ExitStack() as stack:
        at = []
        for axis in range(last):
            stack.enter_context(kernel.loop(f"i{axis}", f"want[{axis}]"))
            at.append(f"(first[{axis}] + i{axis} * step[{axis}]) * pitch[{axis}]")
        kernel.line(f"const int64_t from = {' + '.join([*at, f'first[{last}]'])};")
        with kernel.block(f"if (step[{last}] == 1)"), kernel.loop("j", f"want[{last}]"):
            kernel.line(f"{q}[to + j] = {p}[from + j];")
        with kernel.block("else"), kernel.loop("j", f"want[{last}]"):
            kernel.line(f"{q}[to + j] = {p}[from + j * step[{last}]];")
        kernel.line(f"to += want[{last}];")


def _check_split(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    normalize_axis(int_attr(node, "axis", 0), rank(operand(node, 0)))
    if not has_input(node, 1):
        raise Unsupported("its lengths are not known before the model runs")
    want_dtypes(node, _INT64, 1)
    if _count(node, 1) != len(node.outputs):
        raise Unsupported(f"{_count(node, 1)} lengths for {len(node.outputs)} outputs")


@allocating("Split", check=_check_split)
def _split(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    x = operand(node, 0)
    shape = dims(x)
    axis = normalize_axis(int_attr(node, "axis", 0), len(shape))
    p, given, whole = kernel.read(x), kernel.read(operand(node, 1)), kernel.dim(shape[axis])
    outer, inner = kernel.dim(product(shape[:axis])), kernel.dim(product(shape[axis + 1 :]))
    kernel.line(f"int64_t left = {whole};")
    with kernel.loop("i", str(len(node.outputs))):
        parts = (f"{label(node)}: a length of ", f"{given}[i]", ", and ", "left", " elements are left")
        kernel.line(f"if ({given}[i] < 0 || {given}[i] > left) {kernel.fail_with('ValueError', *parts)}")
        kernel.line(f"left -= {given}[i];")
    rest = (f"{label(node)}: its lengths leave ", "left", f" elements of axis {axis}")
    kernel.line(f"if (left) {kernel.fail_with('ValueError', *rest)}")
    kernel.line("int64_t first = 0;")
    for index, out in enumerate(node.outputs):
        length = f"{given}[{index}]"
        if output_used(node, index):
            sizes = [length if i == axis else kernel.dim(dim) for i, dim in enumerate(shape)]
            q = kernel.allocate(out, sizes, label(node))
            run = f"{length} * {inner}"
            with kernel.block(f"for (int64_t i = 0; i < {outer} && {run} > 0; ++i)"):
                origin = f"{p} + (i * {whole} + first) * {inner}"
                kernel.line(f"memcpy({q} + i * {run}, {origin}, (size_t)({run}) * {itemsize(out.dtype)});")
        kernel.line(f"first += {length};")
    yield kernel.step()
