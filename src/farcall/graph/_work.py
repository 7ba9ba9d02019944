"""The arithmetic of a node: what its matrix product or convolution multiplies."""

from __future__ import annotations

import onnx_ir as ir

from farcall.graph.dims import Dim, product, try_dims

_WEIGHT = {"QLinearConv": 3, "QLinearMatMul": 3}  # the input that is the second operand; else 1


def multiply_adds(node: ir.Node) -> Dim:
    """How many products the node's matrix product or convolution adds up, if its dims are known; else 0."""
    out = try_dims(node.outputs[0])
    first, second = _shape(node, 0), _shape(node, _WEIGHT.get(node.op_type, 1))
    if out is None or first is None or second is None:
        return 0
    match node.op_type:
        case "Conv" | "ConvInteger" | "QLinearConv":
            return product((*out, *second[1:]))
        case "ConvTranspose":
            return product((*first, *second[1:]))
        case "MatMul" | "MatMulInteger" | "QLinearMatMul" if first:
            return product((*out, first[-1]))
        case "Gemm":
            turned = "transA" in node.attributes and node.attributes["transA"].as_int()
            return product((*out, first[0 if turned else 1]))
        case _:
            return 0


def _shape(node: ir.Node, index: int) -> tuple[Dim, ...] | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None else try_dims(value)
