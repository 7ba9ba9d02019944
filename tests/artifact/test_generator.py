"""The parts of the generator: size expressions as C, and the sharing of working memory."""

from __future__ import annotations

import re

import pytest
import sympy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from farcall.artifact._checked import CheckedText, integer
from farcall.artifact._memory import Buffer, plan_slots
from farcall.errors import ModelError
from farcall.graph.dims import Dim, ceildiv, evaluate, floordiv, fold, maximum, minimum, parse, symbol

H, W = symbol("h"), symbol("w")
TEXT = CheckedText({"h": "s_h", "w": "s_w"})


def run(text: str, h: int, w: int) -> int:
    """Evaluate the C text as Python, whose ints do not overflow."""
    python = re.sub(r"INT64_C\((\d+)\)", r"\1", text).replace("&bad, ", "")
    functions = {
        "fc_add": lambda a, b: a + b,
        "fc_mul": lambda a, b: a * b,
        "fc_floordiv": lambda a, b: a // b,
        "fc_mod": lambda a, b: a % b,
        "fc_min": min,
        "fc_max": max,
    }
    return int(eval(python, {"__builtins__": {}}, {**functions, "s_h": h, "s_w": w}))  # noqa: S307


dims = st.recursive(
    st.one_of(st.integers(1, 9), st.just(H), st.just(W)),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: fold(sympy.sympify(p[0] + p[1]))),
        st.tuples(inner, inner).map(lambda p: fold(sympy.sympify(p[0] * p[1]))),
        st.tuples(inner, st.integers(1, 5)).map(lambda p: floordiv(*p)),
        st.tuples(inner, st.integers(1, 5)).map(lambda p: ceildiv(*p)),
        st.tuples(inner, inner).map(lambda p: minimum(*p)),
        st.tuples(inner, inner).map(lambda p: maximum(*p)),
        st.tuples(inner, st.integers(1, 5)).map(lambda p: fold(sympy.sympify(p[0] - p[1]))),
    ),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(dim=dims, h=st.integers(0, 50), w=st.integers(0, 50))
def test_c_text_means_the_dim(dim: Dim, h: int, w: int) -> None:
    assert run(TEXT(dim), h, w) == evaluate(dim, {"h": h, "w": w})


@pytest.mark.parametrize(
    "text", ["(h - 1)//2 + 1", "h % 4", "h*w**2", "-h", "ceiling(h/3)", "Max(h, w, 3)", "7"]
)
def test_dims_from_text(text: str) -> None:
    dim = parse(text)
    for h, w in ((1, 2), (8, 3), (13, 7)):
        assert run(TEXT(dim), h, w) == evaluate(dim, {"h": h, "w": w})


def test_what_cannot_be_computed_is_named() -> None:
    with pytest.raises(ModelError, match="`k` is in no input's shape"):
        TEXT(symbol("k") + 1)
    with pytest.raises(ModelError, match="does not fit into 64 bits"):
        integer(2**63)
    with pytest.raises(ModelError, match="cannot be computed"):
        TEXT(sympy.sqrt(H))


sizes = st.one_of(
    st.integers(0, 100),
    st.sampled_from([H, 2 * H, 4 * H, H * W, 3 * H * W, H + W, fold(sympy.floor(H / 2)) * 4]),
)
lives = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), sizes), max_size=14)


@settings(max_examples=150, deadline=None)
@given(lives)
@example([(0, 0, 0), (1, 0, 1)])  # a byte in the slot of nothing
def test_buffers_that_live_together_never_share(lives: list[tuple[int, int, Dim]]) -> None:
    ordered = sorted(lives, key=lambda life: life[0])
    buffers = [Buffer(k, size, start, start + more) for k, (start, more, size) in enumerate(ordered)]
    plan = plan_slots(buffers)
    for a in buffers:
        for b in buffers:
            if a is not b and a.first <= b.last and b.first <= a.last:
                assert plan.of[a.key] != plan.of[b.key]
        for h, w in ((0, 0), (1, 1), (7, 3), (100, 1)):
            bindings = {"h": h, "w": w}
            assert evaluate(plan.sizes[plan.of[a.key]], bindings) >= evaluate(a.size, bindings)


def test_a_chain_needs_two_slots() -> None:
    chain = [Buffer(k, 4 * H, k, k + 1) for k in range(20)]
    plan = plan_slots(chain)
    assert plan.sizes == [4 * H, 4 * H]


def test_slots_grow_to_a_multiple() -> None:
    plan = plan_slots(
        [Buffer("a", 4 * H, 0, 1), Buffer("b", 8 * H, 2, 3), Buffer("c", 100, 2, 3), Buffer("d", 200, 4, 5)]
    )
    assert plan.sizes == [8 * H, 200]
    assert plan.of == {"a": 0, "b": 0, "c": 1, "d": 1}
