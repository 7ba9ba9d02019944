"""GatherND, ScatterND and TensorScatter: indices of whole slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from farcall.backends._ctext import ALL
from farcall.backends.c._elements import check_reduction, copy_all, reduced, verify_same, want_same
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import shared
from farcall.backends.c._node import (
    Unsupported,
    has_input,
    int_attr,
    label,
    normalize_axis,
    operand,
    rank,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.graph.dims import Dim, dims, product

_INT64 = {ir.DataType.INT64}


def _tuple(node: ir.Node, batch: int) -> int:
    """How many axes the indices choose, after ``batch`` others."""
    data, indices = dims(operand(node, 0)), dims(operand(node, 1))
    count = indices[-1] if indices else None
    if not isinstance(count, int):
        raise Unsupported("how many axes the indices choose is not known before the model runs")
    if batch < 0 or batch >= len(indices) or batch + count > len(data):
        raise Unsupported(f"{count} indices after {batch} axes, of rank {len(data)}")
    return count


def _place(kernel: Kernel, node: ir.Node, batch: int, count: int, tuple_at: str) -> str:
    """Write the checks of one tuple of indices; returns the offset of its slice."""
    shape, n = dims(operand(node, 0)), kernel.read(operand(node, 1))
    terms: list[str] = []
    for number in range(count):
        axis = batch + number
        value, size = f"{n}[{tuple_at} + {number}]", kernel.dim(shape[axis])
        kernel.index(f"r{number}", value, size, label(node), f"axis {axis}")
        terms.append(f"r{number} * {kernel.dim(product(shape[axis + 1 :]))}")
    return " + ".join(terms) or "0"


def _check_gather(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    want_dtypes(node, _INT64, 1)
    batch = int_attr(node, "batch_dims", 0)
    _tuple(node, batch)
    want_same("the indices' batch", dims(operand(node, 1))[:batch], dims(operand(node, 0))[:batch])


@loops("GatherND", check=_check_gather)
def _gather(node: ir.Node) -> Iterator[Step]:
    data, indices = dims(operand(node, 0)), dims(operand(node, 1))
    batch = int_attr(node, "batch_dims", 0)
    count = _tuple(node, batch)
    kernel = Kernel()
    p, q = kernel.read(operand(node, 0)), kernel.write(node.outputs[0])
    verify_same(kernel, node, "the indices' batch", indices[:batch], data[:batch])
    tuples = kernel.dim(product(indices[batch:-1]))
    block, inner = kernel.dim(product(data[batch:])), kernel.dim(product(data[batch + count :]))
    places: list[tuple[str, Dim, int]] = [
        ("i", product(data[:batch]), 1),
        ("j", product(indices[batch:-1]), 1),
    ]
    with shared(kernel, places, product((ELEMENT, *data[batch + count :]))):
        kernel.line(f"const int64_t at = i * {tuples} + j;")
        place = _place(kernel, node, batch, count, f"at * {count}")
        kernel.line(f"const int64_t from = i * {block} + {place};")
        with kernel.loop("k", inner):
            kernel.line(f"{q}[at * {inner} + k] = {p}[from + k];")
    yield kernel.step()


def _update_dims(node: ir.Node) -> Sequence[Dim]:
    return [*dims(operand(node, 1))[:-1], *dims(operand(node, 0))[_tuple(node, 0) :]]


def _check_scatter(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    want_dtypes(node, _INT64, 1)
    check_reduction(node)
    want_same("the updates", dims(operand(node, 2)), _update_dims(node))


@loops("ScatterND", check=_check_scatter)
def _scatter(node: ir.Node) -> Iterator[Step]:
    """Slices are replaced one after the other: of two for one place, the last stays."""
    data, indices, count = dims(operand(node, 0)), dims(operand(node, 1)), _tuple(node, 0)
    kernel = Kernel()
    copy_all(kernel, node)
    u, q = kernel.read(operand(node, 2)), kernel.write(node.outputs[0])
    verify_same(kernel, node, "the updates", dims(operand(node, 2)), _update_dims(node))
    inner = kernel.dim(product(data[count:]))
    with kernel.loop("i", product(indices[:-1])):
        kernel.line(f"const int64_t to = {_place(kernel, node, 0, count, f'i * {count}')};")
        with kernel.loop("k", inner):
            new = f"{u}[i * {inner} + k]"
            kernel.line(f"{q}[to + k] = {reduced(node, f'{q}[to + k]', new)};")
    yield kernel.step()


def _cache_axis(node: ir.Node) -> int:
    return normalize_axis(int_attr(node, "axis", -2), rank(operand(node, 0)))


def _check_cache(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    if has_input(node, 2):
        want_dtypes(node, _INT64, 2)
        want_same("the write indices", dims(operand(node, 2)), dims(operand(node, 0))[:1])
    if str_attr(node, "mode", "linear") not in ("linear", "circular"):
        raise Unsupported(f"mode `{str_attr(node, 'mode', 'linear')}`")
    cache, update, axis = dims(operand(node, 0)), dims(operand(node, 1)), _cache_axis(node)
    if axis == 0:
        raise Unsupported("axis 0, which is the batch")
    want_same("the update", [*update[:axis], *update[axis + 1 :]], [*cache[:axis], *cache[axis + 1 :]])


@loops("TensorScatter", check=_check_cache)
def _tensor_scatter(node: ir.Node) -> Iterator[Step]:
    """Each sample of the batch writes its rows from its own index on."""
    cache, update, axis = dims(operand(node, 0)), dims(operand(node, 1)), _cache_axis(node)
    kernel = Kernel()
    copy_all(kernel, node)
    u, q = kernel.read(operand(node, 1)), kernel.write(node.outputs[0])
    others = [i for i in range(len(cache)) if i != axis]
    verify_same(kernel, node, "the update", [update[i] for i in others], [cache[i] for i in others])
    most, rows = kernel.dim(cache[axis]), kernel.dim(update[axis])
    heads, inner = kernel.dim(product(cache[1:axis])), kernel.dim(product(cache[axis + 1 :]))
    parts = (f"{label(node)}: rows for ", rows, " of the ", most, f" elements of axis {axis}")
    kernel.line(f"if ({rows} > {most}) {kernel.fail_with('ValueError', *parts)}")
    with kernel.loop("b", cache[0]):
        _start(kernel, node, most, rows, axis)
        with kernel.loop("h", heads), kernel.loop("s", rows):
            row = f"start < {most} - s ? start + s : start + s - {most}"
            kernel.line(f"const int64_t line = b * {heads} + h, row = {row};")
            to, origin = f"(line * {most} + row) * {inner}", f"(line * {rows} + s) * {inner}"
            with kernel.loop("k", inner):
                kernel.line(f"{q}[{to} + k] = {u}[{origin} + k];")
    yield kernel.step()


def _start(kernel: Kernel, node: ir.Node, most: str, rows: str, axis: int) -> None:
    """Declare ``start``, the first row that a sample writes."""
    if not has_input(node, 2):
        kernel.line("const int64_t start = 0;")
        return
    verify_same(kernel, node, "the write indices", dims(operand(node, 2)), dims(operand(node, 0))[:1])
    given = f"{kernel.read(operand(node, 2))}[b]"
    if str_attr(node, "mode", "linear") == "circular":
        kernel.line(f"const int64_t rest = {most} ? {given} % {most} : 0;")
        kernel.line(f"const int64_t start = rest < 0 ? rest + {most} : rest;")
        return
    parts = (
        f"{label(node)}: write index ", given, f" is outside of axis {axis}, which has ", most,
        " elements, for ", rows, " rows",
    )  # fmt: skip
    kernel.line(f"const int64_t start = {given};")
    kernel.line(f"if (start < 0 || start > {most} - {rows}) {kernel.fail_with('IndexError', *parts)}")
