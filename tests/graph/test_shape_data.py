"""Integer tensors followed as data, against ONNX's reference evaluator.

``s`` is the shape of ``x``, and ``y`` the result of the nodes. ConstantOfShape turns ``y`` into dims.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from farcall.graph import load_model
from farcall.graph._constraints import constraints
from farcall.graph.dims import dims, evaluate, late

from .graphs import text_model

SIZES = {"a": 2, "b": 3, "c": 7}
CONSTANTS = """
int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] far = {99},
int64[1] last = {-1}, int64[1] before = {-99}, int64[3] many = {2, 2, 2}, int64[2] pick = {2, 0},
int64 first = {0}, int64[3] ask = {-1, 5, -1}, int64[3] none = {-1, -1, -1},
int64 start = {1}, int64 stop = {8}, int64 step = {3}"""


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Identity(s)",
        "y = Shape<start=1>(x)",
        "y = Shape<start=-2, end=-1>(x)",
        "n = Size(x) y = Unsqueeze(n, zero)",
        "y = Gather(s, pick)",
        "g = Gather(s, first) y = Unsqueeze(g, zero)",
        "g = Gather(s, one) y = Concat<axis=0>(g, two, s)",
        "y = Slice(s, one, far)",
        "y = Slice(s, zero, two, zero, two)",
        "y = Slice(s, last, before, zero, last)",
        "g = Gather(s, one) q = Squeeze(g, zero) y = Reshape(q, one)",
        "y = Add(s, many)",
        "y = Add(s, one)",
        "t = Mul(s, many) y = Sub(t, s)",
        "y = Div(s, two)",
        "y = Min(s, three)",
        "y = Max(s, three, one)",
        "n = Neg(s) y = Add(n, far)",
        "p = ReduceProd(s) y = Add(p, one)",
        "f = Cast<to=6>(s) y = Cast<to=7>(f)",
        "e = Equal(ask, none) y = Where(e, s, ask)",
        "e = Equal(s, none) y = Where(e, many, s)",
        "y = Range(start, stop, step)",
        "y = Expand(two, many) ",
        "k = Shape(s) f = ConstantOfShape<value = int64[1] {4}>(k) y = Mul(f, s)",
        "r = Mod(many, three) y = Mul(r, s)",
        "m = Neg(s) y = Abs(m)",
        "y = Mod(s, two)",
        "g = Greater(s, last) y = Where(g, s, many)",
        "l = LessOrEqual(s, last) n = Not(l) w = And(n, n) y = Where(w, s, many)",
        "g = Gather(s, first) q = Add(g, step) y = Range(g, q, start)",
        "r = ReduceSum(s) m = ReduceMax(s) t = Add(r, m) y = Reshape(t, one)",
        "y = Tile(s, two)",
        "y = CastLike(s, two)",
        "n = Neg(s) d = Div(n, two) y = Neg(d)",  # truncates, in both directions
        "l = Sub(s, one) d = Div(l, two) y = Add(d, one)",
    ],
)
def test_what_nodes_make_of_a_shape(nodes: str) -> None:
    if "Expand" in nodes:
        nodes = nodes.replace("many", "three")
    head = f"<{CONSTANTS}> {{ s = Shape(x) {nodes} z = ConstantOfShape(y) }}"
    static = text_model(f"g (float[2,3,7] x) => (int64[k] y) {head}")
    (expected,) = ReferenceEvaluator(static).run(None, {"x": np.zeros((2, 3, 7), dtype=np.float32)})

    (output,) = load_model(static).graph.outputs
    assert output.const_value is not None  # folded: no node is left
    np.testing.assert_array_equal(output.const_value.numpy(), expected)

    rank = ",".join("?" * len(expected))
    symbolic = load_model(text_model(f"g (float[a,b,c] x) => (float[{rank}] z) {head}"))
    found = dims(symbolic.graph.outputs[0])
    assert [evaluate(dim, SIZES) for dim in found] == expected.tolist()


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Div(many, s)",
        "y = Mod(s, last)",
        "g = Greater(s, many) y = Where(g, s, many)",
        "e = Equal(s, many) y = Where(e, s, many)",
        "f = Cast<to=1>(s) h = Mul(f, f) y = Cast<to=7>(h)",
    ],
)
def test_what_a_symbol_leaves_open_is_not_guessed(nodes: str) -> None:
    head = f"<{CONSTANTS}> {{ s = Shape(x) {nodes} z = ConstantOfShape(y) }}"
    model = load_model(text_model(f"g (float[a,b,c] x) => (float[?,?,?] z) {head}"))
    assert len(late(model.graph.outputs[0])) == 3


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("r = Range(zero, n, step)", 2),
        ("r = Range(n, zero, back)", 3),
        ("m = Add(n, step) r = Range(n, m, one)", 3),
        ("r = Range(n, zero, one)", 0),
        ("f = Cast<to=1>(n) h = Range(fzero, f, fstep) r = Cast<to=7>(h)", 5),
    ],
)
def test_the_length_of_a_range_over_symbols(nodes: str, expected: int) -> None:
    head = """<int64 zero = {0}, int64 one = {1}, int64 step = {3}, int64 back = {-2}, int64 first = {0},
        float fzero = {0}, float fstep = {1}>"""
    model = text_model(f"""g (float[a, 4] x) => (int64[k] r) {head} {{
        s = Shape(x) n = Gather(s, first) {nodes} }}""")
    (output,) = load_model(model).graph.outputs
    (length,) = dims(output)
    assert evaluate(length, {"a": 5}) == expected
    assert not late(output)


def test_the_length_of_a_range_of_halves_is_not_known() -> None:
    model = text_model("""g (float[a] x) => (float[k] r) <float zero = {0}, float half = {0.5}> {
        s = Size(x) f = Cast<to=1>(s) r = Range(zero, f, half) }""")
    assert late(load_model(model).graph.outputs[0])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("8, 1, a", [("a", "Max(1, a)")]),
        ("b, a", [("a", "Max(a, Min(1, b))")]),
        ("a, 8, b", []),
        ("0, a", []),
    ],
)
def test_a_size_that_may_be_0_is_not_read_as_that_of_the_operand(
    given: str, expected: list[tuple[str, str]]
) -> None:
    """Beside a -1. A call in which it is 0 would get other dims from ONNX than from the symbol."""
    source = f"""g (float[{given}] x, float[a] y) => (float[?, ?] z) <int64[1] last = {{-1}}> {{
        s = Shape(y) t = Concat<axis=0>(s, last) z = Reshape(x, t) }}"""
    model = load_model(text_model(source, opset=14))
    assert [(str(one), str(other)) for one, other in constraints(model)] == expected
    allowed = load_model(text_model(source.replace("Reshape(", "Reshape<allowzero=1>("), opset=14))
    assert not constraints(allowed)
