"""A partition as a diagram: data from which pictures are drawn, without the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.drawing._diagram import Area, Box, Diagram, Value, Wire
from farcall.graph._annotate import describe_node, describe_value
from farcall.graph._expand import origin
from farcall.graph._region import Match, reads
from farcall.graph.dims import dtype_name

if TYPE_CHECKING:
    from farcall.graph._partition import Body, Partition


def diagram(partition: Partition) -> Diagram:
    """The boxes, wires and regions of a partition. A constant is named where it is read, and has no box."""
    return _Maker(partition).diagram()


class _Maker:
    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._areas: list[Area] = []
        self._boxes: list[Box] = []
        self._wires: dict[Wire, None] = {}
        self._values: dict[ir.Value, int] = {}
        self._makers: dict[ir.Value | None, int] = {}

    def diagram(self) -> Diagram:
        graph = self._partition.model.graph
        for value in graph.inputs:
            self._add(_terminal(value, output=False), (), (value,))
        self._add_regions(self._partition)
        for value in graph.outputs:
            self._add(_terminal(value, output=True), (value,), ())
        return Diagram(
            graph.name or "graph",
            tuple(self._boxes),
            tuple(self._wires),
            tuple(map(_describe, self._values)),
            tuple(self._areas),
            dict(self._partition.colors),
        )

    def _add_regions(self, partition: Partition) -> None:
        for region in partition.regions:
            bodies = partition.inside.get(region.name, ())
            for body in bodies:
                self._add_body(region.nodes[0], body)
            index = len(self._areas)
            self._areas.append(Area(region.name, region.backend, len(region.nodes)))
            given = [value for body in bodies for value in body.partition.model.graph.outputs]
            for match in region.matches:
                read = dict.fromkeys([*given, *(value for node in match.nodes for value in reads(node))])
                made = [value for node in match.nodes for value in node.outputs]
                self._add(Box(_lines(match), index, self._about(partition, match)), read, made)

    def _add_body(self, node: ir.Node, body: Body) -> None:
        """The graph inside of a node, before it. The node's last operands enter it, and what it captures."""
        inputs = list(body.partition.model.graph.inputs)
        own, captured = inputs[: len(inputs) - len(body.captured)], inputs[len(inputs) - len(body.captured) :]
        outer = [*zip(captured, body.captured, strict=True)]
        for inner, value in [*outer, *zip(reversed(own), reversed(node.inputs), strict=False)]:
            if value in self._makers:
                self._makers[inner] = self._makers[value]
        self._add_regions(body.partition)

    def _about(self, partition: Partition, match: Match) -> str:
        """The nodes of a match, and what kept other backends from them."""
        answers = partition.answers
        said = dict.fromkeys(answer for node in match.nodes for answer in answers.get(node, ()))
        reasons = (f"{one.backend} {one.said}: {one.text}" for one in said)
        origins = dict.fromkeys(filter(None, map(origin, match.nodes)))
        whole = (f"from the definition of `{name}`" for name in origins)
        return "\n".join([*map(describe_node, match.nodes), *whole, *reasons])

    def _add(self, box: Box, read: Iterable[ir.Value], made: Iterable[ir.Value]) -> None:
        index = len(self._boxes)
        self._boxes.append(box)
        for value in read:
            maker = self._makers.get(value)  # None: a constant, or a value inside of a match
            if maker is not None:
                number = self._values.setdefault(value, len(self._values))
                self._wires[Wire(maker, index, number)] = None
        self._makers.update(dict.fromkeys(made, index))


def _lines(match: Match) -> tuple[str, ...]:
    names = tuple(node.op_type for node in match.nodes)
    return names if len(names) == 1 else (match.pattern, *names)


def _terminal(value: ir.Value, *, output: bool) -> Box:
    kind = describe_value(value).removeprefix(f"{value.name}: ")
    name = value.name or ("output" if output else "input")
    return Box((name, kind), -1, f"{'output' if output else 'input'} {describe_value(value)}", output)


def _describe(value: ir.Value) -> Value:
    if not isinstance(value.type, ir.TensorType):
        return Value(value.name or "", str(value.type or ""))
    shape = None if value.shape is None else tuple(map(_dim, value.shape))
    return Value(value.name or "", dtype_name(value.type.dtype), shape)


def _dim(dim: int | ir.SymbolicDim) -> str:
    return str(dim) if isinstance(dim, int) else dim.value or "?"
