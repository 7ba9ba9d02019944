"""The pattern language: valid texts, refused texts, and matches."""

from __future__ import annotations

import contextlib

import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.errors import UsageError
from farcall.graph import Match, Pattern, load_model
from farcall.graph._pattern_text import Operand, Operator

from .graphs import chain, text_model


def nodes_of(text: str) -> dict[str, ir.Node]:
    """Nodes by the name of their first output."""
    model = load_model(text_model(text))
    return {node.outputs[0].name or "": node for node in model.graph}


def matched(pattern: str, node: ir.Node) -> Match | None:
    return Pattern("p", pattern).match(node)


def names(match: Match | None) -> list[str]:
    assert match is not None
    return [node.outputs[0].name or "" for node in match.nodes]


def test_the_parser_reads_operators_and_operands() -> None:
    root = Pattern("p", " y = Relu|my.domain::Act( Conv(x, w, b?), _ , rest* ) ").roots[0]
    assert root.kinds == {("", "Relu"), ("my.domain", "Act")}
    conv, anything, rest = root.operands
    assert isinstance(conv, Operator)
    assert conv.operands == (Operand("x"), Operand("w"), Operand("b", optional=True))
    assert anything == Operand("_")
    assert rest == Operand("rest", rest=True)
    assert Pattern("p", "Shape()").roots[0].operands == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected an operator or a name at character 1"),
        ("x", r"expected an operator, such as Relu\(x\), at character 1"),
        ("Relu", r"expected '\(' at character 5"),
        ("Relu(x", "expected ',' at character 7"),
        ("Relu(x))", "expected the end at character 8"),
        pytest.param("Relu(" * 5000, "nests too deep", id="deep"),
        ("Relu(x,)", "expected an operator or a name at character 8"),
        ("Relu(x y)", "expected ',' at character 8"),
        ("Relu(x*, y)", r"expected '\)' at character 8"),
        ("Relu(x; y)", r"expected a name or one of .* at character 7"),
        ("Relu|(x)", "expected an operator at character 6"),
        ("y =", "expected an operator or a name at character 4"),
        ("Relu?(x)", "expected an operator that is not optional"),
        ("Add+(x, y)", "expected _ for every further operand of a repeated operator at character 6"),
        ("Relu+()", "expected an operand at character 7"),
        ("Conv<>(x)", "expected the name of an attribute at character 6"),
        ("Conv<group>(x)", "expected '=' at character 11"),
        ("Conv<group=x>(x)", 'expected a number, a list of numbers or a "text" at character 12'),
        ("Conv<pads=[1 2]>(x)", "expected ',' at character 14"),
    ],
)
def test_what_is_no_pattern_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Pattern("p", text)


@given(st.text(alphabet="Aax()|,?*!+<>[]1:=_. ", max_size=30))
def test_any_text_is_a_pattern_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert Pattern("p", text).roots[0].kinds


CONVS = """g (float[1,3,8,8] x, float[4,3,3,3] w, float[4] b) => (float[1,4,6,6] r, float[1,4,6,6] s)
{ c = Conv(x, w, b)  r = Relu(c)  d = Conv(x, w)  s = Relu(d) }"""


def test_optional_inputs_may_be_absent() -> None:
    nodes = nodes_of(CONVS)
    with_bias = matched("Relu(Conv(x, w, b?))", nodes["r"])
    assert names(with_bias) == ["c", "r"]
    assert with_bias is not None and with_bias.root is nodes["r"]
    assert {key: value and value.name for key, value in with_bias.values.items()} == {
        "x": "x",
        "w": "w",
        "b": "b",
    }
    without = matched("Relu(Conv(x, w, b?))", nodes["s"])
    assert without is not None and without.values["b"] is None
    assert matched("Relu(Conv(x, w))", nodes["r"]) is None
    assert matched("Relu(Conv(x, w, b))", nodes["s"]) is None


def test_the_same_name_is_the_same_value() -> None:
    nodes = nodes_of(
        "g (float[4] x, float[4] z) => (float[4] y, float[4] v) {"
        " a = Sigmoid(x) y = Mul(x, a) b = Sigmoid(x) v = Mul(z, b) }"
    )
    assert names(matched("Mul(x, Sigmoid(x))", nodes["y"])) == ["a", "y"]
    assert matched("Mul(x, Sigmoid(x))", nodes["v"]) is None
    assert names(matched("Mul(z, Sigmoid(x))", nodes["v"])) == ["b", "v"]
    assert names(matched("Mul(_, Sigmoid(_))", nodes["v"])) == ["b", "v"]


def test_commutative_operators_match_either_way_round_and_others_do_not() -> None:
    nodes = nodes_of(
        "g (float[4] x, float[4] z) => (float[4] y, float[4] v) {"
        " a = Exp(x) y = Add(z, a) b = Exp(x) v = Sub(z, b) }"
    )
    assert names(matched("Add(Exp(x), z)", nodes["y"])) == ["a", "y"]
    assert matched("Sub(Exp(x), z)", nodes["v"]) is None
    assert matched("Sub(z, Exp(x))", nodes["v"]) is not None


def test_a_swap_deep_inside_is_found_too() -> None:
    nodes = nodes_of("g (float[4] x, float[4] z) => (float[4] y) { a = Exp(x) b = Mul(z, a) y = Add(z, b) }")
    assert names(matched("Add(Mul(Exp(p), q), q)", nodes["y"])) == ["a", "b", "y"]


def test_an_interior_value_with_another_user_is_no_interior() -> None:
    nodes = nodes_of("g (float[4] x) => (float[4] y, float[4] v) { a = Exp(x) y = Neg(a) v = Abs(a) }")
    assert matched("Neg(Exp(x))", nodes["y"]) is None


def test_an_interior_value_that_is_an_output_is_no_interior() -> None:
    nodes = nodes_of("g (float[4] x) => (float[4] a, float[4] y) { a = Exp(x) y = Neg(a) }")
    assert matched("Neg(Exp(x))", nodes["y"]) is None


def test_a_value_that_is_used_twice_by_its_user_is_no_interior() -> None:
    nodes = nodes_of("g (float[4] x) => (float[4] y) { a = Exp(x) y = Add(a, a) }")
    assert matched("Add(Exp(x), Exp(x))", nodes["y"]) is None


def test_a_second_output_that_is_used_keeps_a_node_out() -> None:
    nodes = nodes_of(
        "g (float[1,1,4,4] x) => (float[1,1,2,2] y, int64[1,1,2,2] i) {"
        " a, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) y = Relu(a) }"
    )
    assert matched("Relu(MaxPool(x))", nodes["y"]) is None


def test_rest_takes_all_further_inputs() -> None:
    nodes = nodes_of(
        "g (float[4] x, float[4] z) => (float[12] y) { a = Concat<axis=0>(x, z, x) y = Relu(a) }"
    )
    assert names(matched("Relu(Concat(first, rest*))", nodes["y"])) == ["a", "y"]
    assert matched("Relu(Concat(a, b))", nodes["y"]) is None
    assert matched("Relu(Concat(a, b, c, d))", nodes["y"]) is None
    assert matched("Relu(Concat(a, b, c, d?))", nodes["y"]) is not None


def test_either_operator() -> None:
    nodes = nodes_of(
        "g (float[4] x) => (float[4] y, float[4] z) { a = Exp(x) y = Neg(a) b = Log(x) z = Neg(b) }"
    )
    for name in ("y", "z"):
        assert matched("Neg(Exp|Log(x))", nodes[name]) is not None
    assert matched("Neg(Exp|Abs(x))", nodes["z"]) is None


def test_nodes_come_in_topological_order() -> None:
    nodes = nodes_of(
        "g (float[4] x, float[4] z) => (float[4] y) {"
        " a = Exp(x) b = Neg(a) c = Log(z) d = Abs(c) y = Mul(b, d) }"
    )
    order = names(matched("Mul(Neg(Exp(x)), Abs(Log(z)))", nodes["y"]))
    assert set(order) == {"a", "b", "c", "d", "y"}
    assert order.index("a") < order.index("b") < order.index("y") == 4
    assert order.index("c") < order.index("d")


def test_an_operator_may_be_absent() -> None:
    nodes = nodes_of(CONVS)
    pattern = Pattern("p", "Relu?(Conv(x, w, b?))")
    assert names(pattern.match(nodes["r"])) == ["c", "r"]
    assert names(pattern.match(nodes["c"])) == ["c"]
    nodes = nodes_of(
        "g (float[4] x, float[4] z) => (float[4] y, float[4] v) { a = Exp(x) y = Neg(a) v = Neg(z) }"
    )
    assert names(matched("Neg(Exp?(x))", nodes["y"])) == ["a", "y"]
    assert names(matched("Neg(Exp?(x))", nodes["v"])) == ["v"]


def test_the_names_of_an_absent_operator_have_no_value() -> None:
    nodes = nodes_of("g (float[4] x, float[4] z) => (float[4] y) { y = Exp(x) }")
    match = matched("Add?(Exp(x), b)", nodes["y"])
    assert match is not None and match.values["b"] is None


LINKS = """g (float[4] x, float[4] z) => (float[4] y)
{ e = Exp(x) a = Add(e, z) b = Add(z, a) c = Add(b, z) y = Relu(c) }"""


def test_a_chain_is_as_long_as_it_can_be() -> None:
    nodes = nodes_of(LINKS)
    assert names(matched("Relu(Add+(x, _))", nodes["y"])) == ["a", "b", "c", "y"]
    assert names(matched("Add+(Exp(x), _)", nodes["c"])) == ["e", "a", "b", "c"]
    assert names(matched("Add+(Add(x, v), _)", nodes["c"])) == ["a", "b", "c"]
    assert matched("Add+(Log(x), _)", nodes["c"]) is None
    assert names(matched("Relu(Neg+?(Add(x, v)))", nodes["y"])) == ["c", "y"]
    assert names(matched("Relu|Add|Exp+(x, _?)", nodes["y"])) == ["e", "a", "b", "c", "y"]


def test_a_chain_of_ten_thousand_needs_no_recursion() -> None:
    node = list(load_model(chain(10_000)).graph)[-1]
    match = matched("Relu+(x)", node)
    assert match is not None and len(match.nodes) == 10_000 and match.root is node


CONSTANTS = """g (float[4] x, float[4] z) => (float[4] y, float[4] v)
<float[4] w = {1.0, 2.0, 3.0, 4.0}, float half = {0.5}, int64[1] two = {2}>
{ a = Add(x, w) y = Mul(a, half) b = Add(x, z) v = Mul(b, w) }"""


def test_an_operand_must_be_a_constant() -> None:
    nodes = nodes_of(CONSTANTS)
    assert matched("Add(x, w!)", nodes["a"]) is not None
    assert matched("Add(x, w!)", nodes["b"]) is None
    assert matched("Add(x, _!)", nodes["b"]) is None
    assert matched("Concat(x, rest*!)", nodes["b"]) is None
    conv = nodes_of(CONVS)["d"]
    assert matched("Conv(x, w, b?!)", conv) is not None
    assert matched("Conv(x, w, b!)", conv) is None


def test_a_number_is_a_constant_of_one_element() -> None:
    nodes = nodes_of(CONSTANTS)
    assert names(matched("Mul(Add(x, w!), 0.5)", nodes["y"])) == ["a", "y"]
    assert matched("Mul(Add(x, w), 0.25)", nodes["y"]) is None
    assert matched("Mul(Add(x, w), 1)", nodes["v"]) is None


def test_attributes_are_compared_and_may_be_defaults() -> None:
    nodes = nodes_of(
        "g (float[1,1,4,4] x) => (float[1,1,2,2] y) {"
        ' y = MaxPool<kernel_shape=[2,2], strides=[2,2], auto_pad="VALID">(x) }'
    )
    node = nodes["y"]
    assert matched("MaxPool<kernel_shape=[2, 2], ceil_mode=0>(x)", node) is not None
    assert matched('MaxPool<auto_pad="VALID">(x)', node) is not None
    assert matched("MaxPool<kernel_shape=[3, 3]>(x)", node) is None
    assert matched("MaxPool<ceil_mode=1>(x)", node) is None
    assert matched("MaxPool<nonsense=1>(x)", node) is None
