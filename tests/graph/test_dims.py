"""Dims: expressions that survive being written and read."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from farcall.ffi import _dims
from farcall.graph.dims import (
    Dim,
    UnknownShapeError,
    ceildiv,
    dims,
    dtype_name,
    evaluate,
    floordiv,
    fold,
    identifier,
    is_identifier,
    maximum,
    minimum,
    parse,
    product,
    same,
    set_dims,
    symbol,
    symbols,
    text,
    try_dims,
)

N, H = symbol("n"), symbol("h")


def expressions() -> st.SearchStrategy[Dim]:
    leaves = st.one_of(st.integers(1, 9), st.sampled_from([N, H]))

    def grow(inner: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            pair.map(lambda ab: fold(ab[0] + ab[1])),
            pair.map(lambda ab: fold(ab[0] * ab[1])),
            pair.map(lambda ab: minimum(*ab)),
            pair.map(lambda ab: maximum(*ab)),
            st.tuples(inner, st.integers(1, 4)).map(lambda ab: floordiv(ab[0] - 1, ab[1])),
        )

    return st.recursive(leaves, grow, max_leaves=6)


@given(expressions(), st.integers(0, 20), st.integers(0, 20))
def test_text_of_a_dim_reads_back_as_the_same(dim: Dim, n: int, h: int) -> None:
    again = parse(str(dim))
    assert evaluate(again, {"n": n, "h": h}) == evaluate(dim, {"n": n, "h": h})


@given(expressions(), st.integers(0, 20), st.integers(0, 20))
def test_the_value_is_that_of_sympy(dim: Dim, n: int, h: int) -> None:
    expected = dim if isinstance(dim, int) else int(dim.subs({N: n, H: h}))
    with pytest.MonkeyPatch.context() as patch:  # which takes seconds for the memory of a region
        patch.delattr(sympy.Basic, "subs")
        assert evaluate(dim, {"n": n, "h": h}) == expected


@given(st.integers(-30, 30), st.integers(1, 7))
def test_divisions_round_as_their_names_say(a: int, b: int) -> None:
    assert floordiv(a, b) == a // b
    assert ceildiv(a, b) == -(-a // b)
    shifted = fold(N + a)
    assert evaluate(floordiv(shifted, b), {"n": 5}) == (5 + a) // b
    assert evaluate(ceildiv(shifted, b), {"n": 5}) == -(-(5 + a) // b)


def test_a_quotient_is_a_number_where_the_divisor_is_never_zero() -> None:
    assert floordiv(768 * N + 768, 64 * N + 64) == 12
    assert floordiv(3 * N * H + 3 * N, 2 * H + 2) == floordiv(3 * N, 2)
    assert floordiv(7 * N + 7, 2 * N + 2) == 3


def test_a_symbol_is_the_same_for_the_same_name_and_may_be_zero() -> None:
    assert symbol("n") is N
    assert maximum(N, 1) != N  # a positive symbol would fold this away


def test_numbers_fold_to_int() -> None:
    assert type(fold(sympy.Integer(3))) is int
    assert type(product([2, 3])) is int
    assert type(product([])) is int
    assert type(fold(N + 2 - N)) is int


def test_product_and_symbols() -> None:
    assert product([N, 2, H]) == 2 * N * H
    assert symbols(N, 4, H * N) == ("n", "h")
    assert text((3, N, fold(N * 2))) == (3, "n", "2*n")


def test_same_sees_through_forms() -> None:
    assert same((N + 1) * 2, 2 * N + 2)
    assert not same(N, H)
    assert same(4, 4)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "a b",
        "1.5",
        "True",
        "x.y",
        "'a'",
        "f(x)",
        "[n]",
        "n if n else h",
        "n <",
        "9**9**9",
        "((2**60)**60)**60",
        "n**n",
        "1//0",
    ],
)
def test_what_is_no_dim_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="dim"):
        parse(bad)


def test_long_and_deep_text_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        parse("1+" * 10_000 + "1")
    with pytest.raises(ValueError, match="dim"):
        parse("(" * 400 + "n" + ")" * 400)


def test_a_product_of_many_equal_dims_is_read_back_by_all_who_read_dims() -> None:
    written = str(product([N] * 20))
    assert written == "n**20"
    assert parse(written) == N**20
    assert _dims.evaluate(written, {"n": 2}) == 1 << 20


def test_a_power_that_no_memory_holds_is_refused_at_evaluation() -> None:
    with pytest.raises(ValueError, match="more than 4096 bits"):
        _dims.evaluate("((((2**64)**64)**64)**64)**64", {})


def test_exporter_forms_are_read() -> None:
    assert parse("s0//2 + 1") == floordiv(symbol("s0"), 2) + 1
    assert parse("2*batch") == 2 * symbol("batch")
    assert parse("max(1, n)") == maximum(1, N)


def test_identifiers() -> None:
    assert is_identifier("batch")
    assert not is_identifier("lambda")
    assert identifier("batch size.1") == "batch_size_1"
    assert identifier("3d") == "_3d"
    assert is_identifier(identifier("if"))
    assert is_identifier(identifier(""))


def test_a_values_dims_are_written_and_read() -> None:
    value = ir.Value(name="x")
    set_dims(value, (3, N, floordiv(H - 1, 2) + 1))
    assert dims(value) == (3, N, floordiv(H - 1, 2) + 1)
    assert try_dims(ir.Value(name="y")) is None


def test_an_unknown_dim_names_the_value_and_the_cure() -> None:
    value = ir.Value(name="x")
    set_dims(value, (3, None))
    with pytest.raises(UnknownShapeError, match=r"`x` is not known.*value_info"):
        dims(value)
    with pytest.raises(UnknownShapeError, match="unknown rank"):
        dims(ir.Value(name="y"))


def test_dtype_names_are_numpys() -> None:
    assert dtype_name(ir.DataType.FLOAT) == "float32"
    assert dtype_name(ir.DataType.DOUBLE) == "float64"
    assert dtype_name(ir.DataType.INT64) == "int64"
    assert dtype_name(ir.DataType.BFLOAT16) == "bfloat16"
