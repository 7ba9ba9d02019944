"""Narrow floats as storage: rewrites nodes on float16, bfloat16 and float8 to nodes on types that C has.

An operator that only moves elements works on integers of the same width. Any other becomes Cast, the operator
in float32, and Cast, which rounds once; fused loops keep all three in registers. Constants of such an
operator become float32 when the model is built.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from farcall.backends.c._narrow_text import NARROW_FLOATS
from farcall.backends.c._node import Unsupported, opset, str_attr
from farcall.graph import Match, Region
from farcall.graph.dims import LATE, late

_D = ir.DataType
_CASTS = frozenset({"Cast", "CastLike"})
_MOVERS = frozenset(
    {
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice"),
        *("Gather", "GatherElements", "GatherND", "Tile", "Expand", "Pad", "DepthToSpace", "SpaceToDepth"),
        *("Where", "ReverseSequence", "Trilu", "CenterCropPad", "Dropout", "TensorScatter", "Shape", "Size"),
        *("BitCast", "Scatter", "ScatterElements", "ScatterND"),
    }
)


def is_narrow(value: ir.Value | None) -> bool:
    """Whether the elements of a value are floats that no C type has."""
    return value is not None and value.dtype in NARROW_FLOATS


def has_narrow(node: ir.Node) -> bool:
    """Whether the node reads or writes narrow floats."""
    return any(map(is_narrow, (*node.inputs, *node.outputs)))


def rewritten(node: ir.Node) -> tuple[ir.Node, ...]:
    """What takes the place of a node, on copies of its values.

    Raises:
        Unsupported: the shapes of narrow outputs are known only when the node has run.
    """
    return _Copy([node], node.graph).graph(
        node.inputs, [v for v in node.outputs if v.uses() or v.is_graph_output()]
    )


def narrowed(region: Region) -> Region:
    """The region with its nodes rewritten, or the region itself, if it has no narrow floats."""
    if not any(map(has_narrow, region.nodes)):
        return region
    copy = _Copy(region.nodes, region.nodes[0].graph)
    nodes = copy.graph(region.inputs, region.outputs)
    return replace(
        region,
        matches=tuple(Match(node.op_type, (node,)) for node in nodes),
        inputs=tuple(map(copy.value, region.inputs)),
        outputs=tuple(map(copy.value, region.outputs)),
    )


class _Copy:
    """Copies of nodes and values in a graph of their own, in which the narrow ones are rewritten."""

    def __init__(self, nodes: Iterable[ir.Node], graph: object) -> None:
        self._opsets = dict(graph.opset_imports) if isinstance(graph, ir.Graph) else {}
        self._values: dict[ir.Value, ir.Value] = {}
        self._twins: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._nodes: list[ir.Node] = []
        self._late: dict[ir.Value, tuple[str, ...]] = {}
        for node in nodes:
            self._rewrite(node)

    def graph(self, inputs: Iterable[ir.Value | None], outputs: Iterable[ir.Value]) -> tuple[ir.Node, ...]:
        """Puts the nodes into a graph with copies of these inputs and outputs; returns the nodes."""
        given = dict.fromkeys(self.value(v) for v in inputs if v is not None and v.const_value is None)
        results = list(map(self.value, outputs))
        graph = ir.Graph(list(given), results, nodes=self._nodes, opset_imports=self._opsets, name="region")
        if self._late:
            graph.meta[LATE] = self._late
        return tuple(graph)

    def value(self, original: ir.Value) -> ir.Value:
        """The copy of a value."""
        if original not in self._values:
            copy = self._values[original] = _like(original, original.dtype)
            copy.type, copy.const_value = original.type, original.const_value
        return self._values[original]

    def _rewrite(self, node: ir.Node) -> None:
        for output in node.outputs:
            if symbols := late(output):
                if has_narrow(node):
                    raise Unsupported("narrow floats, where shapes are known only when the node has run")
                self._late[self.value(output)] = symbols
        if node.op_type in _CASTS or not has_narrow(node):
            inputs = [None if v is None else self.value(v) for v in node.inputs]
            self._add(node, inputs, [self.value(v) for v in node.outputs])
            return
        moves = node.op_type in _MOVERS and str_attr(node, "reduction", "none") == "none"
        moves = moves and "value" not in node.attributes  # of a Pad before opset 11: a number, not bits
        inputs = [self._operand(v, moves) if is_narrow(v) else v and self.value(v) for v in node.inputs]
        outputs = [
            _like(v, _storage(v) if moves else _D.FLOAT) if is_narrow(v) else self.value(v)
            for v in node.outputs
        ]
        self._add(node, inputs, outputs)
        for wide, output in zip(outputs, node.outputs, strict=True):
            if is_narrow(output) and output.name:
                self._convert(wide, self.value(output), moves, node.attributes.get("saturate"))

    def _operand(self, value: ir.Value | None, moves: bool) -> ir.Value:
        """A narrow operand as the node reads it: its bits, or as float32."""
        assert value is not None  # noqa: S101 - is_narrow
        dtype = _storage(value) if moves else _D.FLOAT
        if (value, dtype) in self._twins:
            return self._twins[value, dtype]
        twin = self._twins[value, dtype] = _like(value, dtype)
        if value.const_value is not None:
            data = value.const_value.numpy()
            twin.const_value = ir.tensor(data.view(dtype.numpy()) if moves else data.astype(np.float32))
        else:
            self._convert(self.value(value), twin, moves)
        return twin

    def _convert(
        self, source: ir.Value, target: ir.Value, moves: bool, saturate: ir.Attr | None = None
    ) -> None:
        """An Identity, which only gives the memory another type, or a Cast."""
        attributes = [] if saturate is None else [saturate]
        op_type = "Identity" if moves else "Cast"
        self._nodes.append(ir.Node("", op_type, [source], attributes, outputs=[target], version=13))

    def _add(self, node: ir.Node, inputs: list[ir.Value | None], outputs: list[ir.Value]) -> None:
        self._nodes.append(
            ir.Node(
                node.domain,
                node.op_type,
                inputs,
                node.attributes.values(),
                outputs=outputs,
                version=opset(node),
                name=node.name,
            )
        )


def _storage(value: ir.Value) -> ir.DataType:
    """The integer type as wide as the elements."""
    return _D.UINT16 if value.dtype is not None and value.dtype.bitwidth == 16 else _D.UINT8


def _like(value: ir.Value, dtype: ir.DataType | None) -> ir.Value:
    """A value with the same name and shape."""
    return ir.Value(name=value.name, shape=value.shape, type=None if dtype is None else ir.TensorType(dtype))
