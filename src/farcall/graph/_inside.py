"""Cuts the graphs inside of If, Loop and Scan into regions, by the backends of the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from farcall.errors import ModelError, UnsupportedOperatorError
from farcall.graph._annotate import Answer, Claims
from farcall.graph._control import Control, Inner, fails
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


@dataclass(frozen=True)
class _Scope:
    """A graph inside of a node, and its cuts."""

    attribute: str
    inner: Inner
    settling: Settling


class Inside:
    """The graphs inside of nodes. Each node is cut once for the same restrictions.

    Args:
        backends: In order of priority.
    """

    def __init__(self, backends: Callable[[], Sequence[Claims]]) -> None:
        self._backends = backends
        self._scopes: dict[ir.Node, tuple[_Scope, ...] | str] = {}
        self._found: dict[ir.Node, tuple[Part, ...] | str] = {}
        self._rules = Rules()
        self._banned: Mapping[ir.Node, Sequence[Answer]] = {}

    def restrict(self, rules: Rules, banned: Mapping[ir.Node, Sequence[Answer]]) -> None:
        """Cut all graphs anew, by these rules, and without giving some nodes to some backends."""
        self._rules, self._banned = rules, banned
        self._found.clear()

    def reason(self, node: ir.Node) -> str | None:
        """Why a node cannot be computed by drivers of the graphs inside of it; None if it can."""
        found = self._parts(node)
        return found if isinstance(found, str) else None

    def parts(self, node: ir.Node) -> tuple[Part, ...]:
        """The graphs inside of a node.

        Raises:
            UnsupportedOperatorError: There is a :meth:`reason` why they cannot be cut.
        """
        found = self._parts(node)
        if isinstance(found, str):
            raise UnsupportedOperatorError(f"node `{node.name}` ({node.op_type}): {found}")
        return found

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
        if node not in self._scopes:
            self._scopes[node] = self._look(node)
        scopes = self._scopes[node]
        if isinstance(scopes, str):
            return scopes
        parts = []
        for scope in scopes:
            try:
                parts.append(self._part(scope))
            except (ModelError, UnsupportedOperatorError) as error:
                return f"its `{scope.attribute}` cannot be built: {_shortened(str(error))}"
        return tuple(parts)

    def _look(self, node: ir.Node) -> tuple[_Scope, ...] | str:
        """The graphs of a node; or why they cannot be cut."""
        if fails(node):
            return ()
        graph = node.graph
        if not isinstance(graph, ir.Graph):
            return "the node is in no graph"
        try:
            found = control_of(node, graph)
        except ModelError as error:
            return str(error)
        for value in node.outputs:
            if value.shape is None and (value.uses() or value.is_graph_output()):
                return _without_rank(node, value, found)
        return tuple(
            _Scope(attribute, inner, Settling(inner.model, self._backends(), inner=True))
            for attribute, inner in found.bodies.items()
        )

    def _part(self, scope: _Scope) -> Part:
        settling = scope.settling
        partition = settled(settling, *settling.settle(self._rules, self._banned))
        return Part(scope.attribute, partition, scope.inner.captured, tuple(self._sizes(partition)))

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


def _without_rank(node: ir.Node, value: ir.Value, found: Control) -> str:
    """What to say of an output whose number of dims is not known."""
    index = node.outputs.index(value)
    known = {name: inner.model.graph.outputs[index].shape for name, inner in found.bodies.items()}
    told = [f"{len(shape)} in `{name}`" for name, shape in known.items() if shape is not None]
    ranks = f" ({', '.join(told)})" if node.op_type == "If" and told else ""
    return (
        f"the number of dims of its output `{value.name}` is not the same in each run{ranks}; declare "
        "its dims in the model: calls that give it others are refused then"
    )


_LINES = 4  # of the error of a graph inside that a reason repeats


def _shortened(error: str) -> str:
    """The first lines of an error; if its node has graphs inside, what is wrong with these."""
    lines = [line.strip() for line in error.splitlines()]
    deeper = next((line for line in lines[2:] if line.startswith(f"{CONTROL}: ")), None)
    return "; ".join([*lines[:2], deeper] if deeper else lines[:_LINES])
