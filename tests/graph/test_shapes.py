"""Symbolic shapes: operator by operator, and where dims must be equal."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
import sympy
from onnx import helper

from farcall.errors import ModelError
from farcall.graph import cut, load_model
from farcall.graph._constraints import constraints, needs
from farcall.graph.dims import broadcast, dims, evaluate, late, parse, settled, symbol, text

from .graphs import OpBackend, text_model, value


def loaded(source: str, **more: int) -> dict[str, tuple[int | str, ...]]:
    """The dims of all inputs and outputs."""
    model = load_model(text_model(source, **more))
    return {item.name or "": text(dims(item)) for item in (*model.graph.inputs, *model.graph.outputs)}


X4 = "float[n,3,h,w] x"


def declared(rank: int) -> str:
    return ",".join("?" * rank)


@pytest.mark.parametrize(
    ("inputs", "rank", "nodes", "expected"),
    [
        (X4, 4, "y = Relu(x)", ("n", 3, "h", "w")),
        (f"{X4}, float[8,3,3,3] k", 4, "y = Conv(x, k)", ("n", 8, "h - 2", "w - 2")),
        (f"{X4}, float[8,3,3,3] k", 4, "y = Conv<pads=[1,1,1,1]>(x, k)", ("n", 8, "h", "w")),
        (
            f"{X4}, float[8,3,3,3] k",
            4,
            "y = Conv<strides=[2,2],pads=[1,1,1,1]>(x, k)",
            ("n", 8, "floor(h/2 + 1/2)", "floor(w/2 + 1/2)"),
        ),
        (
            f"{X4}, float[8,3,3,3] k",
            4,
            'y = Conv<auto_pad="SAME_UPPER",strides=[2,2]>(x, k)',
            ("n", 8, "floor(h/2 + 1/2)", "floor(w/2 + 1/2)"),
        ),
        (
            f"{X4}, float[8,3,3,3] k",
            4,
            'y = Conv<auto_pad="VALID",dilations=[2,1]>(x, k)',
            ("n", 8, "h - 4", "w - 2"),
        ),
        (X4, 4, "y = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x)", ("n", 3, "floor(h/2)", "floor(w/2)")),
        (
            X4,
            4,
            "y = AveragePool<kernel_shape=[2,2],strides=[2,2],ceil_mode=1>(x)",
            ("n", 3, "floor(h/2 + 1/2)", "floor(w/2 + 1/2)"),
        ),
        (X4, 4, "y = GlobalAveragePool(x)", ("n", 3, 1, 1)),
        (X4, 2, "y = Flatten(x)", ("n", "3*h*w")),
        (X4, 2, "y = Flatten<axis=-1>(x)", ("3*h*n", "w")),
        (X4, 4, "y = Transpose<perm=[0,2,3,1]>(x)", ("n", "h", "w", 3)),
        (X4, 4, "y = Transpose(x)", ("w", "h", 3, "n")),
        (X4, 4, "y = Concat<axis=2>(x, x, x)", ("n", 3, "3*h", "w")),
        (X4, 4, "y = Softmax<axis=1>(x)", ("n", 3, "h", "w")),
        (X4, 4, "y = Cast<to=1>(x)", ("n", 3, "h", "w")),
        (f"{X4}, float[3] s", 4, "y = BatchNormalization(x, s, s, s, s)", ("n", 3, "h", "w")),
        (X4, 2, "a = Constant<value_ints=[2,3]>() y = ReduceMean<keepdims=0>(x, a)", ("n", 3)),
        (X4, 4, "a = Constant<value_ints=[-1]>() y = ReduceMax(x, a)", ("n", 3, "h", 1)),
        (X4, 4, "y = ReduceSum(x)", (1, 1, 1, 1)),
        (X4, 4, "y = ReduceSum<noop_with_empty_axes=1>(x)", ("n", 3, "h", "w")),
        ("float[n,1,4] x", 2, "a = Constant<value_ints=[1]>() y = Squeeze(x, a)", ("n", 4)),
        ("float[n,4] x", 4, "a = Constant<value_ints=[0,-1]>() y = Unsqueeze(x, a)", (1, "n", 4, 1)),
        ("float[n,8,4] x", 3, "a = Constant<value_ints=[0,-1,2]>() y = Reshape(x, a)", ("n", 16, 2)),
        ("float[n,8,4] x", 2, "a = Constant<value_ints=[-1,32]>() y = Reshape(x, a)", ("n", 32)),
        ("float[n,k] x, float[k,m] z", 2, "y = MatMul(x, z)", ("n", "m")),
        ("float[b,1,n,k] x, float[h,k,m] z", 4, "y = MatMul(x, z)", ("b", "h", "n", "m")),
        ("float[k] x, float[b,k,m] z", 2, "y = MatMul(x, z)", ("b", "m")),
        ("float[k,n] x, float[m,k] z", 2, "y = Gemm<transA=1,transB=1>(x, z)", ("n", "m")),
        ("float[n,1,4] x, float[m,1] z", 3, "y = Add(x, z)", ("n", "m", 4)),
        ("float[3,1] x, float[1,2] z", 2, "y = PRelu(x, z)", (3, 2)),  # ONNX's inference has (3, 1)
        ("float[n,4] x", 2, "a, y = Split<axis=1,num_outputs=2>(x) b = Relu(a)", ("n", 2)),
        ("float[n,4] x", 2, "a = Constant<value_ints=[0,1,2,0]>() y = Pad(x, a)", ("n + 2", 5)),
        ("float[n,4] x, int64[2,m] i", 3, "y = Gather(x, i)", (2, "m", 4)),
        (
            "float[n,4] x",
            2,
            "s = Constant<value_ints=[1]>() e = Constant<value_ints=[9223372036854775807]>()"
            " y = Slice(x, s, e)",
            ("Max(0, n - 1)", 4),
        ),
    ],
    ids=lambda case: case if isinstance(case, str) and "=" in case else None,
)
def test_operator(inputs: str, rank: int, nodes: str, expected: tuple[int | str, ...]) -> None:
    model = text_model(f"g ({inputs}) => (float[{declared(rank)}] y) {{ {nodes} }}")
    found = dims(load_model(model).graph.outputs[0])
    assert found == tuple(parse(item) if isinstance(item, str) else item for item in expected)


def test_old_opsets_take_axes_as_attributes() -> None:
    for opset, nodes, expected in (
        (11, "y = ReduceSum<axes=[1],keepdims=0>(x)", ("n", 4)),
        (13, "y = ReduceMean<axes=[1],keepdims=0>(x)", ("n", 4)),
        (11, "a = Unsqueeze<axes=[0]>(x) y = Squeeze<axes=[0, 2]>(a)", ("n", 4)),
    ):
        model = text_model(f"g (float[n,1,4] x) => (float[?,?] y) {{ {nodes} }}", opset)
        assert text(dims(load_model(model).graph.outputs[0])) == expected


def test_input_dims_are_ints_or_symbols_with_readable_names() -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["img"], ["y"]), helper.make_node("Relu", ["z"], ["v"])],
            "g",
            [value("img", ["batch size", None, 4]), value("z", ["2*batch", "img_dim1", "n"])],
            [value("y", [None] * 3), value("v", [None] * 3)],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    graph = load_model(model).graph
    assert [text(dims(item)) for item in graph.inputs] == [
        ("batch_size", "img_dim1_1", 4),
        ("z_dim0", "img_dim1", "n"),
    ]
    assert [text(dims(item)) for item in graph.outputs] == [text(dims(item)) for item in graph.inputs]


def test_a_name_that_stands_twice_is_one_symbol() -> None:
    assert loaded("g (float[b, s] x, float[b, t] z) => (float[?, ?] y) { y = Concat<axis=1>(x, z) }") == {
        "x": ("b", "s"),
        "z": ("b", "t"),
        "y": ("b", "s + t"),
    }


def test_a_symbol_that_must_be_a_number_becomes_it() -> None:
    found = loaded("g (float[n, k] x, float[2, 4] z) => (float[?, ?] y) { y = Concat<axis=0>(x, z) }")
    assert found["x"] == ("n", 4)
    assert found["y"] == ("n + 2", 4)


def test_of_two_symbols_that_must_be_equal_the_first_stays() -> None:
    found = loaded(
        "g (float[n, 4] x, float[m, 4] z) => (float[?, ?] y, float[?, ?] s)"
        " { y = Concat<axis=1>(z, x) s = Relu(z) }"
    )
    assert found == {"x": ("n", 4), "z": ("n", 4), "y": ("n", 8), "s": ("n", 4)}


def test_equal_symbols_chain() -> None:
    found = loaded("""g (float[a] p, float[b] q, float[c] r, float[3] s)
    => (float x, float y, float z)
    { x = MatMul(p, q)  y = MatMul(q, r)  z = MatMul(r, s) }""")
    assert {found[name] for name in "pqrs"} == {(3,)}


def test_dims_of_operands_that_broadcast_may_be_one() -> None:
    """Neither is replaced; Expand gives each operand the dims of both, and the product of both is one dim."""
    source = """g (float[n, k] x, float[m, k] z) => (float[?, ?] y, float[?, ?] w) {
    y = Add(x, z)  w = Mul(y, x) }"""
    both = "Max(m, n)*Min(1, m, n)"
    assert loaded(source) == {"x": ("n", "k"), "z": ("m", "k"), "y": (both, "k"), "w": (both, "k")}
    model = load_model(text_model(source))
    assert [node.op_type for node in model.graph].count("Expand") == 3  # of x for each reader
    assert constraints(model) == ()


def test_the_first_row_broadcasts_to_all_rows() -> None:
    source = """g (float[n, k] x) => (float[?, ?] y)
    <int64[1] zero = {0}, int64[1] one = {1}> { first = Slice(x, zero, one)  y = Sub(x, first) }"""
    assert loaded(source) == {"x": ("n", "k"), "y": ("n", "k")}
    model = load_model(text_model(source))
    assert [node.op_type for node in model.graph].count("Expand") == 1  # of the first row
    assert constraints(model) == ()


def test_dims_that_broadcast_and_are_found_to_be_equal_are_one() -> None:
    source = """g (float[n, 4] x, float[m, 4] z) => (float[?, ?] y, float[?, ?] w) {
    y = Add(x, z)  w = Concat<axis=1>(x, z) }"""
    assert loaded(source) == {"x": ("n", 4), "z": ("n", 4), "y": ("n", 4), "w": ("n", 8)}
    assert [node.op_type for node in load_model(text_model(source)).graph] == ["Add", "Concat"]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("n", "m", "Max(m, n)*Min(1, m, n)"),
        ("Max(m, n)*Min(1, m, n)", "n", "Max(m, n)*Min(1, m, n)"),
        ("n", 3, 3),
        ("n", 1, "n"),
        (0, "n", 0),
        (3, 4, None),
        ("2*floor(n/2)", "n", None),
        ("floor((n - 5)/2) + 1", "floor(n/2) - 2", None),
        ("2*n", "n", "2*n*Min(1, n)"),
        ("floor(n/2) - 1", "n - 2", "Max(n - 2, floor(n/2) - 1)*Min(1, n - 2, floor(n/2) - 1)"),
        ("n", "Min(1, n)", "n"),  # x and x[:1]
        ("Min(1, n)", "floor(n/2)", "floor(n/2)"),
        ("Min(1, n)", "m", "m*Min(1, n)"),
        ("Min(1, n)", 1, "Min(1, n)"),
    ],
)
def test_broadcast(a: str | int, b: str | int, expected: str | int | None) -> None:
    found = broadcast(*(parse(item) if isinstance(item, str) else item for item in (a, b)))
    assert (found if found is None else text([found])[0]) == expected


@pytest.mark.parametrize(
    ("size", "expected"), [("n", "n"), ("1", "n"), ("0", "0"), ("k", "Max(k, n)*Min(1, k, n)")]
)
def test_replaced_symbols_leave_no_broadcast_of_one_dim(size: str, expected: str) -> None:
    dim = parse("2*Max(m, n)*Min(1, m, n)").xreplace({symbol("m"): sympy.sympify(parse(size))})
    assert settled(dim) == 2 * parse(expected)


def test_equal_expressions_are_a_constraint() -> None:
    model = load_model(
        text_model("""g (float[n, 4] x, float[m] z) => (float y) {
    s = Constant<value_ints=[-1]>()  a = Reshape(x, s)  y = MatMul(a, z) }""")
    )
    assert [(str(a), str(b)) for a, b in constraints(model)] == [("m", "4*n")]


def test_constraints_divide_nothing() -> None:
    """A call rounds quotients: floor(n/2)/5 + 1/5 would be 1 for an n of 16, too."""
    source = """g (float[1, 1, n] x, float[5, 2] w) => (float[1, 1, 2] y) {
    a = MaxPool<kernel_shape = [2], strides = [2], pads = [1, 1]>(x)  y = MatMul(a, w) }"""
    ((found, five),) = constraints(load_model(text_model(source)))
    assert (str(found), five) == ("floor(n/2) + 1", 5)


def test_lengths_of_a_split_and_weights_of_gates_fix_dims() -> None:
    found = loaded(
        """g (float[n] x, float[t, m, 4] s, float[1, g, w] k, float[1, h, 3] r)
    => (float[?] a, float[?] b, float[?,?,?,?] y)
    <int64[2] parts = {2, 5}> { a, b = Split(x, parts)  y = GRU<hidden_size=3>(s, k, r) }"""
    )
    assert found["x"] == (7,) and found["k"] == (1, 9, 4) and found["r"] == (1, 9, 3)
    model = load_model(
        text_model("""g (float[n] x) => (float[?] a, float[?] b) <int64[2] parts = {2, 5}> {
    z = Concat<axis=0>(x, x, x)  a, b = Split(z, parts) }""")
    )
    assert [(str(a), str(b)) for a, b in constraints(model)] == [("3*n", "7")]


def test_operands_that_belong_together_fix_dims() -> None:
    found = loaded(
        """g (float[1, c, 5] x, float[4, 2, 3] w, float[m] b, float[n, 2] z, float[k] scale,
     float[j, 2, i] boxes, float[1, 3, 2] scores) => (float[?, ?, ?] y, uint8[?, ?] q, int64[?, 3] at)
    <int64 most = {9}> { y = Conv (x, w, b)  q = QuantizeLinear <axis = 1> (z, scale)
      at = NonMaxSuppression (boxes, scores, most) }"""
    )
    assert found["x"] == (1, 2, 5) and found["b"] == (4,) and found["scale"] == (2,)
    assert found["boxes"] == (1, 2, 4)


def test_scales_and_biases_of_normalizations_fix_dims() -> None:
    """A shorter one would be read behind its end."""
    found = loaded(
        """g (float[2, 4, 6] x, float[a] s, float[b, c] d, float[e] f, float[i] h, float[j] k, float[l] m,
     float[o] p) => (float[?, ?, ?] y, float[?, ?, ?] z, float[?, ?, ?] w)
    { y = LayerNormalization <axis = -1> (x, s)  z = LayerNormalization <axis = 1> (x, d)
      v = InstanceNormalization (z, f, h)  w = BatchNormalization (v, k, m, p, p) }"""
    )
    assert [found[name] for name in "sdfhkmp"] == [(6,), (4, 6), (4,), (4,), (4,), (4,), (4,)]


def test_caches_and_states_fit_the_data() -> None:
    model = load_model(
        text_model(
            """g (float[2, 3, 5, 4] x, float[a, b, 2] cosine, float[c, d, 2] sine, float[5, 2, 4] s,
     float[1, 9, 4] w, float[1, 9, 3] r, int32[n] lengths, float[e, f, 3] h)
    => (float[?, ?, ?, ?] y, float[?, ?, ?, ?] z)
    { y = RotaryEmbedding (x, cosine, sine)  z = GRU <hidden_size = 3> (s, w, r, , lengths, h) }""",
            opset=23,
        )
    )
    found = {item.name: text(dims(item)) for item in model.graph.inputs}
    assert found["cosine"] == found["sine"] == (2, 5, 2)
    assert found["lengths"] == (2,) and found["h"] == (1, 2, 3)


def test_keys_are_as_many_as_values_and_as_wide_as_queries() -> None:
    """ONNX's definition of Attention would stretch a key of one element."""
    found = loaded(
        """g (float[a, 1, b, c] q, float[d, 1, e, f] k, float[g, 1, h, i] v) => (float[?, ?, ?, ?] y)
    { y = Attention (q, k, v) }""",
        opset=23,
    )
    assert [str(dim) for name in "qkv" for dim in found[name]] == [*"a1bc", *"a1ec", *"a1ei"]
    found = loaded(
        """g (float[1, 3, 8] q, float[1, 5, n] k, float[1, 5, 6] v) => (float[?, ?, ?] y)
    { y = Attention <q_num_heads = 4, kv_num_heads = 2> (q, k, v) }""",
        opset=23,
    )
    assert found["k"] == (1, 5, 4)


def test_a_mask_is_no_longer_than_there_are_keys() -> None:
    """ONNX's definition, which pads a shorter one, would cut it."""
    source = """g (float[1, 1, 1, 4] q, float[1, 1, 5, 4] k, float[1, 1, 5, 4] v, float[1, 1, 1, {}] m)
    => (float[?, ?, ?, ?] y) {{ y = Attention (q, k, v, m) }}"""
    model = load_model(text_model(source.format("n"), opset=24))
    assert [(str(a), str(b)) for a, b in constraints(model)] == [("Max(5, n)", "5")]
    assert not constraints(load_model(text_model(source.format("3"), opset=24)))


def test_a_wrong_dim_is_not_believed_behind_operands_that_are_expanded() -> None:
    """Over symbols, ONNX infers 0 for the width of Attention in three dims."""
    found = loaded(
        """g (float[1, 1, a] q, float[1, 1, b] k, float[1, 1, b] v, float[c] x, bool[c] t) => (float[?] y)
    <int64[2] axes = {0, 1}>
    { z = Attention <kv_num_heads = 2, q_num_heads = 4> (q, k, v)
      w = ReduceL2 <keepdims = 0> (z, axes)  y = Where (t, w, x) }""",
        opset=23,
    )
    assert found["y"] != (0,)


def test_operands_of_a_result_for_which_onnx_infers_0_fit() -> None:
    found = loaded(
        """g (float[1, 1, 4] q, float[1, 1, 4] k, float[1, 1, n] v, float[1, 5, 4] x) => (bool[?, ?, ?] y)
    { z = Attention <kv_num_heads = 2, q_num_heads = 2> (q, k, v)  y = GreaterOrEqual (x, z) }""",
        opset=24,
    )
    assert found["y"][:2] == (1, 5)


def test_a_loss_has_a_target_for_each_row() -> None:
    found = loaded(
        """g (float[n, 5, d] x, int64[2, 3] target, float[c] w) => (float y)
    { y = NegativeLogLikelihoodLoss (x, target, w) }"""
    )
    assert found["x"] == (2, 5, 3) and found["w"] == (5,)


def test_a_gradient_and_a_state_are_of_the_shape_that_is_trained() -> None:
    proto = text_model("""g (float r, int64 t, float[a] p, float[b] grad, float[7] state)
    => (float[?] trained, float[?] kept) { trained, kept = ai.onnx.preview.training.Momentum
      <alpha = 0.9, beta = 0.8, mode = "standard", norm_coefficient = 0.1> (r, t, p, grad, state) }""")
    proto.opset_import.append(helper.make_opsetid("ai.onnx.preview.training", 1))
    model = load_model(proto)
    assert text(dims(model.graph.inputs[2])) == text(dims(model.graph.outputs[0])) == (7,)


@pytest.mark.parametrize(
    ("result", "node"), [("2", "Relu(x)"), ("10", "Concat<axis=0>(x, x)"), ("9", "Abs(x)")]
)
def test_a_number_that_is_only_declared_does_not_fix_a_dim_of_an_input(result: str, node: str) -> None:
    """As torch declares the length of the example inputs for what is made of an LSTM's results."""
    model = load_model(text_model(f"g (float[n] x) => (float[{result}] y) {{ z = {node}  y = Neg(z) }}"))
    found = dims(model.graph.outputs[0])
    assert text(dims(model.graph.inputs[0])) == ("n",) and not constraints(model)
    assert text(found) == (("2*n",) if "Concat" in node else ("n",))


def test_factors_that_may_be_0_are_not_divided_out() -> None:
    """12 rows of no elements are as many as there are; a call decides whether there are none."""
    model = load_model(
        text_model("""g (float[n, 3, 4] x) => (float[?] y)
    <int64[1] a = {14}, int64[1] b = {99}, int64[1] c = {0}>
    { s = Slice (x, a, b, c)  y = Reshape (s, c) }""")
    )
    (pair,) = constraints(model)
    assert [[evaluate(side, {"n": n}) for side in pair] for n in (3, 16)] == [[0, 0], [24, 2]]


def test_common_factors_of_products_are_divided_out() -> None:
    """As TorchScript's exporter writes a view of [seq, batch, 32] after it traced a length of 7."""
    source = """g (float[seq, batch, 32] x) => (float[?, ?, ?] y) {
    h = Constant<value_ints=[7]>()  eight = Constant<value_ints=[8]>()  four = Constant<value_int=4>()
    s = Shape(x)  one = Constant<value_int=1>()  n = Gather(s, one)  m = Mul(n, four)
    axes = Constant<value_ints=[0]>()  w = Unsqueeze(m, axes)
    t = Concat<axis=0>(h, w, eight)  y = Reshape(x, t) }"""
    model = load_model(text_model(source))
    assert text(dims(model.graph.inputs[0])) == (7, "batch", 32)
    source = """g (float[batch, past, 4] x, float[batch, new, 4] z) => (float[?, ?, ?] y) {
    c = Concat<axis=1>(x, z)  s = Shape<start=1>(c)  minus = Constant<value_ints=[-1]>()
    t = Concat<axis=0>(minus, s)  y = Reshape(c, t) }"""
    model = load_model(text_model(source))
    assert text(dims(model.graph.outputs[0])) == ("batch", "new + past", 4)


@pytest.mark.parametrize(
    ("bounds", "length"),
    [("first = {-4}, int64[1] last = {-5}", 0), ("first = {-5}, int64[1] last = {-4}", None)],
)
def test_an_empty_slice_in_equal_sizes_gives_no_symbol_a_value(bounds: str, length: int | None) -> None:
    """A Reshape to ``[0]`` needs ``length * m == length``, which of no elements holds for every m."""
    model = load_model(
        text_model(f"""g (float[n, m] x) => (float[?] y)
    <int64[1] {bounds}, int64[1] axis = {{0}}, int64[1] step = {{2}}, int64[1] kept = {{0}}>
    {{ s = Slice (x, first, last, axis, step)  y = Reshape (s, kept) }}""")
    )
    (size,) = dims(model.graph.outputs[0])
    assert size == length if length is not None else evaluate(size, {"n": 5}) == 1
    assert text(dims(model.graph.inputs[0])) == ("n", "m" if length == 0 else 1)


def test_a_factor_that_is_0_for_large_sizes_is_not_divided_out() -> None:
    """``max(0, 3 - n)`` is the length of ``[n:3]``."""
    model = load_model(
        text_model("""g (float[n, m] x) => (float[?] y) {
    n = Shape<start=0, end=1> (x)  end = Constant<value_ints=[3]> ()  kept = Constant<value_ints=[0]> ()
    s = Slice (x, n, end)  y = Reshape (s, kept) }""")
    )
    assert text(dims(model.graph.inputs[0])) == ("n", "m")


@pytest.mark.parametrize(
    "body",
    [
        "float[3] s, float[4] b) => (float[?, ?, ?] y) { y = InstanceNormalization (x, s, b) }",
        "float[3] s) => (float[?, ?, ?] y) { y = LayerNormalization (x, s) }",
        "float[5] s, float[4] b) => (float[?, ?, ?] y) { y = LayerNormalization (x, s, b) }",
        "float[4, 5] a, float[5, 4] b, float[3] c) => (float[?, ?] y) { y = Gemm (a, b, c) }",
        "float[1, 12, 5] w, float[1, 12, 3] r, float[1, 2, 3] h) => (float[?, ?, ?, ?] y) "
        "{ y = LSTM <hidden_size = 3> (x, w, r, , , h) }",
        "float[1, 12, 5] w, float[1, 12, 3] r) => (float[?, ?, ?, ?] y) "
        "{ y = LSTM <hidden_size = 4> (x, w, r) }",
    ],
)
def test_operands_of_fixed_sizes_must_fit_too(body: str) -> None:
    """ONNX's inference does not look at them, and a loop would read beyond the smaller one."""
    with pytest.raises(ModelError, match=r"expected equal dims, got \d and \d"):
        load_model(text_model(f"g (float[2, 4, 5] x, {body}"))


def test_dims_that_cannot_be_equal_are_refused_by_node() -> None:
    source = """g (float[n] x, float[3] p, float[4] q) => (float y, float z) {
    [first] y = MatMul(x, p)  [second] z = MatMul(x, q) }"""
    with pytest.raises(ModelError, match=r"node `second` \(MatMul\): expected equal dims, got 3 and 4"):
        load_model(text_model(source))


def test_a_shape_known_only_at_run_time_keeps_what_the_model_declares() -> None:
    nodes = "{ y = Reshape(x, s) }"
    declares = load_model(text_model(f"g (float[6] x, int64[2] s) => (float[2,3] y) {nodes}"))
    assert dims(declares.graph.outputs[0]) == (2, 3)
    silent = load_model(text_model(f"g (float[6] x, int64[2] s) => (float[?,3] y) {nodes}"))
    (y,) = silent.graph.outputs
    assert (text(dims(y)), late(y)) == (("y_dim0", 3), ("y_dim0",))


def test_an_unknown_operator_of_another_domain_keeps_its_declared_shape() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "my.ops": 1]>
    g (float[n, 4] x) => (float[n, 4] y) <float[n, 4] a> { a = my.ops.Act(x)  y = Relu(a) }""")
    assert text(dims(load_model(model).graph.outputs[0])) == ("n", 4)


FLATTEN = """g (float[n, 8, h] x) => (float[?, ?] y)
<int64 zero = {0}, int64[1] at = {0}, int64[1] rest = {-1}> {
s = Shape(x)  g0 = Gather<axis=0>(s, zero)  u = Unsqueeze(g0, at)  t = Concat<axis=0>(u, rest)
y = Reshape(x, t) }"""


def test_a_shape_computed_by_nodes_is_followed_and_folded() -> None:
    model = load_model(text_model(FLATTEN))
    assert text(dims(model.graph.outputs[0])) == ("n", "8*h")
    (node,) = model.graph
    operand = node.inputs[1]
    assert operand is not None and operand.const_value is not None
    assert operand.const_value.numpy().tolist() == [0, -1]


def test_static_shape_arithmetic_becomes_a_constant() -> None:
    model = load_model(
        text_model("""g (float[6, 4] x) => (int64[2] y, int64 p) <int64[1] two = {2}> {
    s = Shape(x)  y = Div(s, two)  p = ReduceProd<keepdims=0>(s) }""")
    )
    assert len(model.graph) == 0
    values = [item.const_value for item in model.graph.outputs]
    assert [tensor is not None and tensor.numpy().tolist() for tensor in values] == [[3, 2], 24]


def test_integer_arithmetic_truncates_and_takes_remainders_as_onnx_does() -> None:
    source = """g (float[n] x) => (int64[4] y) <int64[4] a = {7, -7, 7, -7}, int64[4] b = {2, 2, -2, -2}> {
    q = Div(a, b)  r = Mod(a, b)  y = Sub(q, r) }"""
    (output,) = load_model(text_model(source)).graph.outputs
    assert output.const_value is not None
    assert output.const_value.numpy().tolist() == [3 - 1, -3 - 1, -3 + 1, 3 + 1]


def test_expand_by_where_and_equal_is_followed() -> None:
    """PyTorch's exporter writes expand(-1, 5) as ConstantOfShape, Equal and Where."""
    model = load_model(
        text_model("""g (float[n, 1] x) => (float[?, ?] y)
    <int64[2] want = {-1, 5}, int64[2] no = {-1, -1}> {
    s = Shape(no)  ones = ConstantOfShape<value = int64[1] {1}>(s)
    e = Equal(want, no)  w = Where(e, ones, want)
    y = Expand(x, w) }""")
    )
    assert text(dims(model.graph.outputs[0])) == ("n", 5)


def test_a_reshape_that_0_and_one_hole_cannot_say_is_left() -> None:
    model = load_model(
        text_model("""g (float[a, b, 4] x) => (float[?, ?, ?] y) <int64[1] four = {4}> {
    s = Shape<start=0, end=1>(x)  t = Shape<start=1, end=2>(x)  u = Concat<axis=0>(four, t, s)
    y = Reshape(x, u) }""")
    )
    assert text(dims(model.graph.outputs[0])) == (4, "b", "a")
    assert [node.op_type for node in model.graph][-1] == "Reshape"


def test_a_pooling_that_onnx_misreads_is_put_right_and_so_is_what_follows() -> None:
    """Opset 20: ONNX's inference says 3 windows, onnxruntime and ONNX's reference evaluator compute 2."""
    pool = "MaxPool<kernel_shape=[3], strides=[5], pads=[1,1], ceil_mode=1>(x)"
    source = f"g (float[1,1,8] x) => (float[?,?,?] y) {{ a = {pool} b = Relu(a) y = Concat<axis=2>(b, b) }}"
    assert dims(load_model(text_model(source)).graph.outputs[0]) == (1, 1, 4)
    assert dims(load_model(text_model(source, opset=22)).graph.outputs[0]) == (1, 1, 4)


@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("pads", [(0, 0), (1, 0), (1, 1), (2, 2)])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(3, 1, 1), (3, 2, 1), (3, 2, 2), (3, 5, 1), (4, 3, 1)]
)
def test_pooling_over_symbols_agrees_with_onnx_on_numbers(
    kernel: int, stride: int, dilation: int, pads: tuple[int, int], ceil_mode: int
) -> None:
    attributes = (
        f"<kernel_shape=[{kernel}], strides=[{stride}], dilations=[{dilation}], "
        f"pads=[{pads[0]},{pads[1]}], ceil_mode={ceil_mode}>"
    )
    symbolic = text_model(
        f"g (float[1,1,h] x) => (float[?,?,?] y) {{ y = MaxPool{attributes}(x) }}", opset=22
    )
    (*_, found) = dims(load_model(symbolic).graph.outputs[0])
    for size in range(8, 20):
        nodes = f"{{ y = MaxPool{attributes}(x) }}"
        static = text_model(f"g (float[1,1,{size}] x) => (float[?,?,?] y) {nodes}", opset=22)
        (*_, expected) = dims(load_model(static).graph.outputs[0])
        assert evaluate(found, {"h": size}) == expected


def test_a_shape_is_known_from_what_keeps_it() -> None:
    """The axes are known only when the model runs; the declared result of Log tells what they leave."""
    model = text_model("""g (float[n, 4] x, int64[1] axes) => (float[n, 1] y) {
        r = ReduceSum(x, axes) l = Log(r) y = Identity(l) }""")
    graph = load_model(model).graph
    assert [list(map(str, dims(node.outputs[0]))) for node in graph] == [["n", "1"]] * 3


def test_types_of_what_a_scan_of_a_definition_gives() -> None:
    """Inference of a single node also goes through the graphs inside it."""
    model = text_model(
        """g (float[b, s, 32] q) => (float[b, s, 32] y, float[b, 4, 8, 8] state) {
            y, state = LinearAttention<q_num_heads=4, kv_num_heads=4, update_rule="linear">(q, q, q) }""",
        28,
    )

    class Most(OpBackend):
        allocates = True

        def check(self, node: ir.Node) -> str | None:
            return "not whole" if node.op_type == "LinearAttention" else None

    graph = cut(model, [Most("most")]).model.graph
    (scan,) = (node for node in graph if node.op_type == "Scan")
    assert [value.dtype for value in scan.outputs] == [ir.DataType.FLOAT] * 2
    assert list(map(str, dims(scan.outputs[0]))) == ["b", "4", "8", "8"]


def test_a_zero_that_onnx_writes_for_an_unknown_dim_is_in_no_later_dim() -> None:
    model = text_model(
        """g (double[a, b, c] x, double[a, d, e] k, double[1, 3, 3] w) => (double[p, q, r] y) {
            z = Attention<q_num_heads=4, kv_num_heads=2>(x, k, k)
            y = Conv<pads=[1, 1]>(z, w) }""",
        23,
    )
    assert [str(dim) for dim in dims(load_model(model).graph.outputs[0])] == ["a", "1", "z_dim2"]


def test_what_onnx_gets_wrong_is_in_no_dim_of_a_branch() -> None:
    """Before opset 22, its windows may start behind the plane: it finds 3 rows here."""
    model = text_model(
        """g (bool chosen, float[2, 2, 4, 11] x) => (float[?, ?, ?, ?] y) {
            pooled = MaxPool<ceil_mode=1, kernel_shape=[1, 1], strides=[2, 1]>(x)
            y = If(chosen)<then_branch = yes () => (float[?, ?, ?, ?] p) { p = Relu(pooled) },
                           else_branch = no () => (float[?, ?, ?, ?] q) { q = Neg(pooled) }> }""",
        21,
    )
    assert dims(load_model(model).graph.outputs[0]) == (2, 2, 2, 11)


def test_what_is_dequantized_by_one_scale_is_stretched_before() -> None:
    """So that DequantizeLinear stays in front of the operator, where backends look for it."""
    source = """g (uint8[n] x, uint8[m] z, float s, uint8 o) => (uint8[?] y) {
    a = DequantizeLinear(x, s, o)  b = DequantizeLinear(z, s, o)  c = Add(a, b)
    y = QuantizeLinear(c, s, o) }"""
    graph = load_model(text_model(source)).graph
    (total,) = (node for node in graph if node.op_type == "Add")
    makers = [node_of(value) for value in total.inputs]
    assert [maker.op_type for maker in makers] == ["DequantizeLinear"] * 2
    assert [node_of(maker.inputs[0]).op_type for maker in makers] == ["Expand"] * 2
    assert [node.op_type for node in graph].count("DequantizeLinear") == 2
    assert {value.name for node in graph if node.op_type == "Expand" for value in node.inputs[:1]} == {
        "x",
        "z",
    }


def node_of(value: ir.Value | None) -> ir.Node:
    assert value is not None
    node = value.producer()
    assert node is not None
    return node


def test_types_of_a_training_operator_whose_operand_onnx_does_not_know() -> None:
    proto = text_model("""g (float r, int64 t, float[3] x, float[3] grad, float[3] state) => (float[?] y)
    { p = com.microsoft.Gelu (x)
      trained, kept = ai.onnx.preview.training.Momentum
        <alpha = 0.9, beta = 0.8, mode = "standard", norm_coefficient = 0.1> (r, t, p, grad, state)
      y = Abs (kept) }""")
    for domain in ("ai.onnx.preview.training", "com.microsoft"):
        proto.opset_import.append(helper.make_opsetid(domain, 1))
    made = {value.name: value for node in load_model(proto).graph for value in node.outputs}
    assert made["kept"].dtype == made["trained"].dtype == ir.DataType.FLOAT


def test_weights_and_caches_fix_the_features_that_a_name_stands_for() -> None:
    """What was refused, since loops need their number."""
    proto = text_model("""g (float[n, a] x, float[n, b] y, float[n, c] z, float[1, 2, 5, d] q, float[1, e] m,
     int64[1, 5] at, float[9, 2] cosine, float[9, 2] sine, uint8[3, 1, 8] w, float[3] k)
    => (float[?, ?] s, float[?, ?] l, float[?, ?] v, float[?, ?, ?, ?] r, float[?, ?] p)
    { s = ai.onnx.ml.Scaler <offset = [1.0, 2.0, 3.0], scale = [1.0, 2.0, 3.0]> (x)
      l = ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0, 3.0, 4.0], targets = 2> (y)
      v = ai.onnx.ml.SVMRegressor <kernel_type = "LINEAR", coefficients = [1.0, 2.0], n_supports = 2,
        support_vectors = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], rho = [0.5]> (z)
      r = com.microsoft.RotaryEmbedding (q, at, cosine, sine)
      p = com.microsoft.MatMulNBits <K = 16, N = 3, bits = 4, block_size = 16> (m, w, k) }""")
    for domain in ("ai.onnx.ml", "com.microsoft"):
        proto.opset_import.append(helper.make_opsetid(domain, 1))
    found = {item.name: text(dims(item)) for item in load_model(proto).graph.inputs}
    assert [found[name][-1] for name in "xyzqm"] == [3, 2, 3, 4, 16]


@pytest.mark.parametrize("opset", [11, 13])
def test_a_squeeze_without_axes_leaves_a_name_that_may_be_1(opset: int) -> None:
    """What was refused, since the rank depends on the size. Calls in which it is 1 are, now."""
    model = load_model(text_model("g (float[n, 1, m] x) => (float[?, ?] y) { y = Squeeze (x) }", opset=opset))
    assert text(dims(model.graph.outputs[0])) == ("n", "m")
    pairs = [{str(one), str(other)} for one, other in constraints(model)]
    assert pairs == [{name, f"Max({name}, 2*Min(1, {name}))"} for name in "nm"]


def test_a_squeeze_without_axes_believes_a_declared_rank_only_where_all_names_may_be_1() -> None:
    """Before, a declared rank of 1 for dims [3, 1, 2] gave the first two elements."""
    for declared, expected, needed in (("[?, ?]", ("n", "m"), 2), ("[?]", ("n", "m"), 2), ("", (), 0)):
        model = load_model(text_model(f"g (float[n, 1, m] x) => (float{declared} y) {{ y = Squeeze (x) }}"))
        assert text(dims(model.graph.outputs[0])) == expected
        assert len(constraints(model)) == needed
        if not needed:
            assert text(dims(model.graph.inputs[0])) == (1, 1, 1)


NEEDS = """
g (float[n, m] x, float[k] w) => (float[?] a, float[?, ?] b, float[?] c, float[?, ?] d, float[?, ?] e)
<int64[1] zero = {0}, int64[2] four = {4, 6}, int64[2] some = {-1, 5}, int64[2] parts = {2, 3}> {
  twice = Concat <axis = 0> (x, x)
  a = Squeeze (twice, zero)
  b = Reshape (x, four)
  c = Squeeze (w)
  d = Reshape (x, some)
  e, f = Split <axis = 1> (twice, parts)
}"""


def test_each_constraint_names_the_node_and_what_it_needs() -> None:
    model = load_model(text_model(NEEDS))
    assert [need.told(*pair) for pair, need in needs(model).items()] == [
        "node `Squeeze_1` (Squeeze): it removes dim 0 of its input, 2*n, which must be 1",
        "node `Reshape_2` (Reshape): its input must have as many elements as its shape: expected 5*n == 24",
        "node `Squeeze_3` (Squeeze): as it has no axes, and its rank is fixed, its dim k must not be 1",
    ]
    (pair,) = needs(
        load_model(
            text_model("g (float[n] x) => (float[?, ?] y) <int64[2] s = {-1, 5}> { y = Reshape (x, s) }")
        )
    ).items()
    assert pair[1].told(*pair[0]) == "node `Reshape_0` (Reshape): n must be a multiple of 5"
    heads = "g (float[n,5,3,4] q, float[n,2,5,4] k) => (float[?,?,?,?] y) { y = Attention (q, k, k) }"
    with pytest.raises(
        ModelError, match=r"\(Attention\): its 5 heads of queries must be a multiple of its 2 heads"
    ) as found:
        load_model(text_model(heads, opset=23))
    assert found.type is ModelError  # the one that users know, and no other beneath it


def test_a_squeeze_without_axes_leaves_out_a_name_that_a_later_node_makes_1() -> None:
    model = load_model(
        text_model(
            """g (float[n, 3] x) => (float[?] y, float[?] z)
    { y = Squeeze (x)  z = Squeeze <axes = [0]> (x) }""",
            opset=11,
        )
    )
    assert text(dims(model.graph.outputs[0])) == (3,) and not constraints(model)


def test_what_a_definition_needs_of_its_operands_holds_for_the_node() -> None:
    """Loops that take the node whole would read beyond its weights."""
    proto = text_model("""g (uint8[m, n] x, float s, uint8 z, uint8[7, 4] w, uint8[a, b, c] q, int8[b, 5] r)
    => (uint8[?, ?] y, float[?, ?, ?] p) { y = com.microsoft.QGemm (x, s, z, w, s, z, , s, z)
      p = com.microsoft.MatMulIntegerToFloat (q, r, s, s) }""")
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x, *_, q, r = (text(dims(value)) for value in load_model(proto).graph.inputs)
    assert (x, q[-1]) == (("m", 7), r[0])


def test_queries_are_of_as_many_samples_as_keys() -> None:
    """Their definition would stretch one sample, and onnxruntime refuses it."""
    proto = text_model("""g (float[a, s, 8] q, float[b, c, 8] k, float[d, e, 8] v) => (float[?, ?, ?] y)
    { y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v) }""")
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = [text(dims(value)) for value in load_model(proto).graph.inputs]
    assert found == [("a", "s", 8), ("a", "c", 8), ("a", "c", 8)]
    proto = text_model("""g (float[a, b, c, 8] x, int64[2, 3] at, float[9, 4] t, float[9, 4] u)
    => (float[?, ?, ?, ?] y) { y = com.microsoft.RotaryEmbedding (x, at, t, u) }""")
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert text(dims(load_model(proto).graph.inputs[0])) == (2, "b", 3, 8)


def test_random_numbers_like_a_tensor_have_its_shape() -> None:
    """Also one that only a call knows, which ONNX's inference has no name for."""
    model = load_model(
        text_model("""g (float[n] x) => (float[?, ?] y) { at = NonZero (x)
      f = Cast <to = 1> (at)  noise = RandomNormalLike (f)  y = Add (f, noise) }""")
    )
    _, cast, noise, _ = model.graph
    assert text(dims(noise.outputs[0])) == text(dims(cast.outputs[0])) == text(dims(model.graph.outputs[0]))


def test_unique_along_an_axis_of_an_unknown_rank() -> None:
    """Another domain's operator tells no rank: how many slices are found is a size of its own."""
    model = text_model(
        "g (float[2, 3] x) => (int64[?] y) { z = other.Op (x)  u, y = Unique <axis = -1> (z) }"
    )
    model.opset_import.add(domain="other", version=1)
    assert text(dims(load_model(model).graph.outputs[0])) == ("y_dim0",)
