"""Attention: a product, elementwise nodes, a softmax and another product, for some rows of queries at a time.

The scores of these rows stay in the caches. All scores, whose number grows with the square of the length of
a text, are never in memory.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_type
from farcall.backends.c._elementwise import emit_element, loaded
from farcall.backends.c._fusion import Group
from farcall.backends.c._gemm import ZERO, call_gemm, declare_indices, plain_left, plain_right
from farcall.backends.c._gemm_text import FEW
from farcall.backends.c._gemm_tile_text import GROUP
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._matmul import batch_offset
from farcall.backends.c._node import constant, flattened_extents, operand, rank
from farcall.backends.c._packed import is_packed
from farcall.backends.c._parallel import ELEMENT, FUNCTION
from farcall.backends.c._softmax import powers_in_place
from farcall.graph.dims import Dim, ceildiv, dims, late, product

_SCORES = 1 << 16  # of a block of queries: with keys and values, they fit an L2 cache
_TILES = 4 * GROUP  # rows of a block are a multiple of this
_ROWS = 4 * _TILES  # of a block, if the number of keys is not known


@dataclass(frozen=True)
class Attention:
    """The nodes from the product of queries and keys to that of the softmax and the values."""

    scores: ir.Node
    before: Sequence[ir.Node]  # elementwise, before the softmax
    softmax: ir.Node
    after: Sequence[ir.Node]  # and after it
    last: ir.Node
    root: Mapping[ir.Value, ir.Value]

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """All of them, in their order."""
        return (self.scores, *self.before, self.softmax, *self.after, self.last)

    def step(self) -> Step:
        """The kernel of them all."""
        kernel = Kernel()
        dtype = self.last.outputs[0].dtype
        assert dtype is not None  # noqa: S101 - of a product
        *batch, queries, length = dims(self.scores.outputs[0])
        rows = _rows(queries, length)
        scores = kernel.scratch(dtype, product((rows, length)))
        blocks, deep = ceildiv(queries, rows), dims(operand(self.scores, 0))[-1]
        wide = dims(self.last.outputs[0])[-1]
        cost = product((rows, length, deep + wide + FUNCTION + ELEMENT))
        names = [f"i{axis}" for axis in range(len(batch))]
        with kernel.parallel("part", product((*batch, blocks)), cost):
            declare_indices(kernel, "part", [*zip(names, batch, strict=True), ("block", blocks)])
            most = kernel.dim(queries)
            kernel.line(f"const int64_t r0 = block * {rows};")
            kernel.line(f"const int64_t count = {most} - r0 < {rows} ? {most} - r0 : {rows};")
            size = most if blocks == 1 else "count"
            table, target = (scores, kernel.dim(length)), (self._target(kernel), kernel.dim(wide))
            self._product(kernel, self.scores, self._queries(kernel), table, size, rows)
            self._softmax_of_rows(kernel, scores, names)
            self._product(kernel, self.last, scores, target, size, rows)
        return kernel.step()

    def _queries(self, kernel: Kernel) -> str:
        """C: a pointer to the queries of the block."""
        queries = operand(self.scores, 0)
        *batch, count, deep = dims(queries)
        offset = batch_offset(kernel, batch, dims(self.scores.outputs[0])[:-2], product((count, deep)))
        return f"{kernel.read(queries)} + {offset} + r0 * {kernel.dim(deep)}"

    def _target(self, kernel: Kernel) -> str:
        """C: a pointer to the rows of the output that the block makes."""
        out = self.last.outputs[0]
        *batch, count, wide = dims(out)
        offset = batch_offset(kernel, batch, batch, product((count, wide)))
        return f"{kernel.write(out)} + {offset} + r0 * {kernel.dim(wide)}"

    def _product(
        self, kernel: Kernel, node: ir.Node, left: str, target: tuple[str, str], size: str, most: int
    ) -> None:
        """Write the product of ``size`` rows, at ``most`` so many, and the second operand of ``node``."""
        second, out = operand(node, 1), node.outputs[0]
        *batch, deep, wide = dims(second)
        offset = batch_offset(kernel, batch, dims(out)[:-2], product((deep, wide)))
        right = plain_right(out.dtype, f"{kernel.read(second)} + {offset}", kernel.dim(wide))
        sizes = [size, kernel.dim(wide), kernel.dim(deep)]
        call_gemm(kernel, out.dtype, sizes, plain_left(left, sizes[2]), right, target, ZERO, most=most)

    def _softmax_of_rows(self, kernel: Kernel, scores: str, names: Sequence[str]) -> None:
        source, weights = self.scores.outputs[0], self.softmax.outputs[0]
        length, kind = kernel.dim(dims(source)[-1]), c_type(source.dtype)
        places = [*names, "query", "s"]
        with kernel.loop("r", "count"):
            kernel.line(f"{kind}* const row = {scores} + r * {length};")
            if self.before or self.after:
                kernel.line("const int64_t query = r0 + r;")
            if self.before:
                with kernel.loop("s", length):
                    self._element(kernel, self.before, (source, "row[s]"), operand(self.softmax, 0), places)
            kernel.line(f"const {kind} share = {powers_in_place(kernel, source.dtype, 'row', length)};")
            with kernel.loop("s", length):
                self._element(kernel, self.after, (weights, "row[s] * share"), operand(self.last, 0), places)

    def _element(
        self,
        kernel: Kernel,
        nodes: Sequence[ir.Node],
        given: tuple[ir.Value, str],
        made: ir.Value,
        places: Sequence[str],
    ) -> None:
        """Write what the nodes make of an element of a row, as :func:`emit_element`."""
        text = given[1]
        if nodes:
            out = self.root.get(made, made)
            text = emit_element(
                kernel, nodes, self.root, given, out, lambda view: _place(kernel, view, places)
            )
        kernel.line(f"row[s] = {text};")


def _rows(queries: Dim, length: Dim) -> int:
    """How many queries a block has: all of them, or nearly equal numbers."""
    most = _ROWS
    if isinstance(length, int):
        most = max(_TILES, _SCORES // max(1, length) // _TILES * _TILES)
    if not isinstance(queries, int):
        return most
    blocks = -(-queries // most)
    return max(1, queries if blocks <= 1 else -(-queries // (blocks * _TILES)) * _TILES)


def _place(kernel: Kernel, view: Sequence[Dim], places: Sequence[str]) -> str:
    """C: the place of an element, whose indices are ``places``, in an operand that broadcasts by ``view``."""
    terms: list[str] = []
    scale: Dim = 1
    for dim, index in zip(reversed(view), reversed(places), strict=False):
        if dim != 1:
            terms.append(index if scale == 1 else f"{index} * {kernel.dim(scale)}")
            scale = product((scale, dim))
    return " + ".join(terms) or "0"


def attentions(
    groups: Sequence[Group],
    root: Mapping[ir.Value, ir.Value],
    readers: Mapping[ir.Value, set[int]],
    kept: Container[ir.Value],
    ends: Mapping[int, set[ir.Value]],
) -> Iterator[tuple[Attention, set[int]]]:
    """The attentions among the groups, with the numbers of the groups that each of them computes.

    ``ends`` are the values that an elementwise group must store. The largest number is that of the last
    product: a kernel in its place finds all that it reads.
    """
    finder = _Finder(groups, root, readers, kept, ends)
    for number, item in enumerate(groups):
        if _is(item.nodes[0], "Softmax") and (found := finder.around(number)) is not None:
            yield found


@dataclass(frozen=True)
class _Finder:
    groups: Sequence[Group]
    root: Mapping[ir.Value, ir.Value]
    readers: Mapping[ir.Value, set[int]]
    kept: Container[ir.Value]
    ends: Mapping[int, set[ir.Value]]

    @cached_property
    def makers(self) -> dict[ir.Value, int]:
        """Value -> the group that makes it."""
        return {out: i for i, item in enumerate(self.groups) for node in item.nodes for out in node.outputs}

    def around(self, number: int) -> tuple[Attention, set[int]] | None:
        """The attention of the softmax that is this group, if it is one of an attention."""
        softmax = self.groups[number].nodes[0]
        made, weights = self._root(operand(softmax, 0)), softmax.outputs[0]
        maker, last = self.makers.get(made), self._reader(weights)
        if maker is None or last is None or self._reader(made) != number:
            return None
        numbers = {maker, number, last}
        before: Sequence[ir.Node] = ()
        after: Sequence[ir.Node] = ()
        if maker in self.ends:
            before = self.groups[maker].nodes
            products = [out for out in self._sources(maker) if self._is_made_by(out, "MatMul")]
            if not products or self.ends[maker] != {made}:
                return None
            made = products[0]
            numbers.add(self.makers[made])
        if last in self.ends:
            after = self.groups[last].nodes
            if weights not in self._sources(last) or len(self.ends[last]) != 1:
                return None
            (weights,) = self.ends[last]
            last = self._reader(weights)
            if last is None:
                return None
            numbers.add(last)
        scores = made.producer()
        if scores is None:
            return None
        attention = Attention(scores, before, softmax, after, self.groups[last].nodes[0], self.root)
        return (attention, numbers) if self._fits(attention, weights) else None

    def _root(self, value: ir.Value) -> ir.Value:
        return self.root.get(value, value)

    def _reader(self, value: ir.Value) -> int | None:
        """The only group that reads a value, if nothing else does."""
        readers = self.readers.get(value, set())
        return next(iter(readers)) if len(readers) == 1 and value not in self.kept else None

    def _is_made_by(self, value: ir.Value, kind: str) -> bool:
        return value in self.makers and _is(self.groups[self.makers[value]].nodes[0], kind)

    def _sources(self, number: int) -> list[ir.Value]:
        """The values that only this elementwise group reads, each element once, for the same place."""
        nodes = self.groups[number].nodes
        operands = loaded(nodes, self.root)
        if any(is_packed(value) for value, _ in operands):
            return []
        shape, values = dims(nodes[0].outputs[0]), [value for value, _ in operands]
        return [
            value
            for value, view in operands
            if values.count(value) == 1 and view == shape == dims(value) and self._reader(value) == number
        ]

    def _fits(self, attention: Attention, weights: ir.Value) -> bool:
        """Whether the nodes have the shapes of an attention, and no operand that a product reads packed.

        ``weights`` is what the last product must read as its first operand.
        """
        scores, softmax, last = attention.scores, attention.softmax, attention.last
        if not (_is(scores, "MatMul") and _is(last, "MatMul")):
            return False
        made, out, shape = scores.outputs[0], last.outputs[0], dims(scores.outputs[0])
        given = [operand(scores, 0), operand(scores, 1), operand(last, 0), operand(last, 1)]
        values = [*given, made, operand(softmax, 0), softmax.outputs[0], out]
        if any(value.dtype != made.dtype or rank(value) != len(shape) for value in values):
            return False
        _, length, inner = flattened_extents(softmax)
        return (
            made.dtype in FLOATS
            and self._root(given[2]) is weights is not self._root(given[3])
            and dims(given[2]) == dims(softmax.outputs[0]) == dims(operand(softmax, 0)) == shape
            and (length, inner) == (shape[-1], 1)
            and dims(out)[:-2] == shape[:-2]
            and all(constant(value) is None for value in given)
            and not any(map(late, values))
            and not (isinstance(shape[-2], int) and shape[-2] <= FEW)
        )


def _is(node: ir.Node, kind: str) -> bool:
    return node.op_type == kind and node.domain in ("", "ai.onnx")
