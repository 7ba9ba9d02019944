"""Arguments that are passed as one list, and variadic ones: the core accepts the plainly valid ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.abi import Arg, FunctionAbi, ListSpec, Repeated, ScalarSpec, Signature, TensorSpec
from farcall.errors import ArgumentError, ResultError

X = np.arange(3, dtype="float32")


@pytest.fixture
def no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("the typed rules were asked")

    monkeypatch.setattr(FunctionAbi, "_resolve", refuse)


@pytest.mark.usefixtures("no_rules")
@pytest.mark.parametrize("count", [0, 1, 40])
def test_lists_of_any_length_take_the_short_path(count: int) -> None:
    abi = FunctionAbi(Signature.of({"x": ["float32[n]", ...], "k": ("int8", ...)}))
    arrays, numbers = abi.pack_inputs([X] * count, k=(7,) * count)
    assert [np.shares_memory(one.numpy(), X) for one in arrays] == [True] * count
    assert numbers == (7,) * count


@pytest.mark.usefixtures("no_rules")
def test_lists_in_lists_and_fixed_ones_take_the_short_path() -> None:
    abi = FunctionAbi(Signature.of({"x": [["float32[n]", "int64"], ...]}))
    (packed,) = abi.pack_inputs([(X, 1), [X, 2]])
    assert [number for _, number in packed] == [1, 2]


@pytest.mark.usefixtures("no_rules")
def test_further_positional_arguments_take_the_short_path() -> None:
    signature = Signature.of(
        {
            "a": "float32[n]",
            "rest": Arg(["float32[n]", ...], kind="var_positional"),
            "k": Arg("int32", default=3, kind="keyword_only"),
        }
    )
    abi = FunctionAbi(signature)
    assert abi.pack_inputs(X)[1:] == [(), 3]
    assert len(abi.pack_inputs(X, X, X, k=4)[1]) == 2
    function = fc.convert(lambda a, rest, k: len(rest) + k)
    function.abi = FunctionAbi(Signature(signature.inputs, (ScalarSpec("", "int64"),), signature.parameters))
    assert function(X, X, X, k=4) == 6


def test_what_is_wrong_in_a_list_has_its_path() -> None:
    abi = FunctionAbi(Signature.of({"x": ["float32[n]", ...], "y": "float32[n]"}))
    with pytest.raises(ArgumentError) as caught:
        abi.pack_inputs([X, X[:2], X.astype("complex64")], X[:1])
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "argument x[1]",
        "argument x[2]",
        "argument y",
    ]


@pytest.mark.parametrize("bad", [X, "text", {"a": X}, 3, [X, None], [[X]]])
def test_what_is_no_such_list_is_refused(bad: Any) -> None:
    with pytest.raises(ArgumentError, match="argument x"):
        FunctionAbi(Signature.of({"x": ["float32[n]", ...]})).pack_inputs(bad)


def test_items_that_are_cast_are_cast_by_the_rules() -> None:
    abi = FunctionAbi(Signature.of({"x": ["float32[n]", ...], "k": ["float64", ...]}))
    arrays, numbers = abi.pack_inputs([X, X.astype("int8")], [1, 2.5])
    assert (str(arrays[1].dtype), abi.copies) == ("float32", 1)
    assert [type(one) for one in numbers] == [float, float]


@pytest.mark.parametrize("first", [X, X.astype("int8")], ids=["native", "rules"])
def test_sizes_in_a_list_hold_for_the_results(first: np.ndarray) -> None:
    function = fc.convert(lambda x: X[:2])
    function.signature = Signature.of({"x": ["float32[n]", ...]}, "float32[n]")
    with pytest.raises(ResultError, match="with n=3, got"):
        function([first])


def test_sizes_in_a_list_say_how_large_results_are() -> None:
    abi = FunctionAbi(Signature.of({"x": ["float32[n]", ...]}, "float32[n]"))
    assert abi.allocate_results(abi.pack_inputs([X, X]))[0].shape == (3,)


def test_items_that_are_written_must_fit() -> None:
    written = TensorSpec("", "float32", ("n",), access="inout")
    abi = FunctionAbi(Signature((ListSpec("x", (written,), Repeated()),), ()))
    abi.pack_inputs([X])
    with pytest.raises(ArgumentError, match="written in place"):
        abi.pack_inputs([X[::2]])
