"""Models of a few hundred bytes that declare huge tensors or many nodes: loading does not build them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from farcall.errors import ModelError
from farcall.graph import _constants, load_model
from farcall.graph.dims import dims, is_large, late, parse, same, symbol

from ..programs import output_of
from .graphs import text_model

ZEROS = "<int64[1] size = {1099511627776}> { c = ConstantOfShape<value = int64[1] {0}>(size)"
LONG = {
    "its elements as other numbers": (
        20,
        f"g (float[1] x) => (float[n] y) {ZEROS} d = Cast<to=1>(c) y = Add(x, d) }}",
    ),
    "as indices": (20, f"g (float[2] x) => (float[n] y) {ZEROS} y = Gather(x, c) }}"),
    "as a shape": (11, f"g (float[2] x) => (float[a,b,c] y) {ZEROS} y = Expand(x, c) }}"),
    "an input as a shape": (
        11,
        "g (float[2] x, int64[1099511627776] c) => (float[a] y) { y = Expand(x, c) }",
    ),
}
LOADED = """
import json, resource, sys
from farcall.graph import load_model
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
def outcome(path):
    try:
        return [str(value.shape) for value in load_model(path).graph.outputs]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
print(json.dumps({path: outcome(path) for path in sys.argv[1:]}))
"""


def test_a_tensor_of_2_to_the_40_elements_is_not_made(tmp_path: Path) -> None:
    """In a process that has 3 GiB: ONNX's own inference, following data, takes all of it and fails."""
    for name, (opset, source) in LONG.items():
        onnx.save(text_model(source, opset), tmp_path / name)
    paths = [tmp_path / name for name in LONG]
    found = json.loads(output_of("-c", LOADED, *paths, seconds=60))
    size = "[1099511627776]"
    assert list(found.values()) == [[size], [size], ["[y_dim0,y_dim1,y_dim2]"], ["[y_dim0]"]]


def test_the_shape_of_an_old_expand_is_found_as_before() -> None:
    """Its length is hidden from ONNX's inference only, not from farcall's rule or in the loaded model."""
    source = """g (float[1,4] x, float[n,4] t) => (float[?,?] y, float[?,?,?] z) <int64[3] size = {2, 3, 4}> {
        s = Shape(t)  y = Expand(x, s)  z = Expand(x, size) }"""
    model = load_model(text_model(source, opset=11))
    assert [str(value.shape) for value in model.graph.outputs] == ["[n,4]", "[2,3,4]"]
    assert sorted(node.op_type for node in model.graph) == ["Expand", "Expand", "Shape"]


def test_many_constants_are_made_up_to_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty constants of 64 KiB each, any of which could be computed."""
    monkeypatch.setattr(_constants, "MAX_BYTES", 256 << 10)
    sums = "".join(
        f"c{i} = ConstantOfShape<value = float[1] {{{i}.0}}>(size)  x{i + 1} = Add(x{i}, c{i}) "
        for i in range(30)
    )
    source = f"g (float[16384] x0) => (float[n] y) <int64[1] size = {{16384}}> {{ {sums} y = Relu(x30) }}"
    operators = [node.op_type for node in load_model(text_model(source)).graph]
    assert operators.count("ConstantOfShape") == 26


def test_a_constant_is_as_large_as_its_operands_make_it_not_as_it_is_declared() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["root", "root"], ["depth"]),
            helper.make_node("OneHot", ["index", "depth", "values"], ["c"]),
            helper.make_node("Add", ["x", "c"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])],
        [
            helper.make_tensor("root", TensorProto.INT64, [1], [1 << 20]),
            helper.make_tensor("index", TensorProto.INT64, [1], [0]),
            helper.make_tensor("values", TensorProto.FLOAT, [2], [0, 1]),
        ],
        value_info=[helper.make_tensor_value_info("c", TensorProto.FLOAT, [1, 1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    loaded = load_model(model)
    assert "OneHot" in [node.op_type for node in loaded.graph]  # not computed
    assert dims(loaded.graph.outputs[0]) == (1, 1 << 40)


def test_a_pooling_that_pads_without_end_is_not_computed() -> None:
    far = 1 << 40
    pool = f"MaxPool<kernel_shape=[{far}], pads=[{far - 1},{far - 1}], strides=[{far // 2}]>(k)"
    nodes = f"<float[1,1,4] k = {{1,2,3,4}}> {{ m = {pool} y = Add(x, m) }}"
    source = f"g (float[1,1,n] x) => (float[1,1,m] y) {nodes}"
    assert "MaxPool" in [node.op_type for node in load_model(text_model(source)).graph]


def test_arithmetic_on_shapes_that_overflows_is_refused() -> None:
    nodes = "s = Shape(x)  a = Mul(s, s)  b = Mul(a, a)  y = Reshape(x, b)"
    source = f"g (float[1073741824] x) => (float[n] y) {{ {nodes} }}"
    with pytest.raises(ModelError, match=rf"\(Mul\): its result does not fit into 64 bits: {2**120}"):
        load_model(text_model(source))


def test_a_range_of_all_numbers_is_not_followed() -> None:
    constants = f"int64 a = {{{-(2**63)}}}, int64 b = {{{2**63 - 1}}}, int64 one = {{1}}"
    source = f"g (float[2] x) => (int64[n] y) <{constants}> {{ r = Range(a, b, one)  y = Identity(r) }}"
    load_model(text_model(source))


def test_a_symbol_as_a_condition_is_not_known() -> None:
    """The condition is false if the dim is 0."""
    source = """g (float[n] x) => (float[k] y) <int64[1] one = {1}, int64[1] two = {2}> {
        s = Shape(x)  c = Cast<to=9>(s)  w = Where(c, one, two)  y = ConstantOfShape(w) }"""
    assert late(load_model(text_model(source)).graph.outputs[0]) == ("y_dim0",)


def test_dims_that_double_from_node_to_node_are_given_up() -> None:
    steps = "".join(
        f"p{i} = MaxPool<kernel_shape=[2], strides=[2]>(x{i})  x{i + 1} = Concat<axis=2>(x{i}, p{i}) "
        for i in range(60)
    )
    source = f"g (float[1,1,n] x0) => (float[a,b,c] y) {{ {steps} y = Relu(x60) }}"
    assert any(late(value) for node in load_model(text_model(source)).graph for value in node.outputs)


def test_dims_are_compared_by_at_most_so_many_terms() -> None:
    names = [symbol(f"n{i}") for i in range(40)]
    left = right = 1
    for name in names[1:]:
        left, right = left * (name + 1), right * (name + 1)
    assert not same(left * (names[0] + 1), left * names[0] + right)  # equal, after 2**40 terms
    assert same((names[0] + 1) * (names[1] + 1), parse("n0*n1 + n0 + n1 + 1"))
    assert not is_large(left)


def test_functions_that_call_each_other_twice_are_counted_before_they_are_inlined() -> None:
    imports = '<domain: "f", opset_import: ["": 20, "f": 1]>'
    functions = "".join(
        f"{imports} f{i} (x) => (y) {{ a = f.f{i + 1}(x)  y = f.f{i + 1}(a) }}" for i in range(40)
    )
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 20, "f": 1]>
        g (float[2] x) => (float[2] y) {{ y = f.f0(x) }} {functions}
        <domain: "f", opset_import: ["": 20]> f40 (x) => (y) {{ y = Relu(x) }}""")
    with pytest.raises(
        ModelError, match=r"its functions, inlined, are [\d,]+ nodes; expected at most 1,000,000"
    ):
        load_model(model)


def test_a_shape_behind_an_output_without_one_is_found_from_data() -> None:
    """ONNX's checker requires a shape for each output; this one is known only after data propagation."""
    model = text_model("g (float[n,4] x) => (float[?] y) { s = Size(x) z = Shape(x) y = Reshape(x, z) }")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert [str(dim) for dim in dims(load_model(model).graph.outputs[0])] == ["n", "4"]
