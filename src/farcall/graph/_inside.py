"""Cuts the graphs inside of If, Loop and Scan into regions, by the backends of the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from farcall.errors import ModelError, UnsupportedOperatorError
from farcall.graph._annotate import Claims
from farcall.graph._control import Inner
from farcall.graph._partition import Body, Partition, settled
from farcall.graph._rules import Rules
from farcall.graph._settle import Settling
from farcall.graph._shapes import control_of
from farcall.graph.dims import dims, late, symbols, try_dims
from farcall.library._why import CONTROL


@dataclass(frozen=True)
class Part:
    """A graph inside of a node, cut into regions that have no final names yet: see :class:`Body`."""

    attribute: str
    partition: Partition
    captured: tuple[ir.Value, ...]
    sizes: tuple[str, ...]


class Inside:
    """The graphs inside of nodes. Each node is cut once.

    Args:
        backends: In order of priority.
    """

    def __init__(self, backends: Callable[[], Sequence[Claims]]) -> None:
        self._backends = backends
        self._found: dict[ir.Node, tuple[Part, ...] | str] = {}

    def reason(self, node: ir.Node) -> str | None:
        """Why a node cannot be computed by drivers of the graphs inside of it; None if it can."""
        found = self._parts(node)
        return found if isinstance(found, str) else None

    def parts(self, node: ir.Node) -> tuple[Part, ...]:
        """The graphs inside of a node for which there is no :meth:`reason`."""
        found = self._parts(node)
        return () if isinstance(found, str) else found

    def completed(self, partition: Partition) -> Partition:
        """A partition with the graphs inside of its nodes. No two regions have the same name."""
        return self._completed(partition, Counter())

    def _completed(self, partition: Partition, counts: Counter[str]) -> Partition:
        regions = []
        for region in partition.regions:
            regions.append(replace(region, name=f"{region.backend}_{counts[region.backend]}"))
            counts[region.backend] += 1
        inside = {
            region.name: tuple(
                Body(
                    f"{region.name}_{part.attribute}",
                    part.attribute,
                    self._completed(part.partition, counts),
                    part.captured,
                    part.sizes,
                )
                for part in self.parts(region.nodes[0])
            )
            for region in regions
            if region.backend == CONTROL
        }
        return replace(partition, regions=tuple(regions), inside=inside)

    def _parts(self, node: ir.Node) -> tuple[Part, ...] | str:
        if node not in self._found:
            self._found[node] = self._cut(node)
        return self._found[node]

    def _cut(self, node: ir.Node) -> tuple[Part, ...] | str:
        graph = node.graph
        if not isinstance(graph, ir.Graph):
            return "the node is in no graph"
        try:
            found = control_of(node, graph)
        except ModelError as error:
            return str(error)
        for value in node.outputs:
            if value.shape is None and (value.uses() or value.is_graph_output()):
                return f"the number of dims of its output `{value.name}` is not the same in each run"
        parts = []
        for attribute, inner in found.bodies.items():
            try:
                parts.append(self._part(attribute, inner))
            except (ModelError, UnsupportedOperatorError) as error:
                lines = [line.strip() for line in str(error).splitlines()]
                return f"its `{attribute}` cannot be built: {'; '.join(lines[:_LINES])}"
        return tuple(parts)

    def _part(self, attribute: str, inner: Inner) -> Part:
        settling = Settling(inner.model, self._backends())
        partition = settled(settling, *settling.settle(Rules()))
        captured = inner.captured
        return Part(attribute, partition, captured, tuple(self._sizes(partition)))

    def _sizes(self, partition: Partition) -> list[str]:
        """The symbols that a driver needs, and that neither its inputs show nor its regions bind."""
        graph = partition.model.graph
        shown = {str(dim) for value in graph.inputs for dim in dims(value)}
        made = [value for node in graph for value in node.outputs]
        bound = {name for value in made for name in late(value)}
        used = [dim for value in (*graph.inputs, *made) for dim in try_dims(value) or ()]
        used += [dim for pair in partition.constraints for dim in pair]
        found = [*symbols(*used), *self._inner_sizes(partition)]
        return [name for name in dict.fromkeys(found) if name not in shown and name not in bound]

    def _inner_sizes(self, partition: Partition) -> Iterator[str]:
        for region in partition.regions:
            if region.backend == CONTROL:
                for part in self.parts(region.nodes[0]):
                    yield from part.sizes


_LINES = 4  # of the error of a graph inside that a reason repeats
