"""Narrow types as storage: rewrites nodes on them to nodes on types that C has.

An operator that only moves elements of float16, bfloat16 or float8 works on integers of the same width. Any
other becomes Cast, the operator in float32, and Cast, which rounds once; fused loops keep all three in
registers. Constants of such an operator become float32 when the model is built.

Elements of 4 and 2 bits are packed only in the memory of inputs, outputs and large constants. Within a
region, each has a byte (:mod:`farcall.backends.c._packed`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from farcall.backends.c._copies import Copies, like
from farcall.backends.c._narrow_text import NARROW_FLOATS
from farcall.backends.c._node import Unsupported, str_attr
from farcall.backends.c._packed import holder, internal, is_packed
from farcall.graph import Region
from farcall.graph.dims import late

_D = ir.DataType
_CASTS = frozenset({"Cast", "CastLike"})
_SCALED = frozenset({"QuantizeLinear", "DequantizeLinear"})  # which compute with integers of 4 and 2 bits
_INLINE = 64  # elements of a packed constant that the code rather has unpacked
_MOVERS = frozenset(
    {
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice"),
        *("Gather", "GatherElements", "GatherND", "Tile", "Expand", "Pad", "DepthToSpace", "SpaceToDepth"),
        *("Where", "ReverseSequence", "Trilu", "CenterCropPad", "Dropout", "TensorScatter", "Shape", "Size"),
        *("BitCast", "Scatter", "ScatterElements", "ScatterND"),
    }
)


def is_narrow(value: ir.Value | None) -> bool:
    """Whether no C type has the elements of a value."""
    return value is not None and (value.dtype in NARROW_FLOATS or is_packed(value))


def has_narrow(node: ir.Node) -> bool:
    """Whether the node reads or writes narrow elements."""
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
    """The region with its nodes rewritten, or the region itself, if it has no narrow elements."""
    if not any(map(has_narrow, region.nodes)):
        return region
    return _Copy(region.nodes, region.nodes[0].graph).region(region)


class _Copy(Copies):
    """Copies in which the nodes on narrow elements are rewritten."""

    def __init__(self, nodes: Iterable[ir.Node], graph: object) -> None:
        super().__init__(graph)
        self._twins: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        for node in nodes:
            self._rewrite(node)

    def output(self, original: ir.Value) -> ir.Value:
        return self._packed(original) if is_packed(original) else self.value(original)

    def _rewrite(self, node: ir.Node) -> None:
        if has_narrow(node) and any(map(late, node.outputs)):
            raise Unsupported("narrow elements, where shapes are known only when the node has run")
        self.note_late(node)
        packed = any(map(is_packed, (*node.inputs, *node.outputs)))
        casts, moves = node.op_type in _CASTS, _moves(node)
        if not has_narrow(node) or (casts and not packed):
            inputs = [None if v is None else self.value(v) for v in node.inputs]
            self.add(node, inputs, [self.value(v) for v in node.outputs])
            return
        if packed and not (casts or moves or node.op_type in _SCALED):
            raise Unsupported("elements of 4 or 2 bits are only moved, cast, quantized and dequantized")
        operands = node.inputs[:1] if casts else node.inputs
        inputs = [self._operand(v, moves, casts) if is_narrow(v) else v and self.value(v) for v in operands]
        outputs = [self._result(v, moves, casts) if is_narrow(v) else self.value(v) for v in node.outputs]
        self.add(node, inputs, outputs, "Cast" if len(inputs) < len(node.inputs) else "")  # CastLike's first
        for wide, output in zip(outputs, node.outputs, strict=True):
            if not is_narrow(output) or not output.name:
                continue
            if is_packed(output):
                self._bound(wide, output, node)
            elif not casts:
                self._convert(wide, self.value(output), moves, node.attributes.get("saturate"))

    def _operand(self, value: ir.Value | None, moves: bool, casts: bool) -> ir.Value:
        """A narrow operand as the node reads it: its bits, a number, or as float32."""
        assert value is not None  # noqa: S101 - is_narrow
        if is_packed(value):
            return self._elements(value) if moves or value.dtype != _D.FLOAT4E2M1 else self._float4(value)
        if casts:
            return self.value(value)
        dtype = _storage(value) if moves else _D.FLOAT
        if (value, dtype) in self._twins:
            return self._twins[value, dtype]
        twin = self._twins[value, dtype] = like(value, dtype)
        if value.const_value is not None:
            data = value.const_value.numpy()
            twin.const_value = ir.tensor(data.view(dtype.numpy()) if moves else data.astype(np.float32))
        else:
            self._convert(self.value(value), twin, moves)
        return twin

    def _result(self, value: ir.Value, moves: bool, casts: bool) -> ir.Value:
        """What the node writes in place of a narrow output."""
        if is_packed(value):
            number = value.dtype == _D.FLOAT4E2M1 and not moves
            return like(value, _D.FLOAT if number else _storage(value))
        return self.value(value) if casts else like(value, _storage(value) if moves else _D.FLOAT)

    def _convert(
        self, source: ir.Value, target: ir.Value, moves: bool, saturate: ir.Attr | None = None
    ) -> None:
        """An Identity, which only gives the memory another type, or a Cast."""
        attributes = [] if saturate is None else [saturate]
        op_type = "Identity" if moves else "Cast"
        self.nodes.append(ir.Node("", op_type, [source], attributes, outputs=[target], version=13))

    # ---- elements of 4 and 2 bits ----

    def _elements(self, value: ir.Value) -> ir.Value:
        """The elements of a packed value, one in a byte."""
        dtype = _storage(value)
        if (value, dtype) not in self._twins:
            twin = self._twins[value, dtype] = like(value, dtype)
            data = None if value.const_value is None else value.const_value.numpy()
            if data is not None and data.size <= _INLINE:
                is_code = value.dtype == _D.FLOAT4E2M1
                twin.const_value = ir.tensor(
                    data.view(np.uint8) & 15 if is_code else data.astype(dtype.numpy())
                )
            else:
                self.nodes.append(internal("LowBits", self.value(value), twin, _known(value)))
        return self._twins[value, dtype]

    def _float4(self, value: ir.Value) -> ir.Value:
        if (value, _D.FLOAT) not in self._twins:
            twin = self._twins[value, _D.FLOAT] = like(value, _D.FLOAT)
            self.nodes.append(internal("FromCode", self._elements(value), twin, _known(value)))
        return self._twins[value, _D.FLOAT]

    def _bound(self, wide: ir.Value, output: ir.Value, node: ir.Node) -> None:
        """Makes what a node has written elements of a packed output."""
        dtype = _storage(output)
        if _moves(node) and node.op_type != "BitCast":
            self._twins[output, dtype] = wide
            return
        twin = self._twins[output, dtype] = like(output, dtype)
        scaled = node.op_type in _SCALED
        op_type = "ToCode" if wide.dtype == _D.FLOAT else "Saturate" if scaled else "LowBits"
        self.nodes.append(internal(op_type, wide, twin, _known(output)))

    def _packed(self, value: ir.Value) -> ir.Value:
        """The copy of an output with packed elements, which are packed here."""
        packed = self.value(value)
        if (value, _storage(value)) in self._twins and packed.producer() is None:
            self.nodes.append(internal("Pack", self._elements(value), packed, _known(value)))
        return packed


def _moves(node: ir.Node) -> bool:
    """Whether the node only moves elements, so that their bits are enough."""
    if node.op_type not in _MOVERS or str_attr(node, "reduction", "none") != "none":
        return False
    if node.op_type == "Dropout" and len(node.inputs) > 2:  # it may be in training, and then multiplies
        return False
    return "value" not in node.attributes  # of a Pad before opset 11: a number, not bits


def _known(value: ir.Value) -> ir.DataType:
    assert value.dtype is not None  # noqa: S101 - is_narrow
    return value.dtype


def _storage(value: ir.Value) -> ir.DataType:
    """The integer type that holds the bits of an element."""
    if is_packed(value):
        return holder(_known(value))
    return _D.UINT16 if value.dtype is not None and value.dtype.bitwidth == 16 else _D.UINT8
