"""Cutting models: the assignment of nodes to backends, and the values that cross region borders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from farcall.errors import BackendError, ModelError, UnsupportedOperatorError, UsageError
from farcall.graph import Match, Partition, Pattern, UnknownShapeError, cut, load_model
from farcall.graph._check import check_partition
from farcall.graph.dims import dims

from .graphs import FULL, KINDS, NPU, C, OpBackend, chain, random_dag, text_model, value

CONV_RELU = OpBackend("npu", "", [Pattern("conv_relu", "Relu(Conv(x, w, b?))")])
NET = """net (float[n,3,8,8] x, float[4,3,3,3] w, float[10,64] v, float[10] b) => (float[n,10] y) {
c = Conv<pads=[1,1,1,1]>(x, w)  r = Relu(c)  p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
f = Flatten(p)  y = Gemm<transB=1>(f, v, b) }"""


def parts(partition: Partition) -> dict[str, list[str]]:
    """Region name -> its patterns."""
    return {region.name: [match.pattern for match in region.matches] for region in partition.regions}


def names(values: tuple[ir.Value, ...]) -> list[str | None]:
    return [item.name for item in values]


def test_patterns_go_to_their_backend_and_the_rest_to_the_next() -> None:
    partition = cut(text_model(NET), [CONV_RELU, C])
    check_partition(partition)
    assert parts(partition) == {"npu_0": ["conv_relu"], "c_0": ["MaxPool", "Flatten", "Gemm"]}
    npu, rest = partition.regions
    assert [node.op_type for node in npu.nodes] == ["Conv", "Relu"]
    assert names(npu.inputs) == ["x", "w"]
    assert names(npu.outputs) == names(rest.inputs[:1]) == ["r"]
    assert str(partition.signature.outputs[0]) == "y: float32[n, 10]"


class Faulty(OpBackend):
    """A backend with one fault: ``act`` is called instead of its check, or of its patterns."""

    def __init__(self, act: Callable[[], object], where: str = "check") -> None:
        patterns = [Pattern("two", "Exp(Relu(x))", check=lambda _: act())] if where == "pattern" else ()
        super().__init__("bad", "", patterns)
        self._act, self._where = act, where

    def patterns(self) -> Sequence[Pattern]:
        return self._act() if self._where == "patterns" else super().patterns()  # type: ignore[return-value]

    def check(self, node: ir.Node) -> str | None:
        return self._act() if self._where == "check" else super().check(node)  # type: ignore[return-value]


def fault() -> object:
    return {}["axis"]


NODE = r"node `\w+`: ai.onnx::{}, opset 20, \(.*: float32\[4\]\) -> \(.*: float32\[4\]\)"


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (Faulty(fault), f"backend `bad`, its check of {NODE.format('Relu')} raised KeyError: 'axis'"),
        (Faulty(lambda: True), f"its check of {NODE.format('Relu')} gave True; expected None, or why not"),
        (
            Faulty(fault, "pattern"),
            f"backend `bad`, pattern two: its check of {NODE.format('Exp')} raised KeyError: 'axis'",
        ),
        (Faulty(fault, "patterns"), r"backend `bad`: its patterns\(\) raised KeyError: 'axis'"),
        (Faulty(lambda: None, "patterns"), r"backend `bad`: its patterns\(\) raised TypeError"),
        (
            Faulty(lambda: ["Relu(x)"], "patterns"),
            r"backend `bad`: its patterns\(\) gave 'Relu\(x\)'; expected farcall.graph.Pattern",
        ),
        (
            Faulty(lambda: [Pattern("p", "Relu(x")], "patterns"),
            r"backend `bad`: its patterns\(\): pattern 'Relu\(x': expected",
        ),
    ],
)
def test_what_a_backend_gets_wrong_has_its_name_and_the_node(backend: Faulty, message: str) -> None:
    model = text_model("g (float[4] x) => (float[4] y) { a = Relu(x) y = Exp(a) }")
    with pytest.raises(BackendError, match=message):
        cut(model, [backend, C])


def test_errors_of_farcall_s_own_pass_through_a_backend() -> None:
    def refuse() -> object:
        raise ModelError("only models of mine")

    with pytest.raises(ModelError) as error:
        cut(chain(1), [Faulty(refuse), C])
    assert str(error.value) == "only models of mine"


def test_priority_is_the_order_of_backends() -> None:
    model = text_model("g (float[4] x) => (float[4] y) { a = Relu(x) b = Exp(a) y = Relu(b) }")
    assert parts(cut(model, [NPU, C])) == {"npu_0": ["Relu"], "c_0": ["Exp"], "npu_1": ["Relu"]}
    assert parts(cut(model, [C, NPU])) == {"c_0": ["Relu", "Exp", "Relu"]}


def test_a_backends_first_pattern_goes_first_and_patterns_before_single_nodes() -> None:
    model = text_model("g (float[4] x) => (float[4] y) { a = Exp(x) b = Neg(a) c = Abs(b) y = Relu(c) }")
    wanted = [
        Pattern("late", "Relu(Abs(x))"),
        Pattern("early", "Abs(Neg(x))"),
        Pattern("pair", "Neg(Exp(x))"),
    ]
    assert parts(cut(model, [OpBackend("c", None, wanted)])) == {"c_0": ["pair", "late"]}
    assert parts(cut(model, [OpBackend("c", None, wanted[1:])])) == {"c_0": ["Exp", "early", "Relu"]}


def test_a_match_that_check_refuses_falls_to_single_nodes_and_the_reason_is_kept() -> None:
    def check(match: Match) -> str | None:
        return "kernel is not 1x1" if dims(match.root.outputs[0])[1] == 4 else None

    model = text_model(NET)
    partition = cut(model, [OpBackend("npu", "", [Pattern("conv_relu", "Relu(Conv(x, w))", check)]), C])
    assert [region.backend for region in partition.regions] == ["c"]
    refused = [
        ("npu", "refused", "pattern conv_relu: kernel is not 1x1"),
        ("npu", "refused", "takes no Relu"),
    ]
    assert {node.op_type: why for node, why in partition.answers.items()}["Relu"] == refused


def test_an_unknown_shape_in_a_check_is_a_reason() -> None:
    class Shapes(OpBackend):
        def check(self, node: ir.Node) -> str | None:
            return None if len(dims(node.outputs[0])) == 1 else "rank"

    model = text_model(
        "g (float[4] x, int64[k] s) => (float[...] y) { y = Reshape(x, s) }".replace("...", "p,q")
    )
    with pytest.raises(UnsupportedOperatorError, match="the shape of `y` is not known"):
        cut(model, [Shapes("npu")])
    assert issubclass(UnknownShapeError, Exception)


def test_a_constant_shared_by_regions_is_a_constant_of_each() -> None:
    model = text_model("""g (float[4] x) => (float[4] y) <float[4] w = {1.0, 2.0, 3.0, 4.0}>
    { a = Add(x, w) b = Exp(a) y = Add(b, w) }""")
    partition = cut(model, FULL)
    check_partition(partition)
    assert parts(partition) == {"npu_0": ["Add"], "c_0": ["Exp"], "npu_1": ["Add"]}
    assert [names(region.constants) for region in partition.regions] == [["w"], [], ["w"]]
    assert [names(region.inputs) for region in partition.regions] == [["x"], ["a"], ["b"]]


def test_a_value_that_crosses_many_times_is_listed_once() -> None:
    model = text_model("""g (float[4] x) => (float[4] y, float[4] z) {
    a = Exp(x) y = Add(a, a) b = Mul(a, x) z = Sub(b, x) }""")
    partition = cut(model, FULL)
    check_partition(partition)
    first = partition.regions[0]
    assert names(first.outputs) == ["a"]
    assert all(names(region.inputs).count("a") == 1 for region in partition.regions[1:])


def test_several_outputs_unused_outputs_and_absent_inputs() -> None:
    model = text_model("""g (float[1,1,4,4] x) => (float[1,1,2,2] y, int64[1,1,2,2] i, float[1,1,4,4] z)
    <float top = {0.5}> { y, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)
      d, mask = Dropout(x)  z = Clip(d, , top) }""")
    partition = cut(model, [C])
    check_partition(partition)
    assert {name for region in partition.regions for name in names(region.outputs)} == {"y", "i", "z"}


def test_outputs_that_are_inputs_or_constants() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    outputs = [value("x"), value("w"), value("y")]
    graph = helper.make_graph([node], "g", [value("x")], outputs, [weights])
    partition = cut(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), [C])
    check_partition(partition)
    assert [region.name for region in partition.regions] == ["c_0"]
    assert names(tuple(partition.model.graph.outputs)) == ["x", "w", "y"]


def test_a_model_without_nodes_has_no_regions() -> None:
    graph = helper.make_graph([], "g", [value("x")], [value("x")])
    partition = cut(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), [C])
    assert partition.regions == ()
    assert str(partition)
    assert [box.lines[0] for box in partition.diagram().boxes] == ["x", "x"]


def test_what_a_subgraph_reads_enters_the_region() -> None:
    branch = helper.make_graph([helper.make_node("Neg", ["a"], ["b"])], "b", [], [value("b")])
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "g", [condition, value("x")], [value("y")])
    partition = cut(
        helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), FULL
    )
    check_partition(partition)
    relu, branches = partition.regions
    assert names(relu.outputs) == ["a"]
    assert names(branches.inputs) == ["c", "a"]


def test_nobody_takes_a_node() -> None:
    model = text_model("""g (float[n, 4] x, float[4, 5] w) => (float[n, 5] y, float[n, 5] z) {
    y = MatMul(x, w) z = Tanh(y) }""")
    with pytest.raises(UnsupportedOperatorError) as caught:
        cut(model, [NPU, OpBackend("dsp", "Tanh")])
    text = str(caught.value)
    assert "no backend takes 1 node (asked: `npu`, `dsp`)" in text
    assert "ai.onnx::MatMul, opset 20, (x: float32[n, 4], w: float32[4, 5]) -> (y: float32[n, 5])" in text
    assert "npu: takes no MatMul" in text and "dsp: takes no MatMul" in text
    assert "Tanh" not in text
    assert "add a backend" in text


def test_many_that_nobody_takes_are_counted() -> None:
    with pytest.raises(
        UnsupportedOperatorError, match=r"no backend takes 40 nodes.*\n(.*\n)*.*and 35 more: Max"
    ):
        cut(chain(40), [OpBackend("npu", "Exp")])


@pytest.mark.parametrize(
    ("backends", "message"),
    [
        ([], "at least one backend"),
        ([C, OpBackend("c")], "`c` is given twice"),
        ([OpBackend("my npu")], "C identifier"),
    ],
)
def test_backends_that_cannot_be_told_apart_are_refused(backends: list[OpBackend], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cut(chain(1), backends)


PATTERNS = [Pattern("add_relu", "Relu(Add(a, b))"), Pattern("mul_add", "Add(Mul(a, b), c)")]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.floats(0, 1), st.integers(0, 10_000))
def test_any_graph_gives_a_right_partition(count: int, foreign: float, seed: int) -> None:
    backends = [OpBackend("npu", "Relu Add", PATTERNS), OpBackend("dsp", "Mul"), C]
    check_partition(cut(random_dag(count, foreign, seed), backends))


@pytest.mark.parametrize("kind", KINDS)
def test_the_graphs_of_the_benchmark(kind: str) -> None:
    partition = cut(KINDS[kind](400), FULL)
    check_partition(partition)
    expected = {"chain": 1, "every tenth node foreign": 80, "diamonds": 200}
    assert len(partition.regions) == expected.get(kind, len(partition.regions))


def test_a_deep_chain_needs_no_recursion() -> None:
    partition = cut(chain(10_000), FULL)
    assert len(partition.regions) == 1
    assert len(partition.regions[0].nodes) == 10_000


def test_the_partition_is_the_same_each_time() -> None:
    first, second = (parts(cut(random_dag(80, 0.3, 5), FULL)) for _ in range(2))
    assert first == second


def test_a_loaded_model_is_not_loaded_again() -> None:
    model = load_model(chain(3))
    assert cut(model, [C]).model is model
