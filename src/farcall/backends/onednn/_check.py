"""Why the backend does not take a node."""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends.c._check import reason
from farcall.backends.c._node import Unsupported
from farcall.backends.onednn import _elements, _products, _windows
from farcall.graph.dims import dims

_MOST_RANK = 5
_OTHERS = {
    "MatMul": _products.refusal,
    "Gemm": _products.refusal,
    "Conv": _windows.refusal,
    "ConvTranspose": _windows.refusal,
    "MaxPool": _windows.refusal,
    "AveragePool": _windows.refusal,
    "GlobalAveragePool": _windows.refusal,
    "ReduceMean": _windows.refusal,
    "Softmax": _elements.softmax_refusal,
    "LayerNormalization": _elements.layer_refusal,
    "BatchNormalization": _elements.batch_refusal,
}
CHECKS = {
    **_OTHERS,
    **dict.fromkeys(_elements.ELEMENTWISE, _elements.elementwise_refusal),
    **dict.fromkeys(_elements.BINARY, _elements.binary_refusal),
}


def refusal(node: ir.Node) -> str | None:
    """Why a node is not taken, or None."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in CHECKS:
        return f"only {', '.join(CHECKS)}"
    if node.outputs[0].dtype != ir.DataType.FLOAT:
        return "only float32"
    if problem := reason(node):  # what the C backend asks of shapes and attributes
        return problem
    values = [value for value in (*node.inputs, *node.outputs) if value is not None and value.name]
    if any(len(dims(value)) > _MOST_RANK for value in values):
        return f"only up to {_MOST_RANK} dims"
    if node.op_type not in ("MatMul", "Gemm") and not dims(node.outputs[0]):
        return "a tensor without dims"
    try:
        return CHECKS[node.op_type](node)
    except Unsupported as error:
        return str(error)
