"""DequantizeLinear in front of operators that integers could compute, as quantizers write it.

Each reader gets a DequantizeLinear of its own, so that a pattern of a backend can hold it, and those of
constant weights stay nodes. Both only where a backend may take the whole as one operator on integers: the
operator reads dequantized values, and its result is quantized again.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from farcall.graph._onnx_types import is_default_domain
from farcall.graph.dims import try_dims

_COMPUTED = ("Conv", "Gemm", "MatMul", "Add", "Mul", "Concat")
_BIASED = ("Conv", "Gemm")
_ACTIVATIONS = ("Relu", "Clip")


def is_dequantize(node: ir.Node | None) -> bool:
    """Whether a node makes floats of integers."""
    return node is not None and node.op_type == "DequantizeLinear" and is_default_domain(node.domain)


def separate(graph: ir.Graph) -> None:
    """Give each further reader of a DequantizeLinear a copy of that node."""
    for node in [node for node in graph if is_dequantize(node)]:
        (value,) = node.outputs
        uses = [(user, index) for user, index in value.uses() if user.graph is graph]
        taken = value.is_graph_output() or len(uses) < len(value.uses())
        readers = list(dict.fromkeys(user for user, _ in uses))
        for number, reader in enumerate(readers if taken else readers[1:], start=1):
            copy = copied(node, node.inputs, f"{node.name}/{number}")
            copy.outputs[0].name = f"{value.name}/{number}"
            copy.outputs[0].shape = value.shape
            graph.insert_after(node, copy)
            for user, index in uses:
                if user is reader:
                    user.replace_input_with(index, copy.outputs[0])


def copied(node: ir.Node, inputs: Sequence[ir.Value | None], name: str) -> ir.Node:
    """A node like this one, of other inputs."""
    copy = ir.Node(
        node.domain, node.op_type, inputs, list(node.attributes.values()), num_outputs=1, name=name
    )
    copy.outputs[0].type = node.outputs[0].type
    return copy


def with_one_scale(value: ir.Value | None) -> ir.Node | None:
    """The node that dequantizes all elements of ``value`` by one scale."""
    node = None if value is None else value.producer()
    if node is None or not is_dequantize(node) or node.inputs[0] is None or node.inputs[1] is None:
        return None
    return node if try_dims(node.inputs[1]) == () else None


def feeds_integers(node: ir.Node) -> bool:
    """Whether a node dequantizes a constant for an operator that integers could compute."""
    if not is_dequantize(node) or len(node.outputs[0].uses()) != 1:
        return False
    ((reader, _),) = node.outputs[0].uses()
    if reader.op_type not in _COMPUTED or not is_default_domain(reader.domain):
        return False
    operands = reader.inputs[:2] if reader.op_type in _BIASED else reader.inputs
    makers = [value.producer() for value in operands if value is not None]
    if not all(map(is_dequantize, makers)) or all(map(_is_constant, makers)):
        return False
    return reader.op_type == "MatMul" or _is_quantized(reader.outputs[0])


def _is_constant(node: ir.Node | None) -> bool:
    return node is not None and node.inputs[0] is not None and node.inputs[0].const_value is not None


def _is_quantized(value: ir.Value) -> bool:
    """Whether a value is only quantized, maybe after an activation."""
    if value.is_graph_output() or len(value.uses()) != 1:
        return False
    ((reader, index),) = value.uses()
    if reader.op_type in _ACTIVATIONS and index == 0:
        return _is_quantized(reader.outputs[0])
    return reader.op_type == "QuantizeLinear" and index == 0
