"""Copies of nodes and values in a graph of their own, in which some nodes are replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import onnx_ir as ir

from farcall.backends.c._node import opset
from farcall.graph import Match, Region
from farcall.graph.dims import LATE, late


class Copies:
    """Collects the nodes. ``home`` is the graph that they are copied from."""

    def __init__(self, home: object) -> None:
        self._opsets = dict(home.opset_imports) if isinstance(home, ir.Graph) else {}
        self._values: dict[ir.Value, ir.Value] = {}
        self._late: dict[ir.Value, tuple[str, ...]] = {}
        self.nodes: list[ir.Node] = []

    def value(self, original: ir.Value) -> ir.Value:
        """The copy of a value."""
        if original not in self._values:
            copy = self._values[original] = like(original, original.dtype)
            copy.type, copy.const_value = original.type, original.const_value
        return self._values[original]

    def output(self, original: ir.Value) -> ir.Value:
        """What is an output of the graph for a value of the original one."""
        return self.value(original)

    def note_late(self, node: ir.Node) -> None:
        """Note which dims of a node's outputs are known only when it has run."""
        for value in node.outputs:
            if symbols := late(value):
                self._late[self.value(value)] = symbols

    def add(
        self,
        node: ir.Node,
        inputs: Sequence[ir.Value | None],
        outputs: Sequence[ir.Value],
        op_type: str = "",
    ) -> None:
        """Add a copy of a node, with copies of values, and maybe as another operator."""
        self.nodes.append(
            ir.Node(
                node.domain,
                op_type or node.op_type,
                inputs,
                node.attributes.values(),
                outputs=outputs,
                version=opset(node),
                name=node.name,
            )
        )

    def graph(self, inputs: Iterable[ir.Value | None], outputs: Iterable[ir.Value]) -> tuple[ir.Node, ...]:
        """Put the nodes into a graph with copies of these inputs and outputs; returns the nodes."""
        given = dict.fromkeys(self.value(v) for v in inputs if v is not None and v.const_value is None)
        results = list(map(self.output, outputs))
        graph = ir.Graph(list(given), results, nodes=self.nodes, opset_imports=self._opsets, name="region")
        if self._late:
            graph.meta[LATE] = self._late
        return tuple(graph)

    def region(self, region: Region) -> Region:
        """The region with these nodes in place of its own."""
        nodes = self.graph(region.inputs, region.outputs)
        return replace(
            region,
            matches=tuple(Match(node.op_type, (node,)) for node in nodes),
            inputs=tuple(map(self.value, region.inputs)),
            outputs=tuple(map(self.value, region.outputs)),
        )


def like(value: ir.Value, dtype: ir.DataType | None) -> ir.Value:
    """A value with the same name and shape."""
    return ir.Value(name=value.name, shape=value.shape, type=None if dtype is None else ir.TensorType(dtype))
