"""load_model: accepted sources, refused ones, and the form of the result."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from farcall.errors import MissingDataError, MissingFileError, ModelError, UsageError
from farcall.graph import load_model
from farcall.graph.dims import dims, text

from .graphs import chain, text_model, value

WEIGHTS = np.arange(1024, dtype=np.float32).reshape(256, 4)


def with_weights() -> onnx.ModelProto:
    model = text_model("g (float[n, 256] x) => (float[n, 4] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(WEIGHTS, "w"))
    return model


def with_function() -> onnx.ModelProto:
    return onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "mine": 1]>
        g (float[n, 4] x) => (float[n, 4] y) { a = mine.twice(x)  y = mine.twice(a) }
        <domain: "mine", opset_import: ["": 20]> twice (x) => (y) { t = Relu(x)  y = Add(t, x) }""")


def test_a_path_a_proto_and_an_ir_model_are_taken(tmp_path: Path) -> None:
    proto = with_weights()
    onnx.save(proto, tmp_path / "m.onnx")
    for source in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), proto, ir.from_proto(proto)):
        model = load_model(source)
        assert [node.op_type for node in model.graph] == ["MatMul"]
        weights = model.graph.initializers["w"].const_value
        assert weights is not None
        np.testing.assert_array_equal(weights.numpy(), WEIGHTS)


def test_what_is_given_is_not_changed() -> None:
    proto = text_model("g (float[n] x) => (float[n] y) { c = Constant<value_float=2.0>() y = Mul(x, c) }")
    before = proto.SerializeToString()
    load_model(proto)
    assert proto.SerializeToString() == before
    model = ir.from_proto(proto)
    before = ir.to_proto(model).SerializeToString()
    load_model(model)
    assert ir.to_proto(model).SerializeToString() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an ONNX model: the file is empty"),
        (b"hello, this is text\n", "is not an ONNX model: it is text, starting with 'hello,'"),
        (os.urandom(2000), "is not an ONNX model: its 2,000 bytes"),
        (b"PK\x03\x04" + bytes(50), "is not an ONNX model: it is a zip file.*torch.onnx.export"),
        (b"\x7fELF" + bytes(50), "is not an ONNX model: it is an ELF file.*load_module"),
        (b"\x08\x0a", "is not an ONNX model: its 2 bytes are not a ModelProto with a graph"),
    ],
    ids=["empty", "text", "random", "zip", "elf", "no graph"],
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(with_weights().SerializeToString()[:-100])
    with pytest.raises(ModelError, match="not an ONNX model"):
        load_model(path)


def test_no_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"no such file: .*none\.onnx"):
        load_model(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        load_model(tmp_path)


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"expected a path, an onnx\.ModelProto or an onnx_ir\.Model, got int"
    ):
        load_model(3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g (float[4] x) => (float[4] y) { y = Relu(nothing) }", "nothing"),
        ("g (float[4] x) => (float[4] y) { y = NoSuchOperator(x) }", "NoSuchOperator"),
        ("g (float[4] x) => (float[4] y) { y = Relu(x, x) }", "Relu"),
        ("g (float[2,3] x) => (float[2,5] y) { y = MatMul(x, x) }", "MatMul"),
        ("g (float[4] x) => (int64[4] y) { y = Relu(x) }", "Relu"),
    ],
    ids=["missing value", "unknown operator", "arity", "dims that do not fit", "wrong dtype"],
)
def test_invalid_onnx_is_refused(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=f"is not valid ONNX: .*{message}"):
        load_model(text_model(text))


@pytest.mark.parametrize("declared", ["5", "4,1", ""])
def test_wrong_dims_of_a_result_are_not_believed(declared: str) -> None:
    """As skl2onnx declares them for PLSRegression, and for pairs of classifiers."""
    model = load_model(text_model(f"g (float[4] x) => (float[{declared}] y) {{ y = Relu(x) }}"))
    assert dims(model.graph.outputs[0]) == (4,)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files_load_or_are_refused_and_nothing_else(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(with_function().SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with contextlib.suppress(ModelError):
        assert load_model(path).graph is not None


@pytest.mark.parametrize("opset", [20, 21])
def test_a_function_that_reads_what_it_does_not_have_is_refused(opset: int) -> None:
    """In the opset of the model, and in another one, where ONNX's checker does not see it."""
    proto = with_function()
    proto.functions[0].node[0].output[0] = "u"
    proto.functions[0].opset_import[0].version = opset
    with pytest.raises(ModelError, match=r"function `twice`: node `y` \(Add\) reads `t`; expected an input"):
        load_model(proto)


def test_a_graph_in_a_function_that_reads_what_nothing_makes_is_refused() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "mine": 1]>
        g (bool c, float[4] x) => (float[4] y) { y = mine.either(c, x) }
        <domain: "mine", opset_import: ["": 21]> either (c, x) => (y) {
          y = If (c) <then_branch = a () => (float[4] t) { t = Relu(u) },
                      else_branch = b () => (float[4] e) { e = Neg(x) }>
        }""")
    with pytest.raises(ModelError, match=r"\bu\b"):
        load_model(proto)


@pytest.mark.parametrize("text", [b"twice", b"Relu"])
def test_text_that_is_not_utf_8_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(with_function().SerializeToString().replace(text, b"\xff" + text[1:]))
    with pytest.raises(ModelError, match=r"m\.onnx"):
        load_model(path)


def test_a_negative_dim_is_refused_with_the_cure() -> None:
    proto = chain(1)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    with pytest.raises(ModelError, match=r"input `v0` has -1 as dim 0; .*dim_param"):
        load_model(proto)


def external(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(with_weights(), path, save_as_external_data=True, location="m.data", size_threshold=0)
    return path


def test_external_data_is_found_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = external(tmp_path)
    monkeypatch.chdir("/")
    model = load_model(path)
    weights = model.graph.initializers["w"].const_value
    assert isinstance(weights, ir.ExternalTensor)
    np.testing.assert_array_equal(weights.numpy(), WEIGHTS)
    again = load_model(model)
    tensor = again.graph.initializers["w"].const_value
    assert tensor is not None
    np.testing.assert_array_equal(tensor.numpy(), WEIGHTS)


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "m.data").unlink()
    with pytest.raises(MissingDataError, match=r"the data of `w` is missing: no such file .*m\.data"):
        load_model(path)


def with_entry(path: Path, key: str, text: str) -> Path:
    """The model with another value for an entry of the external data of its weights."""
    proto = onnx.load(path, load_external_data=False)
    entries = proto.graph.initializer[0].external_data
    kept = [entry for entry in entries if entry.key != key]
    del entries[:]
    entries.extend([*kept, onnx.StringStringEntryProto(key=key, value=text)])
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../secret"])
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    path = with_entry(external(tmp_path), "location", location)
    with pytest.raises(ModelError, match="outside the model's folder"):
        load_model(path)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("offset", "-64", "expected a number of bytes as its offset, got '-64'"),
        ("offset", "x", "expected a number of bytes as its offset, got 'x'"),
        ("offset", str(2**70), f"expected a number of bytes as its offset, got '{2**70}'"),
        (
            "offset",
            "64",
            r"expected 4,096 bytes from offset 64 on for float32\[256, 4\], got .* of 4,096 bytes",
        ),
        ("offset", "1048576", "from offset 1,048,576 on .* of 4,096 bytes; is the file complete"),
        ("length", "-1", "expected a number of bytes as its length, got '-1'"),
        ("length", "16", r"expected 4,096 bytes for float32\[256, 4\], got a length of 16"),
        ("length", "8192", "expected 4,096 bytes .*, got a length of 8,192"),
        ("location", "", "expected the name of a file as its location, got ''"),
        ("location", "m.data/..", "expected the name of a file as its location, got 'm.data/..'"),
        ("location", "a\0b", "cannot be read: .*null"),
    ],
)
def test_external_data_that_cannot_be_is_refused(tmp_path: Path, key: str, text: str, message: str) -> None:
    path = with_entry(external(tmp_path), key, text)
    with pytest.raises(ModelError, match=rf"m\.onnx`: the data of `w`.*{message}"):
        load_model(path)


@pytest.mark.parametrize("size", [0, 4095])
def test_external_data_that_is_cut_off_is_refused(tmp_path: Path, size: int) -> None:
    path = external(tmp_path)
    os.truncate(tmp_path / "m.data", size)
    with pytest.raises(ModelError, match=rf"the data of `w`: expected 4,096 bytes .* of {size:,} bytes"):
        load_model(path)


def test_external_data_that_is_no_file_is_refused(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "m.data").unlink()
    os.mkfifo(tmp_path / "m.data")
    with pytest.raises(ModelError, match=r"the data of `w` is missing: `.*m\.data` is not a file"):
        load_model(path)


def test_external_data_in_the_model_s_constants_is_measured_too(tmp_path: Path) -> None:
    proto = text_model(
        "g (float[n, 4] x) => (float[n, 4] y) { c = Constant<value = float[4] {1,2,3,4}>() y = Add(x, c) }"
    )
    tensor = proto.graph.node[0].attribute[0].t
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    with pytest.raises(ModelError, match="outside the model's folder"):
        load_model(proto)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    (tmp_path / "model").mkdir()
    path = external(tmp_path / "model")
    (tmp_path / "model/m.data").rename(secret)
    (tmp_path / "model/m.data").symlink_to(secret)
    with pytest.raises(
        ModelError, match=rf"`w` is outside .*m\.data` is a link to `{secret}`; copy that file"
    ):
        load_model(path)
    (tmp_path / "model/m.data").unlink()
    (tmp_path / "model/m.data").hardlink_to(secret)
    with pytest.raises(ModelError, match=r"`w` may be outside .*m\.data` has several hard links; copy it"):
        load_model(path)


def test_a_model_hub_s_folder_of_links_is_read(tmp_path: Path) -> None:
    """A revision is a folder of links to files that are named by their content, all in another folder."""
    stored, revision = tmp_path / "blobs", tmp_path / "snapshots/1f3"
    stored.mkdir()
    revision.mkdir(parents=True)
    external(revision)
    for name, content in (("m.onnx", "0a7c"), ("m.data", "9be2")):
        (revision / name).rename(stored / content)
        (revision / name).symlink_to(f"../../blobs/{content}")
    for model in (load_model(revision / "m.onnx"), load_model(load_model(revision / "m.onnx"))):
        weights = model.graph.initializers["w"].const_value
        assert weights is not None
        np.testing.assert_array_equal(weights.numpy(), WEIGHTS)


def test_an_opset_that_onnx_does_not_know_is_refused_with_the_cure() -> None:
    newest = onnx.defs.onnx_opset_version()
    load_model(text_model("g (float[4] x) => (float[4] y) { y = Relu(x) }", opset=newest))
    with pytest.raises(ModelError, match=rf"opset 99; expected at most {newest}, .*update the package onnx"):
        load_model(text_model("g (float[4] x) => (float[4] y) { y = Relu(x) }", opset=99))


def test_constants_become_initializers() -> None:
    model = load_model(
        text_model("""g (float[2] x) => (float[2] y, float[2] z, int64[2] w) {
        a = Constant<value_floats=[1.0, 2.0]>()  y = Add(x, a)
        z = Constant<value = float[2] {3.0, 4.0}>()
        w = Constant<value_ints=[5, 6]>() }""")
    )
    assert [node.op_type for node in model.graph] == ["Add"]
    assert [value.name for value in model.graph.outputs] == ["y", "z", "w"]
    tensors = {name: value.const_value for name, value in model.graph.initializers.items()}
    for name, expected in (("a", [1.0, 2.0]), ("z", [3.0, 4.0]), ("w", [5, 6])):
        tensor = tensors[name]
        assert tensor is not None and tensor.numpy().tolist() == expected
    w = tensors["w"]
    assert w is not None and w.dtype == ir.DataType.INT64


def test_functions_are_inlined_and_their_insides_have_shapes() -> None:
    model = load_model(with_function())
    assert [node.op_type for node in model.graph] == ["Relu", "Add", "Relu", "Add"]
    assert not model.functions
    assert len({node.name for node in model.graph}) == 4
    for node in model.graph:
        assert node.outputs[0].dtype == ir.DataType.FLOAT
        assert str(node.outputs[0].shape) == "[n,4]"


def test_values_do_not_share_their_types() -> None:
    model = load_model(chain(2))
    first, second = (node.outputs[0] for node in model.graph)
    first.dtype = ir.DataType.DOUBLE
    assert second.dtype == ir.DataType.FLOAT


def test_inputs_with_a_default_are_constants() -> None:
    """IR version 3 lists every initializer among the inputs, as old exporters write it."""
    node = helper.make_node("Add", ["x", "w"], ["y"])
    tensor = numpy_helper.from_array(np.ones(4, dtype=np.float32), "w")
    graph = helper.make_graph([node], "g", [value("x"), value("w")], [value("y")], [tensor])
    model = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3))
    assert [item.name for item in model.graph.inputs] == ["x"]
    assert list(model.graph.initializers) == ["w"]


def test_every_node_has_a_name_of_its_own() -> None:
    proto = chain(6)
    for node, name in zip(proto.graph.node, ["", "a", "a", "Relu_0", "", "a"], strict=True):
        node.name = name
    names = [node.name for node in load_model(proto).graph]
    assert len(set(names)) == 6
    assert names[1] == "a" and names[3] == "Relu_0"


def test_what_no_output_needs_is_removed() -> None:
    proto = text_model("g (float[4] x) => (float[4] y) { y = Relu(x) a = Exp(x) b = Neg(a) }")
    proto.graph.initializer.append(numpy_helper.from_array(WEIGHTS, "unused"))
    model = load_model(proto)
    assert [node.op_type for node in model.graph] == ["Relu"]
    assert not model.graph.initializers


def test_dead_second_outputs_and_control_flow_load() -> None:
    """load_model accepts them; a backend refuses them by name."""
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "b", [], [value("b")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph([node], "g", [condition, value("x")], [value("y")])
    model = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    assert [node.op_type for node in model.graph] == ["If"]


def test_an_output_without_a_shape_gets_the_inferred_one() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    assert [str(dim) for dim in dims(model.graph.outputs[0])] == ["n", "4"]


def test_an_input_that_is_an_output_keeps_its_shape() -> None:
    proto = text_model("g (float[n, 4] x) => (float[n, 4] y, float[n, 4] x) { y = Neg(x) }")
    proto.graph.output[1].type.tensor_type.ClearField("shape")
    assert text(dims(load_model(proto).graph.inputs[0])) == ("n", 4)


def nested(depth: int) -> onnx.ModelProto:
    """An If inside of an If, and so on."""
    made = chain(0)
    made.graph.output[0].name = "y0"
    made.graph.input.append(value("c", (), TensorProto.BOOL))
    graph = made.graph
    for level in range(depth):
        node = graph.node.add(op_type="If", input=["c"], output=[f"y{level}"])
        for name in ("else_branch", "then_branch"):
            attribute = node.attribute.add(name=name, type=onnx.AttributeProto.GRAPH)
            attribute.g.name = "inner"
            is_leaf = name == "else_branch" or level == depth - 1
            result = f"z{level}{name}" if is_leaf else f"y{level + 1}"
            attribute.g.output.append(value(result))
            if is_leaf:
                attribute.g.node.add(op_type="Relu", input=["v0"], output=[result])
            graph = attribute.g
    return made


@pytest.mark.parametrize("depth", [17, 10_000])
def test_graphs_inside_of_each_other_are_bounded(depth: int) -> None:
    """Neither the reader's stack nor that of a call depends on the model."""
    assert len(load_model(nested(16)).graph) == 1
    with pytest.raises(ModelError, match="graphs inside of nodes are more than 16 deep"):
        load_model(nested(depth))


def test_bfloat16_is_read_where_only_a_newer_opset_has_it() -> None:
    """torch writes networks in bfloat16 so, with the opset that it writes others in."""
    model = load_model(
        text_model("""g (bfloat16[n, 2, 5, 5] x, bfloat16[3, 2, 3, 3] w) => (bfloat16[?, ?, ?, ?] y)
    { c = Conv (x, w)  y = MaxPool <kernel_shape = [2, 2]> (c) }""")
    )
    assert model.opset_imports[""] == 22
    assert text(dims(model.graph.outputs[0])) == ("n", 3, 2, 2)
    with pytest.raises(ModelError, match="is not valid ONNX"):
        load_model(text_model("g (bfloat16[2] x) => (bfloat16[?] y) { y = Unique (x) }"))
