"""``read_model`` gives the model that onnx_ir's own reader gives."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from farcall.graph._reader import read_model

from .test_load import with_function


def _everything() -> onnx.ModelProto:
    """A model with all that a graph without others inside may have."""
    info, floats = helper.make_tensor_value_info, TensorProto.FLOAT
    nodes = [
        helper.make_node("Clip", ["x", "", "high"], ["a"], "clip", doc_string="of all"),
        helper.make_node("Dropout", ["a"], ["b", ""], domain="ai.onnx"),
        helper.make_node("Conv", ["b", "w"], ["c"], pads=[1, 1, 1, 1], auto_pad="NOTSET"),
        helper.make_node("Constant", [], ["d"], value=numpy_helper.from_array(np.ones(3, np.float32))),
        helper.make_node("SequenceConstruct", ["c", "c"], ["s"]),
        helper.make_node("Other", ["c", "old"], ["y"], domain="mine", scale=0.5, words=["a", "b"]),
    ]
    nodes[0].metadata_props.add(key="from", value="a test")
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", floats, ["n", 1, None, 4], "an input"), info("old", floats, [2])],
        [info("y", floats, ["n", 2]), info("x", floats, ["n", 1, None, 4]), info("b", floats, None)],
        [
            numpy_helper.from_array(np.float32(6), "high"),
            numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w"),
            numpy_helper.from_array(np.ones(2, np.float32), "old"),
        ],
        "a graph",
        [
            info("a", floats, ["n", 1, "m", 4]),
            info("c", floats, ["n", 1, "m", 4]),
            info("w", floats, [1, 1, 3, 3]),
            helper.make_tensor_sequence_value_info("s", floats, None),
            info("gone", floats, [1]),
        ],
    )
    model = helper.make_model(
        graph,
        producer_name="a test",
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)],
        ir_version=10,
        doc_string="a model",
    )
    helper.set_model_props(model, {"one": "1"})
    return model


def _with_a_branch() -> onnx.ModelProto:
    return onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20]>
        g (bool c, float[n] x) => (float[n] y) {
            y = If (c) <then_branch = t () => (float[n] a) { a = Neg(x) },
                        else_branch = e () => (float[n] b) { b = Abs(x) }> }""")


@pytest.mark.parametrize(
    "proto", [_everything(), with_function(), _with_a_branch()], ids=["flat", "function", "if"]
)
def test_it_is_the_model_of_onnx_ir(proto: onnx.ModelProto) -> None:
    read, expected = (ir.to_proto(read(proto)) for read in (read_model, ir.from_proto))
    assert read == expected


def test_weights_are_not_copied() -> None:
    proto = _everything()
    weights = read_model(proto).graph.initializers["w"].const_value
    assert isinstance(weights, ir.TensorProtoTensor)
    assert weights.raw is proto.graph.initializer[1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = Add(x, late) late = Neg(x)", "reads 'late', which nothing before it makes"),
        ("y = Neg(x) y = Abs(x)", "`y` is declared twice"),
    ],
)
def test_a_graph_that_is_none_is_refused(body: str, message: str) -> None:
    """Models of several opsets are read before ONNX's checker sees them."""
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[n] x) => (float[n] y) { %s }'
    with pytest.raises(ValueError, match=message):
        read_model(onnx.parser.parse_model(text % body))
