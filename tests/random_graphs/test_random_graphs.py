"""A few random graphs; `make fuzz-graphs` compares many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from .building import Graph, Step
from .comparing import (
    BATCH,
    Case,
    _runs,
    compare,
    fault,
    minimized,
    random_graph,
    save,
    setting_of,
    stretches,
)
from .guards import RULES, SKIPS, Skip, guard


@pytest.mark.parametrize("batch", [0, 3, 7, 11])
@pytest.mark.filterwarnings("ignore")
def test_random_graphs_agree_with_onnxruntime(batch: int) -> None:
    report = compare(range(batch * BATCH, batch * BATCH + 16))
    assert report.failures == {}
    assert report.compared >= 8, report.refused


def test_a_seed_is_one_graph() -> None:
    one, other = (random_graph(40, 17).model() for _ in range(2))
    assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


def test_what_rounding_errors_explain_is_no_fault() -> None:
    theirs = np.float32([1, 2, 3])
    assert fault(theirs + np.float32(1e-6), theirs, [theirs]) is None
    assert "1 of 3 elements differ, at [1]: 2.5, expected 2" in str(
        fault(np.float32([1, 2.5, 3]), theirs, [theirs])
    )
    assert fault(np.float32([1, 2.1, 3]), theirs, [np.float32([1, 2.01, 3])]) is None
    assert fault(np.bool_([True]), np.bool_([False]), [np.bool_([True])]) is None
    assert fault(np.int64([3]), np.int64([2]), [np.int64([2])])
    assert "int64[1], expected int32[1]" in str(fault(np.int64([3]), np.int32([2]), [np.int32([2])]))


@pytest.mark.filterwarnings("ignore")
def test_a_failure_is_minimized_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """A graph in which Neg would be wrong."""
    monkeypatch.setattr(
        "tests.random_graphs.comparing.alone",
        lambda graph: {1: "wrong"} if any(s.node.op_type == "Neg" for s in graph.steps) else {},
    )
    nodes = [("Abs", "x", "a"), ("Neg", "a", "b"), ("Abs", "b", "y"), ("Relu", "b", "z")]
    graph = Graph(1, 17, {"x": np.ones(2, np.float32)})
    graph.steps = [Step(onnx.helper.make_node(op, [x], [y]), 17) for op, x, y in nodes]
    graph.outputs, graph.types = ["y", "z"], dict.fromkeys("yz", np.dtype("float32"))
    small = minimized(graph)
    assert [step.node.op_type for step in small.steps] == ["Neg", "Relu"]
    path = save(small, tmp_path)  # type: ignore[arg-type]
    assert onnx.load(path).graph.input[0].name == "a"
    assert np.load(path.with_suffix(".npz"))["expected z"].tolist() == [0, 0]


def test_results_that_are_no_better_than_float32_may_move_as_far() -> None:
    x = np.float64([[[1, 2, 3, 5]]])
    node = onnx.helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=1)
    one = Graph(1, 21, {"x": x, "s": np.ones(1), "b": np.zeros(1)}, steps=[Step(node, 21)], outputs=["y"])
    one.steps[0].validate(list(one.inputs.values()))
    case = Case.of(one, one.inputs)
    assert case.fault([case.values["y"] * (1 + 1e-7)]) is None
    assert case.fault([case.values["y"] * (1 + 1e-3)])


def misfits(op: str, *shapes: tuple[int, ...], domain: str = "com.microsoft") -> Case:
    inputs = {f"x{i}": np.ones(shape, np.float32) for i, shape in enumerate(shapes)}
    step = Step(onnx.helper.make_node(op, list(inputs), ["y"], domain=domain), 23)
    return Case.of_misfits(Graph(1, 23, inputs, steps=[step], outputs=["y"]), inputs)


def test_what_onnxruntime_refuses_may_be_stretched() -> None:
    case = misfits("BiasGelu", (2, 3), (1,))
    assert "BiasGelu" in case.refused
    assert case.fault([case.values["y"]]) is None
    assert case.fault([case.values["y"][:1]])
    assert "refuses these inputs" in str(misfits("BiasGelu", (2, 3), (2,)).fault([np.ones(1)]))


@pytest.mark.parametrize(
    "shapes", [((2, 3, 4), (3, 3, 4), (4,)), ((2, 3, 4), (2, 1, 4), (4,)), ((2, 3, 4), (1, 3, 4), (4,))]
)
def test_skips_of_other_shapes_than_onnxruntime_tells_are_misfits(shapes: Sequence[tuple[int, ...]]) -> None:
    case = misfits("SkipLayerNormalization", *shapes)
    assert bool(case.refused) == (shapes[1][:2] != (1, 3))
    assert bool(case.values) == (shapes[1][0] != 3)


@pytest.mark.filterwarnings("ignore")
def test_few_rounding_errors_that_go_one_way_prove_nothing() -> None:
    """Round of a number beside a half, which three rounding errors left where it was."""
    x = np.float32([0.5, 3, 5])
    one = Graph(
        1, 21, {"x": x}, steps=[Step(onnx.helper.make_node("Round", ["x"], ["y"]), 21)], outputs=["y"]
    )
    one.steps[0].validate([x])
    case = Case(one, one.inputs, {"y": np.float32([0, 3, 5])}, [{"y": np.float32([0, 3, 5])}] * 3)
    assert case.fault([np.float32([1, 3, 5])]) is None
    assert case.fault([np.float32([0, 4, 5])])


def test_the_nearest_elements_of_any_type_are_those_that_onnxruntime_takes() -> None:
    """In float64, the reference takes the fourth element; the place is 3.4999998 in float32."""
    x, sizes = np.arange(14, dtype=np.float64).reshape(1, 1, 14), np.int64([1, 1, 8])
    more = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    step = Step(onnx.helper.make_node("Resize", ["x", "", "", "k"], ["y"], mode="nearest", **more), 18)
    step.validate([x, sizes])
    assert step(x, sizes)[0].ravel().tolist() == [0, 1, 3, 5, 6, 8, 10, 12]


def test_a_computed_dim_of_1_is_not_stretched_either() -> None:
    """Parts of 2 and 1 of 3 elements, which onnxruntime subtracts, are refused by their sizes."""
    text = (
        "expected -floor(n_1/2 + 1/2) == -n_1 + floor(n_1/2 + 1/2) with n_1={}; pass arguments of other sizes"
    )
    assert [stretches(text.format(n)) for n in (2, 3, 5)] == [True, True, False]


def test_means_that_are_large_beside_deviations_are_not_compared() -> None:
    node = onnx.helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[0])
    guard(node, [np.float32([1, 2, 3])])
    with pytest.raises(Skip):
        guard(node, [np.float32([1, 1, 1.01])])


def test_batches_of_a_lower_level() -> None:
    """Some are built as users build, and some for each level that this machine runs."""
    settings = [setting_of(batch * BATCH) for batch in range(500)]
    assert 0.02 < sum(one.optimized for one in settings) / 500 < 0.06
    if _runs("x86-64-v3"):
        assert {str(one.target).rpartition(":")[2] for one in settings} == {"None", "x86-64", "x86-64-v3"}


CAUSAL = onnx.helper.make_node("Attention", ["q", "k", "v", "", "p", "r"], ["y"], is_causal=1)
ROTARY = onnx.helper.make_node("RotaryEmbedding", ["x", "at", "c", "s"], ["y"], domain="com.microsoft")
LOSS = onnx.helper.make_node("SoftmaxCrossEntropyLoss", ["x", "t", "w"], ["y"])
LINEAR = onnx.helper.make_node(
    "LinearClassifier",
    ["x"],
    ["y", "z"],
    domain="ai.onnx.ml",
    coefficients=[1.0] * 6,
    classlabels_ints=[0, 1],
)
TRAINED = onnx.helper.make_node(
    "Momentum", ["r", "t", "x", "g", "v"], ["y", "z"], domain="ai.onnx.preview.training"
)
SUM = onnx.helper.make_node("ReduceSum", ["x"], ["y"], axes=[-2])
ARGMAX = onnx.helper.make_node("ArgMax", ["x"], ["y"], axis=-1)
JOIN = onnx.helper.make_node("Concat", ["a", "b"], ["y"], axis=0)
FEATURES = onnx.helper.make_node("FeatureVectorizer", ["x"], ["y"], domain="ai.onnx.ml")
IMPUTER = onnx.helper.make_node(
    "Imputer", ["x"], ["y"], domain="ai.onnx.ml", imputed_value_floats=[1.0, 2.0, 3.0]
)
MASKED = onnx.helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])
GROUPED = onnx.helper.make_node("Attention", ["q", "k", "v"], ["y"], q_num_heads=4, kv_num_heads=2)
RECURRENT = onnx.helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=4)
HEADS = onnx.helper.make_node(
    "MultiHeadAttention", ["q", "k", "v"], ["y"], domain="com.microsoft", num_heads=2
)
SPREAD = onnx.helper.make_node("ConvTranspose", ["x", "w"], ["y"])
GATHER = onnx.helper.make_node("GatherND", ["x", "at"], ["y"])
MATMUL = onnx.helper.make_node("MatMul", ["a", "b"], ["y"])


@pytest.mark.parametrize(
    ("node", "shapes", "others"),
    [
        (CAUSAL, [(1, 2, 2, 4), *[(1, 2, 3, 4)] * 4], [(1, 2, 1, 4), *[(1, 2, 3, 4)] * 4]),
        (ROTARY, [(1, 1, 1, 8), (1, 1), (9, 4)], [(1, 1, 1, 4), (1, 1), (9, 4)]),
        (LOSS, [(3, 5), (3,), (5,)], [(3, 7), (3,), (5,)]),
        (LINEAR, [(2, 3)], [(2, 2)]),
        (TRAINED, [(), (), (3, 2), (3, 2), (3, 2)], [(), (), (3, 2), (3, 2), (3, 1)]),
        (SUM, [(3, 2)], [(3, 0)]),
        (ARGMAX, [(3, 2)], [(0, 2)]),
        (JOIN, [(2, 0), (3, 0)], [(2, 0, 1), (3, 0, 2)]),
        (FEATURES, [(1, 2)], [(0, 2)]),
        (IMPUTER, [(2, 3)], [(2, 4)]),
        (
            MASKED,
            [(1, 1, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4), (3, 5)],
            [(1, 1, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4), (1, 5)],
        ),
        (GROUPED, [(2, 1, 16), (2, 1, 8), (2, 1, 8)], [(2, 1, 16), (2, 1, 2), (2, 1, 8)]),
        (RECURRENT, [(1, 1, 2), (1, 4, 2), (1, 4, 4)], [(1, 1, 2), (1, 3, 2), (1, 3, 3)]),
        (MATMUL, [(3, 4, 0), (3, 0, 6)], [(3, 4, 0), (6, 0, 6)]),
        (SPREAD, [(1, 1, 0, 2), (1, 1, 1, 1)], [(1, 1, 2, 0, 2), (1, 1, 1, 1, 1)]),
        (GATHER, [(1, 0), (3, 2, 1)], [(0, 2), (3, 2, 1)]),
        (HEADS, [(2, 0, 4), (2, 3, 4), (2, 3, 4)], [(2, 1, 4), (2, 3, 4), (2, 3, 0)]),
    ],
)
def test_what_onnxruntime_is_not_asked(
    node: onnx.NodeProto, shapes: Sequence[tuple[int, ...]], others: Sequence[tuple[int, ...]]
) -> None:
    guard(node, [np.zeros(shape) for shape in shapes])
    with pytest.raises(Skip):
        guard(node, [np.zeros(shape) for shape in others])


def test_each_rule_is_for_operators_that_exist() -> None:
    known = (
        {schema.name for schema in onnx.defs.get_all_schemas_with_history()} | SKIPS | {"MultiHeadAttention"}
    )
    assert not RULES.keys() - known
    assert all(rule.reason for rules in RULES.values() for rule in rules)
