"""Operators that select elements by their values: as many as the data has, which the kernels count first."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import ALL, FLOATS, c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    extents,
    int_attr,
    label,
    normalize_axis,
    operand,
    output_used,
    rank,
    want_dtypes,
)
from farcall.backends.c._registry import allocating, always
from farcall.backends.c._sorting import sort_indices
from farcall.graph.dims import Dim, dims, product


def _check_nonzero(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)


@allocating("NonZero", check=_check_nonzero, when=always)
def _nonzero(node: ir.Node) -> Iterator[Step]:
    """A row of indices for each axis, in row-major order of the elements."""
    x, out = operand(node, 0), node.outputs[0]
    shape = dims(x)
    kernel = Kernel()
    p, total = kernel.read(x), kernel.dim_parameter(product(shape))
    kernel.line("int64_t count = 0;")
    with kernel.loop("i", total):
        kernel.line(f"count += {p}[i] != 0;")
    q = kernel.allocate(out, [str(len(shape)), "count"], label(node))
    if not shape:  # no row
        yield kernel.step()
        return
    kernel.line(f"int64_t at[{len(shape)}] = {{0}};")
    sizes: list[Dim] = list(shape)
    kernel.line(f"const int64_t size[] = {{{', '.join(map(kernel.dim_parameter, sizes))}}};")
    kernel.line("int64_t k = 0;")
    with kernel.block(f"for (int64_t i = 0; i < {total} && k < count; ++i)"):
        with kernel.block(f"if ({p}[i] != 0)"):
            kernel.line(f"for (int64_t d = 0; d < {len(shape)}; ++d) {q}[d * count + k] = at[d];\n++k;")
        kernel.line(f"for (int64_t d = {len(shape) - 1}; d >= 0 && ++at[d] == size[d]; --d) at[d] = 0;")
    yield kernel.step()


def _check_compress(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    want_dtypes(node, {ir.DataType.BOOL}, 1)
    if rank(operand(node, 1)) != 1:
        raise Unsupported(f"a condition of rank {rank(operand(node, 1))}")
    _extents(node)


def _extents(node: ir.Node) -> tuple[Dim, Dim, Dim]:
    """The number of elements before the axis, along it, and after it; without an axis, all are along it."""
    shape = dims(operand(node, 0))
    if "axis" not in node.attributes:
        return 1, product(shape), 1
    return extents(shape, normalize_axis(int_attr(node, "axis", 0), len(shape)))


def _sizes(kernel: Kernel, node: ir.Node, count: str) -> list[str]:
    """The sizes of an output that has ``count`` slices of the input."""
    shape = dims(operand(node, 0))
    if "axis" not in node.attributes:
        return [count]
    axis = normalize_axis(int_attr(node, "axis", 0), len(shape))
    return [count if i == axis else kernel.dim(dim) for i, dim in enumerate(shape)]


@allocating("Compress", check=_check_compress, when=always)
def _compress(node: ir.Node) -> Iterator[Step]:
    """Keep the slices for which the condition is true, which may be shorter than the axis."""
    outer, along, inner = _extents(node)
    kernel = Kernel()
    p, chosen = kernel.read(operand(node, 0)), kernel.read(operand(node, 1))
    length, run = kernel.dim(along), kernel.dim(inner)
    given = kernel.dim(dims(operand(node, 1))[0])
    kernel.line("int64_t count = 0;")
    with kernel.loop("i", given):
        parts = (f"{label(node)}: its condition chooses slice ", "i", " of ", length)
        kernel.line(f"if ({chosen}[i] && i >= {length}) {kernel.fail_with('IndexError', *parts)}")
        kernel.line(f"count += {chosen}[i] != 0;")
    q = kernel.allocate(node.outputs[0], _sizes(kernel, node, "count"), label(node))
    kernel.line(f"const int64_t last = {given} < {length} ? {given} : {length};\nint64_t to = 0;")
    with kernel.loop("o", outer), kernel.loop("i", "last"), kernel.block(f"if ({chosen}[i])"):
        with kernel.loop("k", run):
            kernel.line(f"{q}[to + k] = {p}[(o * {length} + i) * {run} + k];")
        kernel.line(f"to += {run};")
    yield kernel.step()


def _check_unique(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    _extents(node)


def _comparison(dtype: ir.DataType) -> tuple[str, str]:
    """The name and the C text of a function that compares two slices; NaN comes last, as in numpy."""
    kind, name = c_type(dtype), f"farcall_compare_{dtype.name.lower()}"
    less, more = "x < y", "x > y"
    if dtype in FLOATS:
        less, more = "x < y || (x == x && y != y)", "x > y || (x != x && y == y)"
    return (
        name,
        f"""static int {name}(
    const {kind}* p, int64_t n, int64_t outer, int64_t inner, int64_t a, int64_t b) {{
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t k = 0; k < inner; ++k) {{
      const {kind} x = p[(o * n + a) * inner + k], y = p[(o * n + b) * inner + k];
      if ({less}) return -1;
      if ({more}) return 1;
    }}
  return 0;
}}""",
    )


@allocating("Unique", check=_check_unique, when=always)
def _unique(node: ir.Node) -> Iterator[Step]:
    """Sort the slices, which brings equal ones together, and number them in the order of the output."""
    outer, along, inner = _extents(node)
    kernel = Kernel()
    x = operand(node, 0)
    p, n = kernel.read(x), kernel.dim_parameter(along)
    assert x.dtype is not None  # noqa: S101 - checked before
    name, text = _comparison(x.dtype)
    kernel.file_scope(text)
    compare = f"{name}({p}, {n}, {kernel.dim(outer)}, {kernel.dim(inner)}, {{b}}, {{a}})"
    order, spare, group, first = (kernel.scratch(ir.DataType.INT64, along) for _ in range(4))
    with kernel.loop("i", n):
        kernel.line(f"{order}[i] = i;")
    found = sort_indices(kernel, order, spare, n, f"{compare} < 0")
    # `group` has the number of each slice, and `first` the first slice of each number.
    kernel.line("int64_t count = 0;")
    with kernel.loop("i", n):
        same = compare.format(a=f"{found}[i - 1]", b=f"{found}[i]")
        kernel.line(f"if (i == 0 || {same} != 0) {first}[count++] = {found}[i];")
        kernel.line(f"{group}[{found}[i]] = count - 1;")
    if not int_attr(node, "sorted", 1):
        _number_by_place(kernel, n, group, first)
    _write_unique(kernel, node, group, first)
    yield kernel.step()


def _number_by_place(kernel: Kernel, n: str, group: str, first: str) -> None:
    """Renumber the groups in the order of their first slices; the sorted order is no longer needed."""
    kernel.line("int64_t next = 0;")
    with kernel.loop("i", n):
        kernel.line(f"if ({first}[{group}[i]] == i) other[{group}[i]] = next++;")
    with kernel.loop("i", n):
        kernel.line(f"{group}[i] = other[{group}[i]];")
    kernel.line(f"for (int64_t i = {n} - 1; i >= 0; --i) {first}[{group}[i]] = i;")


def _write_unique(kernel: Kernel, node: ir.Node, group: str, first: str) -> None:
    outer, along, inner = map(kernel.dim, _extents(node))
    shapes = (_sizes(kernel, node, "count"), ["count"], [along], ["count"])
    outs = [
        kernel.allocate(out, sizes, label(node)) if output_used(node, index) else ""
        for index, (out, sizes) in enumerate(zip(node.outputs, shapes, strict=False))
    ]
    values, places, inverse, counts = (*outs, "", "", "")[:4]
    if values:
        p = kernel.read(operand(node, 0))
        with kernel.loop("o", outer), kernel.loop("g", "count"), kernel.loop("k", inner):
            source = f"{p}[(o * {along} + {first}[g]) * {inner} + k]"
            kernel.line(f"{values}[(o * count + g) * {inner} + k] = {source};")
    if places or counts:
        with kernel.loop("g", "count"):
            kernel.line(f"{places}[g] = {first}[g];" if places else "")
            kernel.line(f"{counts}[g] = 0;" if counts else "")
    if inverse or counts:
        with kernel.loop("i", along):
            kernel.line(f"{inverse}[i] = {group}[i];" if inverse else "")
            kernel.line(f"++{counts}[{group}[i]];" if counts else "")
