"""Models that ONNX's checker passes although they are malformed: refused before its inference reads them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from farcall import partition
from farcall.errors import ModelError
from farcall.graph import load_model
from farcall.graph.dims import dims

from .graphs import text_model


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "g (float[7] x) => (float[] a, float[] b) { a, b = Split<num_outputs = 1>(x) }",
            r"node `a` \(Split\) has 1 in num_outputs; expected 2, the number of its outputs",
        ),
        (
            "g (float[7] x) => (float[] a) { a = Split<num_outputs = 1099511627776>(x) }",
            "has 1099511627776 in num_outputs; expected 1, the number",
        ),
        (
            "g (float[2,3] x, int64[1,1] i) => (float[] y) { y = GatherND<batch_dims = -7>(x, i) }",
            r"\(GatherND\) has -7 in batch_dims; expected numbers from 0",
        ),
        (
            "g (float[2,3] x, float[3] s) => (float[] y, float[] m) "
            "{ y, m = LayerNormalization<axis = 2147483648>(x, s) }",
            r"\(LayerNormalization\) has 2147483648 in axis; expected numbers from -2147483648 to 2147483647",
        ),
        (
            'g (int64[4] x) => (float[] y) { y = TfIdfVectorizer<mode = "TF", min_gram_length = 1,'
            "max_gram_length = 1, max_skip_count = 0, ngram_counts = [0, 4611686018427387904],"
            "ngram_indexes = [0, 1], pool_int64s = [3, 4]>(x) }",
            r"\(TfIdfVectorizer\) has 4611686018427387904 in ngram_counts; expected numbers from 0 to 2",
        ),
        (
            "g (float[4] x) => (float[] y) { y = Scan<num_scan_inputs = 2147483648,"
            "body = b (float e) => (float f) { f = Exp(e) }>(x) }",
            r"\(Scan\) has 2147483648 in num_scan_inputs; expected numbers from 1 to 1",
        ),
        (
            "g (float[1,1,9] x) => (float[] y) { y = AveragePool<kernel_shape=[2], dilations=[0]>(x) }",
            r"\(AveragePool\) has 0 in dilations; expected numbers from 1",
        ),
        (
            "g (float[1,1,9] x, float[1,1,2] w) => (float[] y) { y = Conv<strides=[-1]>(x, w) }",
            r"\(Conv\) has -1 in strides",
        ),
        (
            "g (float[7] x, int64[0] a) => (float[] y) { y = ReduceSum<noop_with_empty_axes = 3>(x, a) }",
            "has 3 in noop_with_empty_axes; expected numbers from 0 to 1",
        ),
        (
            "g (bool c, float[7] x) => (float[] y) { y = If(c) <"
            "then_branch = t () => (float[] u) { u, v = Split<num_outputs = 1>(x) },"
            "else_branch = e () => (float[] w) { w = Exp(x) }> }",
            r"node `u` \(Split\)",
        ),
        ("g (float[2,3] x) => (float[] y) { y = Transpose<perm = [7, 0]>(x) }", "Transpose"),
        ("g (float[2,3] x, int64[1] k) => (float[] y) { y = Expand(x, k) z = Range(k, x, x) }", "Range"),
    ],
)
def test_attributes_out_of_range_are_refused(source: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(text_model(source))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            "y = DequantizeLinear<axis=1>(i, s, z)",
            r"not: axis 1 is outside of rank 1 \(inputs: `i` \[n\], `s` \[4\],",
        ),
        (
            "y = LayerNormalization<axis=2>(x, x)",
            r"not: axis 2 is outside of rank 1 \(inputs: `x` \[n\], `x` \[n\]\)",
        ),
        (
            "y = InstanceNormalization(x, x, x)",
            r"not: an input has another rank than it needs \(inputs: `x` \[n\],",
        ),
    ],
)
def test_operands_of_another_rank_are_told_with_their_dims(nodes: str, message: str) -> None:
    model = text_model(f"g (float[n] x, int32[n] i, float[4] s, int32[4] z) => (float[?] y) {{ {nodes} }}")
    with pytest.raises(ModelError, match=message):
        load_model(model)


def test_a_node_of_a_definition_is_named_after_the_node() -> None:
    model = text_model(
        "g (float[1,3,4] q, float[1,0,4] k) => (float[?,?,?] y) "
        "{ y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, k) }"
    )
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ModelError, match="node `MultiHeadAttention_0/MatMul"):
        load_model(model)


def test_attributes_that_a_function_gets_from_its_call_are_checked() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 22, "mine" : 1]>
        g (float[2,3] x, float[3] s) => (float[] y) { y = mine.Outer<where = 99999999999>(x, s) }
        <domain: "mine", opset_import: ["" : 22, "mine" : 1]>
        Outer <where> (x, s) => (y) { y = mine.Inner<place: int = @where>(x, s) }
        <domain: "mine", opset_import: ["" : 22]>
        Inner <place> (x, s) => (y) { y, m = LayerNormalization<axis: int = @place>(x, s) }
    """)
    with pytest.raises(ModelError, match=r"\(LayerNormalization\) has 99999999999 in axis"):
        load_model(model)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (TensorProto(data_type=1, dims=[3], float_data=[1, 2]), r"FLOAT\[3\], has 2 numbers; expected 3"),
        (TensorProto(data_type=1, dims=[3], raw_data=bytes(8)), r"has 8 bytes; expected 12"),
        (TensorProto(data_type=22, dims=[3], raw_data=bytes(3)), r"INT4\[3\], has 3 bytes; expected 2"),
        (TensorProto(data_type=14, dims=[2], float_data=[1, 2]), r"has 2 numbers; expected 4"),
        (TensorProto(data_type=1, dims=[-1], float_data=[1]), r"the shape \[-1\]; expected no negative dims"),
        (TensorProto(data_type=99, dims=[1], raw_data=bytes(4)), "the dtype 99, which ONNX does not define"),
        (TensorProto(dims=[1], raw_data=bytes(4)), "the dtype 0, which ONNX does not define"),
    ],
)
def test_constants_have_the_data_of_their_shape(tensor: TensorProto, message: str) -> None:
    tensor.name = "k"
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    as_initializer = helper.make_graph(
        [helper.make_node("Identity", ["k"], ["y"])], "g", [], [output], [tensor]
    )
    as_node = helper.make_graph([helper.make_node("Constant", [], ["y"], value=tensor)], "g", [], [output])
    for graph in (as_initializer, as_node):
        with pytest.raises(ModelError, match=message):
            load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10))


@pytest.mark.parametrize(
    "kind", ["FLOAT", "INT4", "UINT2", "FLOAT8E5M2", "FLOAT16", "COMPLEX64", "STRING", "BOOL"]
)
def test_constants_of_every_way_to_store_them_are_taken(kind: str) -> None:
    dtype = TensorProto.DataType.Value(kind)
    values = [b"a", b"b", b"c"] if kind == "STRING" else np.array([1, 0, 1])
    tensor = helper.make_tensor("k", dtype, [3], values)
    output = helper.make_tensor_value_info("y", dtype, [3])
    graph = helper.make_graph([helper.make_node("Identity", ["k"], ["y"])], "g", [], [output], [tensor])
    load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=13))


def test_axes_that_are_an_empty_input_are_known() -> None:
    """The declared shape is wrong: kernels would write 60 elements to a result of one."""
    model = load_model(
        text_model(
            "g (float[3,4,5] x, int64[0] axes) => (float[1,1,1] y) "
            "{ a = ReduceSum<noop_with_empty_axes = 1>(x, axes) y = Log(a) }"
        )
    )
    assert [dims(node.outputs[0]) for node in model.graph] == [(3, 4, 5), (3, 4, 5)]


@pytest.mark.parametrize(
    "call",
    [
        "EyeLike",
        'RegexFullMatch <pattern = "a">',
        'ai.onnx.ml.DictVectorizer <string_vocabulary = ["a"]>',
        "ai.onnx.ml.LabelEncoder <keys_int64s = [1], values_int64s = [2]>",
        "ai.onnx.ml.TreeEnsemble <tree_roots = [0], nodes_featureids = [0], nodes_truenodeids = [0],"
        "nodes_falsenodeids = [0], nodes_trueleafs = [1], nodes_falseleafs = [1], leaf_targetids = [0],"
        "nodes_splits = float[1] {0}, nodes_modes = uint8[1] {0}, leaf_weights = float[1] {0}>",
    ],
)
def test_a_node_whose_input_has_no_type_does_not_end_the_process(call: str) -> None:
    """ONNX's inference reads that type. Nobody knows what the operator of another domain makes."""
    source = f"""<ir_version: 10, opset_import: ["" : 22, "ai.onnx.ml" : 5, "vendor" : 1]>
    g (int64[2, 3] x) => (int64[a, b] y) {{ t = vendor.Secret (x)  y = {call} (t) }}"""
    model = load_model(onnx.parser.parse_model(source))
    assert model.graph.node(1).op_type in call
    missing = source.replace("(t)", '("")').replace("t = vendor.Secret (x)", "")
    with pytest.raises(ModelError):
        load_model(onnx.parser.parse_model(missing))


def test_an_index_far_outside_of_constants_is_not_searched_for() -> None:
    """numpy takes an element by going round and round, here 2**60 times."""
    source = """g (int64[2] x) => (int64[2] y) {
    c = Constant<value_ints = [1, 2]>()  i = Constant<value_ints = [0, 4611686018427387904]>()
    e = GatherElements (c, i)  y = Add (x, e) }"""
    model = load_model(text_model(source))
    assert [node.op_type for node in model.graph] == ["GatherElements", "Add"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('g (float[2] x) => (float[2] y) { y = Cast<to = "REAL">(x) }', "'REAL' is no name of a type"),
        (
            "g (float[1,2,3] x) => (float[] y) { y = GlobalLpPool<p = 2.5>(x) }",
            "p = 2.5 is no whole number of 32 bits",
        ),
    ],
)
def test_attributes_of_the_first_opset_are_refused_by_name(source: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(text_model(source, opset=1))


def test_a_constant_has_one_value() -> None:
    """ONNX's inference does not see it behind an operator that it does not know."""
    source = """<ir_version: 10, opset_import: ["" : 22, "vendor" : 1]>
    g (float[1] x) => (float[1] y) { s = vendor.Secret (x)
    c = Constant<value_int = 1, value_float = 2.0>()  y = Add (s, c) }"""
    with pytest.raises(ModelError, match="has the attributes value_int, value_float; expected one"):
        load_model(onnx.parser.parse_model(source))


def test_a_definition_that_onnx_cannot_make_is_none() -> None:
    """ONNX multiplies the block's sizes, which overflow."""
    source = (
        "g (float[n, 3, 4] x) => (float[a, b, c] y) { y = DepthToSpace<blocksize = 4611686018427387904>(x) }"
    )
    with pytest.raises(ModelError):
        partition(text_model(source), backends=["c", "reference"])
