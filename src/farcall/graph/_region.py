"""A region: a connected, convex set of nodes that one backend computes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import onnx_ir as ir

from farcall.graph.dims import dims, is_object, late, symbols


@dataclass(frozen=True)
class Match:
    """One occurrence of a backend's pattern: the nodes that it takes together.

    Only the last node's outputs are used outside the match.
    """

    pattern: str  # the pattern's name, such as "conv_relu"; for a single node its op type
    nodes: tuple[ir.Node, ...]  # in topological order
    values: Mapping[str, ir.Value | None] = field(
        default_factory=dict
    )  # the pattern's names -> values of the model

    @property
    def root(self) -> ir.Node:
        """The node whose outputs are the match's outputs."""
        return self.nodes[-1]


@dataclass(frozen=True)
class Region:
    """The nodes of a region, in topological order, and the values that cross its border.

    ``inputs`` and ``outputs`` are the values that enter and leave, each once. ``constants`` are the
    initializers that the nodes read; their data is ``value.const_value.numpy()``. A constant is never
    among ``inputs``.
    """

    name: str  # "{backend}_{number}": short, unique in the model, a C identifier
    backend: str
    matches: tuple[
        Match, ...
    ]  # every node belongs to one match; a single-node match has the op type as pattern
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    constants: tuple[ir.Value, ...]

    @property
    def late(self) -> frozenset[str]:
        """The symbols of dims that are known only when the region has run."""
        return frozenset(name for node in self.nodes for value in node.outputs for name in late(value))

    @property
    def allocated(self) -> tuple[ir.Value, ...]:
        """The outputs that the region's function makes: objects, and tensors of shapes known only then."""
        found = self.late
        return tuple(
            value
            for value in self.outputs
            if is_object(value) or (found and not found.isdisjoint(symbols(*dims(value))))
        )

    @functools.cached_property
    def nodes(self) -> tuple[ir.Node, ...]:
        """All nodes, in topological order."""
        return tuple(node for match in self.matches for node in match.nodes)


def reads(node: ir.Node) -> tuple[ir.Value, ...]:
    """The values that a node reads: its given inputs, and the outer values that its subgraphs use."""
    given = tuple(node.inputs)
    if None in given:
        given = tuple(value for value in given if value is not None)
    attributes = node.attributes
    if attributes and any(attribute.type in _GRAPH_TYPES for attribute in attributes.values()):
        given += tuple(_captured(node))
    return cast("tuple[ir.Value, ...]", given)


def is_constant(value: ir.Value) -> bool:
    """Whether the model holds the value's data."""
    return value.const_value is not None


_GRAPH_TYPES = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _captured(node: ir.Node) -> list[ir.Value]:
    """The values of the node's own graph that the graphs inside it read, at any depth."""
    found: dict[ir.Value, None] = {}
    for graph in subgraphs(node):
        found.update(dict.fromkeys(captured_by(graph, node.graph)))
    return list(found)


def captured_by(graph: ir.Graph, home: ir.Graph | ir.Function | None) -> list[ir.Value]:
    """The values of the graph ``home`` that a graph inside it reads, at any depth."""
    found = dict.fromkeys(graph.outputs)
    for item in ir.traversal.RecursiveGraphIterator(graph):
        found.update((value, None) for value in item.inputs if value is not None)
        for inner in subgraphs(item):
            found.update(dict.fromkeys(inner.outputs))
    return [value for value in found if value.graph is home]


def nested_graphs(graph: ir.Graph) -> list[ir.Graph]:
    """The graphs in the attributes of all nodes of a graph."""
    return [inner for node in graph for inner in subgraphs(node)]


def subgraphs(node: ir.Node) -> list[ir.Graph]:
    """The graphs in the attributes of a node."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            found.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            found += attribute.as_graphs()
    return found
