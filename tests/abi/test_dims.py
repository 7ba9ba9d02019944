"""Dims that are expressions: compared in arguments and results; the core computes them as the rules do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import farcall as fc
from farcall.abi import FunctionAbi, Signature, TensorSpec
from farcall.abi import _dims as dims
from farcall.errors import ArgumentError, ResultError


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, "float32")


def _function(signature: Signature, result: Any = None) -> fc.Function:
    function = fc.convert(lambda *args: result)
    function.signature = signature
    return function


def test_results_are_compared_under_the_sizes_of_the_arguments() -> None:
    signature = Signature.of({"x": "float32[n]"}, "float32[2*n]")
    assert _function(signature, _zeros(6))(_zeros(3)).shape == (6,)
    with pytest.raises(ResultError, match=r"expected float32\[2\*n\] with n=3, got float32\[7\]"):
        _function(signature, _zeros(7))(_zeros(3))


def test_results_are_compared_with_each_other() -> None:
    abi = FunctionAbi(Signature.of({}, ("float32[n]", "float32[n*n]")))
    abi.unpack_results([_zeros(3), _zeros(9)])
    with pytest.raises(
        ResultError, match=r"result \[1\]: expected float32\[n\*n\] with n=3, got float32\[8\]"
    ):
        abi.unpack_results([_zeros(3), _zeros(8)])


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: np.repeat(x, 2)[::2]], ids=["native", "rules"])
def test_a_linear_expression_gives_its_name(layout: Any) -> None:
    signature = Signature.of({"x": "float32[2*n + 1]"}, "float32[n]")
    assert _function(signature, _zeros(3))(layout(_zeros(7))).shape == (3,)
    with pytest.raises(ResultError, match="with n=3, got"):
        _function(signature, _zeros(4))(layout(_zeros(7)))
    with pytest.raises(ArgumentError, match=r"expected float32\[2\*n \+ 1\], got float32\[6\]"):
        _function(signature, _zeros(3))(layout(_zeros(6)))
    assert FunctionAbi(signature).allocate_results([_zeros(7)])[0].shape == (3,)


def test_a_name_may_be_known_only_behind_its_expression() -> None:
    abi = FunctionAbi(Signature.of({"y": "float32[n*m]", "x": "float32[n, m]"}))
    assert len(abi.pack_inputs(_zeros(6), _zeros(2, 3))) == 2
    with pytest.raises(
        ArgumentError, match=r"argument y: expected float32\[n\*m\] with m=3, n=2, got float32\[5\]"
    ):
        abi.pack_inputs(_zeros(5), _zeros(2, 3))


def test_an_expression_of_unknown_names_holds_any_size() -> None:
    abi = FunctionAbi(Signature.of({"x": "float32[n*m]", "y": "float32[k//2]"}))
    assert len(abi.pack_inputs(_zeros(5), _zeros(9))) == 2


def test_an_argument_of_packed_elements_sizes_the_results() -> None:
    import ml_dtypes

    function = _function(Signature.of({"x": "int4[n]"}, "float32[n]"), _zeros(4))
    with pytest.raises(ResultError, match="with n=3, got"):
        function(np.zeros(3, ml_dtypes.int4))


def test_destinations_have_computed_dims() -> None:
    function = fc.convert(lambda x, out: None)
    function.signature = Signature.of({"x": "float32[n]"}, "float32[(n - 1)//2 + 1]", destinations=True)
    assert function(_zeros(7)).shape == (4,)


def test_numbers_out_of_range_do_not_wrap() -> None:
    abi = FunctionAbi(Signature.of({"x": "float32[n]", "y": f"float32[n*{2**62}]"}))
    with pytest.raises(ArgumentError, match="argument y"):
        abi.pack_inputs(_zeros(4), _zeros(0))  # 2**64 is no 0


def test_a_deep_expression_is_refused_or_computed_by_the_rules() -> None:
    shape: tuple[int | str, ...] = ("n" + "+1" * 1900,)
    signature = Signature(
        inputs=(TensorSpec("x", "float32", ("n",)), TensorSpec("y", "float32", shape)), outputs=()
    )
    with pytest.raises(ArgumentError, match="argument y: expected"):
        FunctionAbi(signature).pack_inputs(_zeros(1), _zeros(1))


@pytest.mark.parametrize("dim", ["floor(n, 2)", "Max()", "n//0", "n.real", "1e400", "2**n"])
def test_what_is_no_expression_over_sizes_has_no_size(dim: str) -> None:
    signature = Signature((TensorSpec("x", "float32", ("n",)), TensorSpec("y", "float32", (dim,))), ())
    with pytest.raises(ArgumentError, match="argument y: expected"):
        FunctionAbi(signature).pack_inputs(_zeros(1), _zeros(1))


_EXPRESSIONS = st.recursive(
    st.integers(0, 9).map(str) | st.sampled_from(["n", "m"]),
    lambda inner: (
        st.tuples(
            st.sampled_from(
                ["({} + {})", "({} - {})", "({} * {})", "({} // {})", "Max({}, {})", "floor({}/{})"]
            ),
            inner,
            inner,
        ).map(lambda three: three[0].format(*three[1:]))
        | inner.map("(-{})".format)
    ),
    max_leaves=8,
)


@given(_EXPRESSIONS, st.integers(0, 5), st.integers(0, 5), st.integers(0, 20))
def test_the_core_accepts_what_the_rules_accept(text: str, n: int, m: int, size: int) -> None:
    """A layout that the core does not accept makes the rules in Python decide: the same dims, and a copy."""
    if not dims.is_expression(text):
        return
    signature = Signature((TensorSpec("a", "int8", ("n", "m")), TensorSpec("b", "int8", (text,))), ())
    a, b = np.zeros((n, m), "int8"), np.zeros(size, "int8")
    verdicts = []
    for first in (a, a.astype("bool")):
        try:
            FunctionAbi(signature).pack_inputs(first, b)
            verdicts.append(True)
        except ArgumentError:
            verdicts.append(False)
    assert verdicts[0] == verdicts[1]
