"""The partitioned model is ONNX: it checks, runs, and computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from farcall.errors import UsageError
from farcall.graph import Partition, Pattern, cut

from .graphs import FULL, C, OpBackend, random_dag, text_model, value

PATTERNS = [Pattern("add_relu", "Relu(Add(a, b))"), Pattern("conv_relu", "Relu(Conv(x, w, b?))")]
BACKENDS = [OpBackend("npu", "Relu Mul", PATTERNS), OpBackend("dsp", "Add"), C]


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, inputs))


def same_results(original: onnx.ModelProto, partition: Partition, **inputs: np.ndarray) -> onnx.ModelProto:
    proto: onnx.ModelProto = ir.to_proto(partition.to_model())
    onnx.checker.check_model(proto, full_check=True)
    for ours, theirs in zip(run(proto, inputs), run(original, inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return proto


def ramp(*shape: int) -> np.ndarray:
    return np.linspace(-2, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 40), st.floats(0, 0.6), st.integers(0, 1000))
def test_any_graph(count: int, foreign: float, seed: int) -> None:
    model = random_dag(count, foreign, seed)
    same_results(model, cut(model, BACKENDS), v0=ramp(4), v1=ramp(4) / 3)


def net() -> onnx.ModelProto:
    model = text_model("""net (float[n,3,8,8] x) => (float[n,10] y) {
    c = Conv<pads=[1,1,1,1]>(x, w, b)  r = Relu(c)  p = MaxPool<kernel_shape=[3,3], strides=[2,2]>(r)
    f = Flatten(p)  z = Gemm<transB=1>(f, v, d)  y = Add(z, d) }""")
    rng = np.random.default_rng(0)
    shapes = {"w": (4, 3, 3, 3), "b": (4,), "v": (10, 36), "d": (10,)}
    for name, shape in shapes.items():
        model.graph.initializer.append(
            numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        )
    return model


@pytest.mark.parametrize("batch", [1, 3])
def test_a_net_with_weights_and_a_symbolic_batch(batch: int) -> None:
    model = net()
    proto = same_results(model, cut(model, BACKENDS), x=ramp(batch, 3, 8, 8))
    assert [(node.domain, node.op_type) for node in proto.graph.node] == [
        ("npu", "npu_0"), ("c", "c_0"), ("dsp", "dsp_0"),
    ]  # fmt: skip
    functions = {function.name: function for function in proto.functions}
    assert [node.op_type for node in functions["npu_0"].node] == ["Conv", "Relu"]
    assert list(functions["npu_0"].input) == ["x", "w", "b"]
    assert {item.name for item in proto.graph.initializer} == {"w", "b", "v", "d"}
    versions = {item.domain: item.version for item in proto.opset_import}
    assert versions == {"": 20, "npu": 1, "c": 1, "dsp": 1}
    assert [item.dim_param or item.dim_value for item in proto.graph.input[0].type.tensor_type.shape.dim] == [
        "n", 3, 8, 8,
    ]  # fmt: skip


def test_optional_inputs_second_outputs_and_dead_outputs() -> None:
    model = text_model("""g (float[1,1,4,4] x) => (float[1,1,2,2] y, int64[1,1,2,2] i, float[1,1,4,4] z)
    <float top = {0.5}> { y, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)
    d, mask = Dropout(x)  c = Clip(d, , top)  z = Relu(c) }""")
    same_results(model, cut(model, BACKENDS), x=ramp(1, 1, 4, 4))


def test_inputs_and_weights_as_outputs() -> None:
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    graph = helper.make_graph(nodes, "g", [value("x")], [value("x"), value("w"), value("y")], [weights])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
    same_results(model, cut(model, BACKENDS), x=ramp(4))


def test_a_subgraph_keeps_what_it_reads_from_outside() -> None:
    then = helper.make_graph([helper.make_node("Neg", ["a"], ["t"])], "t", [], [value("t")])
    other = helper.make_graph([helper.make_node("Add", ["a", "w"], ["e"])], "e", [], [value("e")])
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    graph = helper.make_graph(nodes, "g", [condition, value("x")], [value("y")], [weights])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
    for truth in (True, False):
        same_results(model, cut(model, BACKENDS), c=np.array(truth), x=ramp(4))


def test_folded_shape_arithmetic_computes_the_same() -> None:
    model = text_model("""g (float[n, 8, h] x) => (float[?, ?] y)
    <int64 zero = {0}, int64[1] at = {0}, int64[1] rest = {-1}> {
    s = Shape(x)  g0 = Gather<axis=0>(s, zero)  u = Unsqueeze(g0, at)  t = Concat<axis=0>(u, rest)
    r = Reshape(x, t)  y = Relu(r) }""")
    partition = cut(model, FULL)
    assert [node.op_type for region in partition.regions for node in region.nodes] == ["Reshape", "Relu"]
    same_results(model, partition, x=ramp(3, 8, 5))


def test_the_partitioned_model_cuts_again() -> None:
    """Its functions are inlined, and the names of regions do not clash."""
    model = net()
    once = cut(model, BACKENDS).to_model()
    twice = cut(once, BACKENDS)
    assert [region.name for region in twice.regions] == ["npu_0", "c_0", "dsp_0"]
    same_results(model, twice, x=ramp(2, 3, 8, 8))


def test_save_writes_one_file_and_leaves_no_other(tmp_path: Path) -> None:
    partition = cut(net(), BACKENDS)
    target = tmp_path / "parts.onnx"
    target.write_text("old")
    partition.save(target)
    assert [path.name for path in tmp_path.iterdir()] == ["parts.onnx"]
    onnx.checker.check_model(onnx.load(target), full_check=True)


def test_save_reads_weights_in_from_external_files(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "target").mkdir()
    source = tmp_path / "source" / "m.onnx"
    model = net()
    onnx.save(model, source, save_as_external_data=True, location="m.data", size_threshold=0)
    target = tmp_path / "target" / "parts.onnx"
    cut(source, BACKENDS).save(target)
    x = ramp(2, 3, 8, 8)
    np.testing.assert_array_equal(run(onnx.load(target), {"x": x})[0], run(net(), {"x": x})[0])


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    partition = cut(net(), BACKENDS)
    with pytest.raises(UsageError, match=r"cannot write .*none/m\.onnx.*No such file or directory"):
        partition.save(tmp_path / "none" / "m.onnx")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        partition.save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
