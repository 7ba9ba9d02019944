"""Nodes that no backend takes are replaced by ONNX's definitions of their operators."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from farcall.errors import ModelError, UnsupportedOperatorError
from farcall.graph import Partition, Rules, cut, load_model
from farcall.graph._bodies import body_of
from farcall.graph._why import interned
from farcall.graph.dims import dims

from .graphs import C, OpBackend, text_model

NORM = """g (float[n, m, 8] x, float[8] w, float[8] b) => (float[n, m, 8] y, float[n, m, 8] z) {
    [ln1] y = LayerNormalization <epsilon = 0.01> (x, w, b)
    e = Exp(y)
    [ln2] z = LayerNormalization <epsilon = 0.01> (e, w, b)
}"""
PARTS = (
    "Abs Add Cast Concat Div Exp Flatten Gather GatherElements Identity Max Mul Neg Pow ReduceMean "
    "ReduceSum ReduceMax Reciprocal Reshape Shape Size Slice Softmax Sqrt Squeeze Sub "
    "Transpose Unsqueeze Where Log MatMul"
)
SMALL = OpBackend("small", PARTS)


def kinds(partition: Partition) -> set[str]:
    return {node.op_type for region in partition.regions for node in region.nodes}


def feeds(rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"x": (2, 3, 8), "w": (8,), "b": (8,)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def test_an_operator_is_offered_whole_first() -> None:
    whole = OpBackend("npu", "LayerNormalization")
    partition = cut(text_model(NORM), [whole, SMALL])
    assert kinds(partition) == {"LayerNormalization", "Exp"}
    assert not partition.expansions


def test_what_nobody_takes_is_replaced_by_its_definition() -> None:
    partition = cut(text_model(NORM), [OpBackend("npu", "Sqrt"), SMALL])
    assert "LayerNormalization" not in kinds(partition)
    assert partition.expansions.keys() == {"ln1", "ln2"}
    names = [node.name for node in partition.model.graph]
    assert len(set(names)) == len(names)
    assert {"ln1/Sqrt", "ln2/Sqrt", "ln1/ReduceMean", "ln1/ReduceMean_1"} <= set(names)
    for region in partition.regions:
        assert (region.backend == "npu") == (region.nodes[0].op_type == "Sqrt")


def test_why_tells_what_was_expanded() -> None:
    partition = cut(text_model(NORM), [OpBackend("npu", "Sqrt"), SMALL])
    text = str(partition.why("ln1"))
    assert "replaced by its definition: `ln1/Shape`, `ln1/Flatten`" in text
    assert "npu    refused: takes no LayerNormalization" in text
    assert "small  refused: takes no LayerNormalization" in text
    assert "expanded into" in partition.why("ln1").reason
    assert "from the definition of node `ln2`" in str(partition.why("ln2/Sqrt"))
    assert "replaced by their definitions: LayerNormalization x2" in str(partition)
    texts, nodes = interned(partition.answers, partition.expansions.values())
    assert any(texts[index].startswith("LayerNormalization expanded: `ln1/") for index in nodes["ln1"])
    assert any("from the definition of `ln1`" in box.about for box in partition.diagram().boxes)


def test_the_partitioned_model_still_runs(tmp_path: Path) -> None:
    model = text_model(NORM)
    cut(model, [SMALL]).save(tmp_path / "cut.onnx")
    data = feeds(np.random.default_rng(1))
    expected = ReferenceEvaluator(model).run(None, data)
    found = onnxruntime.InferenceSession(tmp_path / "cut.onnx").run(None, data)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_the_loaded_model_is_not_changed() -> None:
    loaded = load_model(text_model(NORM))
    cut(loaded, [SMALL])
    assert [node.op_type for node in loaded.graph] == ["LayerNormalization", "Exp", "LayerNormalization"]
    assert {node.op_type for node in cut(loaded, [C]).model.graph} == {"LayerNormalization", "Exp"}


def test_rules_for_an_expanded_node_hold_for_its_parts() -> None:
    partition = cut(text_model(NORM), [OpBackend("npu", PARTS), SMALL], Rules(exclude={"npu": ["ln1"]}))
    owners = {node.name: region.backend for region in partition.regions for node in region.nodes}
    assert owners["ln1/Sqrt"] == "small" and owners["ln2/Sqrt"] == "npu"
    pinned = cut(text_model(NORM), [OpBackend("npu", PARTS), SMALL], Rules(pin={"ln*": "small"}))
    owners = {node.name: region.backend for region in pinned.regions for node in region.nodes}
    assert {owners["ln1/Sqrt"], owners["ln2/Sqrt"]} == {"small"} and owners["Exp_0"] == "npu"


@pytest.mark.parametrize("opset", [17, 18, 20, 23, 28])
def test_a_definition_fits_the_opset_of_the_model(opset: int, tmp_path: Path) -> None:
    """ReduceMean takes its axes as an attribute before opset 18, and as an input since."""
    model = text_model(NORM, opset)
    partition = cut(model, [SMALL])
    partition.save(tmp_path / "cut.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "cut.onnx"), full_check=True)
    data = feeds(np.random.default_rng(2))
    expected = ReferenceEvaluator(model).run(None, data)
    found = ReferenceEvaluator(onnx.load(tmp_path / "cut.onnx")).run(None, data)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_definitions_of_definitions() -> None:
    """SoftmaxCrossEntropyLoss is LogSoftmax and NegativeLogLikelihoodLoss, which have definitions, too."""
    model = text_model("""g (float[3, 5] x, int64[3] t) => (float y) {
        [loss] y = SoftmaxCrossEntropyLoss <reduction = "mean"> (x, t) }""")
    partition = cut(model, [SMALL])
    assert set(partition.expansions) == {
        "loss",
        "loss/LogSoftmax",
        "loss/NegativeLogLikelihoodLoss",
    }
    assert partition.expansions["loss/LogSoftmax"].origin == "loss"
    parts = [node for node in partition.model.graph if "GatherElements" in (node.name or "")]
    assert [node.name for node in parts] == ["loss/NegativeLogLikelihoodLoss/GatherElements"]
    assert (
        cut(model, [OpBackend("npu", PARTS), SMALL], Rules(exclude={"npu": ["loss"]})).regions[0].backend
        == "small"
    )


def test_names_of_the_model_stay_unique() -> None:
    model = text_model(
        """g (float[4, 8] x, float[8] w) => (float[4, 8] y) {
        "ln/XU" = Exp(x)
        ["ln/Sqrt"] v = Exp("ln/XU")
        [ln] y = LayerNormalization(v, w)
    }""".replace('"ln/XU"', "ln_XU").replace('["ln/Sqrt"]', "[ln_Sqrt]")
    )
    for node in model.graph.node:  # the text form has no names with a slash
        node.name = node.name.replace("_", "/")
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = name.replace("_", "/")
    graph = cut(model, [SMALL]).model.graph
    names = [node.name for node in graph] + [value.name for node in graph for value in node.outputs]
    assert len(set(names)) == len(names)
    assert {"ln/Sqrt", "ln/Sqrt_1", "ln/XU", "ln/XU_1"} <= set(names)


def test_dims_of_a_definition_are_known_over_symbols() -> None:
    graph = cut(text_model(NORM), [SMALL]).model.graph
    (root,) = (node for node in graph if node.name == "ln1/Sqrt")
    assert list(map(str, dims(root.outputs[0]))) == ["m*n", "1"]
    assert list(map(str, dims(graph.outputs[1]))) == ["n", "m", "8"]


def test_a_refusal_names_the_operator_and_the_part() -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        cut(text_model(NORM), [OpBackend("small", PARTS.replace("Sqrt ", ""))])
    lines = str(caught.value).splitlines()
    assert lines[0] == "no backend takes 2 nodes (asked: `small`)"
    assert lines[1].startswith("  node `ln1`: ai.onnx::LayerNormalization, opset 20")
    assert lines[2] == "    small: takes no LayerNormalization"
    assert re.match(r"    its definition by other operators \(\d+ nodes\) has", lines[3])
    assert lines[4].startswith("  node `ln1/Sqrt`: ai.onnx::Sqrt")
    assert lines[5] == "    small: takes no Sqrt"


def test_an_operator_without_a_definition_is_refused_itself() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"ai.onnx::Erf, .*\n.*takes no Erf\nadd a backend"):
        cut(text_model("g (float[4] x) => (float[4] y) { y = Erf(x) }"), [SMALL])


def test_what_a_graph_of_a_node_reads_is_left_where_it_is() -> None:
    """Narrow floats of late sizes are computed as float32; not around an If, whose branches read `x`."""
    text = """g (float16[n] x, bool[n] k, bool c) => (float16[m] y) {
        y = If (c) <
            then_branch = t () => (float16[a] p) { p = Compress <axis: int = 0> (x, k) },
            else_branch = e () => (float16[b] q) { q = Neg (x) }
        >
    }"""
    with pytest.raises(UnsupportedOperatorError, match=r"ai.onnx::If, .*\n.*`y` is not known before"):
        cut(text_model(text), [SMALL])


def test_a_definition_for_another_opset_is_not_taken() -> None:
    """Elu is defined by CastLike, which opset 14 does not have."""
    (node,) = load_model(text_model("g (float[4] x) => (float[4] y) { y = Elu(x) }", 14)).graph
    assert body_of(node, {"": 14}) is None
    assert body_of(node, {"": 18}) is not None


def test_expansions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farcall.graph._expand.MAX_NODES", 40)
    with pytest.raises(
        ModelError, match=r"it has \d+ nodes; expected at most 40: .* takes LayerNormalization"
    ):
        cut(text_model(NORM), [SMALL])


# ---- an If whose condition is known


def if_model() -> onnx.ModelProto:
    """Of a known rank, one branch stays; both read values of the graph around them."""

    def graph(name: str, text: str) -> onnx.GraphProto:
        return text_model(f"{name} () => (float[n] r, float[n] s) {{ {text} }}").graph

    chosen = graph(
        "a", "half = Constant <value = float {0.5}> () q = Mul(x, half) r = Exp(q) s = Identity(x)"
    )
    other = graph("b", "r = Erf(unused) s = Erf(x)")
    nodes = [
        helper.make_node("Erf", ["x"], ["unused"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Size", ["shape"], ["rank"]),
        helper.make_node("Equal", ["rank", "one"], ["flat"]),
        helper.make_node("If", ["flat"], ["y", "z"], "choice", then_branch=chosen, else_branch=other),
    ]
    names = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xyz"}
    one = helper.make_tensor("one", TensorProto.INT64, [], [1])
    graph_ = helper.make_graph(nodes, "g", [names["x"]], [names["y"], names["z"]], [one])
    return helper.make_model(graph_, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_branch_that_is_always_taken_stays_alone() -> None:
    partition = cut(if_model(), [SMALL])
    assert [node.name for node in partition.model.graph] == ["choice/Mul", "choice/Exp", "choice/Identity"]
    assert [value.name for value in partition.model.graph.outputs] == ["y", "z"]
    x = np.float32([1, 2])
    onnx.checker.check_model(proto := onnx_of(partition))
    y, z = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(y, np.exp(x / 2), rtol=1e-6)
    np.testing.assert_array_equal(z, x)


def onnx_of(partition: Partition) -> onnx.ModelProto:
    import onnx_ir as ir

    return ir.to_proto(partition.to_model())
