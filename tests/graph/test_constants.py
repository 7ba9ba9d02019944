"""Constant computations are done when the model is loaded."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from farcall.graph import load_model


def _model(nodes: list[onnx.NodeProto], opset: int = 20) -> onnx.ModelProto:
    weights = [helper.make_tensor("shape", TensorProto.INT64, [2], [2, 3])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        initializer=weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def test_a_chain_of_constants_becomes_one() -> None:
    fill = helper.make_tensor("v", TensorProto.FLOAT, [1], [0.25])
    model = load_model(
        _model(
            [
                helper.make_node("ConstantOfShape", ["shape"], ["filled"], value=fill),
                helper.make_node("Exp", ["filled"], ["weights"]),
                helper.make_node("Add", ["x", "weights"], ["y"]),
            ]
        )
    )
    assert _operators(model) == ["Add"]
    (constant,) = model.graph.initializers.values()
    assert constant.const_value is not None
    np.testing.assert_allclose(constant.const_value.numpy(), np.full((2, 3), np.exp(np.float32(0.25))))


def test_random_numbers_are_not_frozen() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("RandomNormalLike", ["zeros"], ["noise"]),
        helper.make_node("Add", ["x", "noise"], ["y"]),
    ]
    assert "RandomNormalLike" in _operators(load_model(_model(nodes)))


def test_a_graph_output_keeps_its_node() -> None:
    model = load_model(_model([helper.make_node("ConstantOfShape", ["shape"], ["y"])]))
    assert _operators(model) == ["ConstantOfShape"]
