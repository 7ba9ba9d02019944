"""Constant computations are done when the model is loaded."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from farcall.graph import load_model
from farcall.graph._constraints import constraints
from farcall.graph.dims import dims, text

from .graphs import text_model


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


def test_what_the_evaluator_computes_in_another_dtype_stays() -> None:
    """It computes the grid of doubles in float32."""
    model = load_model(
        text_model("""g (double[1, 1, 4, 4] x) => (double[?, ?, ?, ?] y)
    <double[1, 2, 3] theta = {1, 0, 0, 0, 1, 0}, int64[4] size = {1, 1, 2, 2}>
    { at = AffineGrid (theta, size)  y = GridSample (x, at) }""")
    )
    assert _operators(model) == ["AffineGrid", "GridSample"]


@pytest.mark.parametrize(
    "call",
    [
        "LRN <size = 3> (k)",  # sums of as many channels as there are samples
        "LpNormalization <p = 1> (k)",  # with signs
        "Softmax <axis = 1> (k)",  # of one axis, before opset 13
        "GlobalMaxPool (k)",  # keeps a dim
        "OneHot (i, n, l)",
    ],
)
def test_what_the_evaluator_computes_wrongly_stays(call: str) -> None:
    model = load_model(
        text_model(
            f"""g (float[1, 2, 2, 1] x) => (float[?, ?, ?, ?] y)
    <float[1, 2, 2, 1] k = {{3, 4, -5, 6}}, float[2] l = {{1, 2}}, int64 n = {{2}},
    int64[1, 2, 2] i = {{0, 1, 1, 0}}>
    {{ z = {call}  y = Add (x, z) }}""",
            opset=12,
        )
    )
    assert _operators(model) == [call.split(maxsplit=1)[0], "Add"]


@pytest.mark.parametrize(
    ("nodes", "opset"),
    [
        ("Slice (k, before, before, axis, back)", 20),  # numpy begins nowhere
        ("Unsqueeze <axes = [2, 0]> (k)", 12),  # one after the other
    ],
)
def test_where_numpy_has_other_bounds_or_axes_a_constant_stays(nodes: str, opset: int) -> None:
    source = f"""g (float[1, 1, 1, 1, 2, 3] x) => (float[?, ?, ?, ?, ?, ?] y)
        <float[1, 2, 3] k = {{3, -4, 5, -6, 7, 8}}, int64[1] before = {{-9}}, int64[1] axis = {{2}},
         int64[1] back = {{-1}}> {{ z = {nodes}  y = Add (x, z) }}"""
    model = load_model(text_model(source, opset))
    assert len(_operators(model)) == 2


@pytest.mark.parametrize("nodes", ["Slice (k, first, last, axis, step)", "Unsqueeze <axes = [0, 2]> (k)"])
def test_what_numpy_does_as_onnx_does_is_folded(nodes: str) -> None:
    source = f"""g (float[1, 1, 1, 1, 2, 3] x) => (float[?, ?, ?, ?, ?, ?] y)
        <float[1, 2, 3] k = {{3, -4, 5, -6, 7, 8}}, int64[1] first = {{-9}}, int64[1] last = {{9}},
         int64[1] axis = {{2}}, int64[1] step = {{3}}> {{ z = {nodes}  y = Add (x, z) }}"""
    assert _operators(load_model(text_model(source, 12))) == ["Add"]


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


HALVES = """
    s = Shape(x)  f = Cast<to=1>(s)  g = Mul(f, scale)  h = Cast<to=7>(g)  y = Reshape(x, h)"""
SCALE = "float[2] scale = {0.5, 2.0}"


def test_a_computed_constant_gives_what_follows_its_shape() -> None:
    """The shape passes through float32, which data propagation does not follow: folding makes it known."""
    model = load_model(text_model(f"g (float[6,4] x) => (float[?,?] y) <{SCALE}> {{ {HALVES} }}"))
    assert dims(model.graph.outputs[0]) == (3, 8)
    assert _operators(model) == ["Reshape"]


def test_one_constant_after_another_gives_a_shape() -> None:
    """Each of three Reshapes gets its shape from the previous one; data propagation does not follow it."""
    chain = "".join(
        f"s{i} = Shape(x{i}) f{i} = Cast<to=1>(s{i}) h{i} = Mul(f{i}, scale) i{i} = Cast<to=7>(h{i}) "
        f"x{i + 1} = Reshape(x{i}, i{i}) "
        for i in range(3)
    )
    source = f"g (float[8,3] x0) => (float[?,?] y) <{SCALE}> {{ {chain} y = Relu(x3) }}"
    model = load_model(text_model(source))
    assert dims(model.graph.outputs[0]) == (1, 24)
    assert _operators(model) == ["Reshape", "Reshape", "Reshape", "Relu"]


def test_a_dim_that_a_later_node_fixes_counts_at_the_nodes_before_it() -> None:
    nodes = f"{{ {HALVES}  z = Concat<axis=1>(x, w) }}"
    source = f"g (float[n,4] x, float[6,4] w) => (float[?,?] y, float[?,?] z) <{SCALE}> {nodes}"
    model = load_model(text_model(source))
    assert [dims(value) for value in model.graph.outputs] == [(3, 8), (6, 8)]


def test_what_must_be_equal_at_entry_is_remembered_when_nodes_are_visited_again() -> None:
    """``m`` is found to be 4 at the last node; that 4n and 3k are equal is known before."""
    source = """g (float[n,m] x, float[k,3] t, float[2,4] w) => (float[?,?] y, float[4,4] z) {
        s = Shape(t)  y = Reshape(x, s)  a = Gather<axis=0>(x, i)  z = Concat<axis=0>(a, w) }"""
    source = source.replace(" {\n", " <int64[2] i = {0, 0}> {\n", 1)
    model = load_model(text_model(source))
    assert [text(pair) for pair in constraints(model)] == [("4*n", "3*k")]


def test_a_declaration_that_a_computed_operand_contradicts_is_not_believed() -> None:
    axes = "f = Cast<to=1>(axis)  a = Cast<to=7>(f)  y = Squeeze(x, a)"
    source = f"g (float[6,1] x) => (float[6,1] y) <int64[1] axis = {{1}}> {{ {axes} }}"
    assert dims(load_model(text_model(source)).graph.outputs[0]) == (6,)
    source = f"g (float[6,4] x) => (float[3,9] y) <{SCALE}> {{ {HALVES} }}"
    assert dims(load_model(text_model(source)).graph.outputs[0]) == (3, 8)


@pytest.mark.parametrize(
    ("node", "declared", "found"),
    [("z = Relu(y)", "30,80", (3, 8)), ("z, i = TopK<axis=0>(y, one)", "9,8", (1, 8))],
)
def test_a_declaration_behind_a_computed_shape_is_not_believed(
    node: str, declared: str, found: tuple[int, ...]
) -> None:
    """ONNX's inference does not find the shape of ``y``, so it reports the declared shape of ``z``."""
    constants = f"{SCALE}, int64[1] one = {{1}}"
    source = f"g (float[6,4] x) => (float[{declared}] z) <{constants}> {{ {HALVES}  {node} }}"
    assert dims(load_model(text_model(source)).graph.outputs[0]) == found
