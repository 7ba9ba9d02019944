"""Annotated Python functions, called with raw arguments."""

from __future__ import annotations

import copy
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import pytest

from farcall.abi import FunctionAbi, TensorSpec, annotated
from farcall.errors import ArgumentError, ResultError, SignatureError

Row: TypeAlias = Annotated[np.ndarray, "float32[n]"]
X = np.arange(3, dtype="float32")


class Pair(NamedTuple):
    left: Row
    right: int


@annotated
def combine(
    pair: Pair,
    rest: list[Row],
    *more: int,
    scale: float = 2.0,
    mark: Annotated[np.ndarray, "int8[1]"] | None = None,
) -> tuple[Pair, str]:
    assert isinstance(pair, Pair)
    assert isinstance(pair.left, np.ndarray)
    assert mark is None or mark.tolist() == [7]
    total = np.float32(scale) * (pair.left + sum(rest))
    return Pair(total, pair.right + sum(more)), "none" if mark is None else "some"


def test_values_arrive_as_they_are_annotated() -> None:
    (total, count), text = combine(Pair(X, 1), [X, X])
    np.testing.assert_array_equal(total, 6 * X)
    assert (count, text) == (1, "none")
    (total, count), text = combine(Pair(X, 1), [], 10, 20, scale=3, mark=np.int8([7]))
    np.testing.assert_array_equal(total, 3 * X)
    assert (count, text) == (31, "some")


def test_the_caller_passes_raw_arguments() -> None:
    @annotated
    def parts(pair: Pair, *more: int) -> tuple[Pair, str]:
        return Pair(2 * pair.left, pair.right + sum(more)), "done"

    abi = FunctionAbi(parts.signature)
    parts.signature = None  # as native code sees it
    left, right, text = parts(*abi.pack_inputs((X, 1), 5))
    np.testing.assert_array_equal(left.numpy(), 2 * X)
    assert (right, text) == (6, "done")


def test_arrays_share_the_callers_memory() -> None:
    @annotated
    def fill(out: Annotated[np.ndarray, TensorSpec("", "float32", ("n",), access="out")]) -> None:
        out[:] = 5

    memory = np.zeros(3, "float32")
    fill(memory)
    assert memory.tolist() == [5, 5, 5]


def test_results_are_checked() -> None:
    @annotated
    def wrong(x: Row) -> tuple[int, Annotated[np.ndarray, "float32[n, n]"]]:
        return "a", x  # type: ignore[return-value]

    with pytest.raises(ResultError) as error:
        wrong(X)
    assert error.value.problems == (
        "result[0]: expected int64, got str 'a'",
        "result[1]: expected float32[n, n], got float32[3]; reshape it to rank 2",
    )


def test_arguments_are_checked_before_it_runs() -> None:
    @annotated
    def never(x: int) -> None:
        raise AssertionError

    with pytest.raises(ArgumentError):
        never("a")


def test_who_passes_raw_arguments_is_told_what_is_wrong_with_them() -> None:
    @annotated
    def norms(x: Annotated[np.ndarray, "float32[n, 3]"], scale: float) -> float:
        raise AssertionError

    norms.signature = None  # as native code and other machines see it
    with pytest.raises(ArgumentError) as error:
        norms(np.ones((2, 4), "float32"), "two")
    assert error.value.problems == (
        "`norms`: argument x: expected float32[n, 3], got float32[2, 4]",
        "`norms`: argument scale: expected float64, got str 'two'",
    )
    with pytest.raises(ArgumentError, match=r"`norms` takes 2 raw arguments, of .*; got 0"):
        norms()


@pytest.mark.parametrize("kind", [ArgumentError, ResultError])
@pytest.mark.parametrize("problems", [["x: is wrong"], ["x: is wrong", "y: is, too"]])
def test_an_error_is_the_same_after_a_copy(kind: Any, problems: list[str]) -> None:
    copied = copy.copy(kind(problems))
    assert (str(copied), copied.problems) == (str(kind(problems)), tuple(problems))


@pytest.mark.parametrize(("given", "result"), [((), None), ((1,), 1), ((1, 2), (1, 2))])
def test_any_number_of_results(given: tuple[int, ...], result: Any) -> None:
    def function(*xs: int) -> Any:
        return xs[0] if len(xs) == 1 else xs or None

    function.__annotations__["return"] = [None, int, tuple[int, int]][len(given)]
    assert annotated(function)(*given) == result


def test_it_needs_annotations() -> None:
    with pytest.raises(SignatureError, match="no annotation"):
        annotated(lambda x: x)
