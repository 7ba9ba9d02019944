"""Models whose nodes are not in topological order, as some converters write them."""

from __future__ import annotations

import onnx
import pytest

from farcall.errors import ModelError
from farcall.graph import convert_opset, load_model

from .graphs import text_model

CHAIN = "g (float[n] x) => (float[n] y) { a = Relu(x) b = Neg(a) c = Exp(b) d = Tanh(a) y = Add(c, d) }"
INSIDE = """
g (bool c, float[n] x) => (float[n] y) {
  s = Neg(x)
  y = If(c) <
    then_branch = t () => (float[n] u) { v = Exp(s) u = Relu(v) },
    else_branch = e () => (float[n] w) { w = Identity(s) }
  >
}
"""


def reversed_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the nodes of each graph in the opposite order."""

    def turn(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            for item in node.attribute:
                if item.HasField("g"):
                    turn(item.g)
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(graph.node)]
        del graph.node[:]
        graph.node.extend(nodes)

    turn(model.graph)
    return model


@pytest.mark.parametrize("text", [CHAIN, INSIDE])
def test_nodes_are_brought_into_order(text: str) -> None:
    model = reversed_nodes(text_model(text))
    for loaded in (load_model(model), convert_opset(model, 18)):
        made = {value.name for value in loaded.graph.inputs}
        for node in loaded.graph:
            assert made >= {operand.name for operand in node.inputs if operand is not None}
            made |= {result.name for result in node.outputs}


def test_nodes_move_no_further_than_their_operands_ask() -> None:
    model = text_model(CHAIN)
    moved = model.graph.node.pop(0)
    model.graph.node.append(moved)  # a, which b and d read, is the last one
    assert [node.outputs[0].name for node in load_model(model).graph] == ["a", "b", "c", "d", "y"]


def test_a_cycle_is_refused() -> None:
    model = text_model("g (float[n] x) => (float[n] y) { a = Add(x, b) b = Neg(a) y = Relu(a) }")
    with pytest.raises(ModelError, match="topologically sorted"):
        load_model(reversed_nodes(model))
