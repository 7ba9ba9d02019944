"""Signatures of ONNX models: names that are not identifiers, dims without names, tensors without dims."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import farcall as fc
from farcall.abi import Signature, TensorSpec
from farcall.errors import ArgumentError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["input.1", "x:0"], ["y=z"]),
            helper.make_node("Add", ["n", "n"], ["out 2"]),
        ],
        "odd",
        [
            value("input.1", TensorProto.FLOAT, ["batch", 3]),
            value("x:0", TensorProto.FLOAT, []),
            value("n", TensorProto.INT64, [None, "rows of n", 2]),
        ],
        [value("y=z", TensorProto.FLOAT, ["batch", 3]), value("out 2", TensorProto.INT64, None)],
    )
    path = tmp_path_factory.mktemp("odd") / "odd.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def main(model: Path) -> Any:
    path = model.with_suffix(".so")
    fc.partition(model).build().save(path)
    return fc.load_module(path)["main"]


def test_the_signature(model: Path, main: Any) -> None:
    made = fc.partition(model).signature
    assert made.inputs == (
        TensorSpec("input.1", "float32", ("batch", 3)),
        TensorSpec("x:0", "float32", ()),
        TensorSpec("n", "int64", ("n_dim0", "rows_of_n", 2)),
    )
    assert [leaf.name for leaf in made.outputs] == ["y=z", "out 2"]
    assert str(main.signature) == str(made)


def test_calls_by_position_and_by_any_name(main: Any) -> None:
    x, n = np.ones((2, 3), "float32"), np.ones((1, 4, 2), "int64")
    for y, doubled in (main(x, 2.0, n), main(x, n=n, **{"x:0": np.float32(2)})):
        np.testing.assert_array_equal(y, 2 * x)
        np.testing.assert_array_equal(doubled, 2 * n)


def test_errors_name_what_is_wrong(main: Any) -> None:
    with pytest.raises(ArgumentError) as error:
        main(np.ones((2, 4), "float32"), "two", np.ones((1, 4, 2), "int64"))
    for part in ("`input.1`", "float32[batch, 3]", "float32[2, 4]", "`x:0`", "str 'two'"):
        assert part in str(error.value)


def test_python_can_show_it(main: Any) -> None:
    """Such names are not valid in Python, so the signature shows these parameters as positional."""
    shown = inspect.signature(main).parameters
    assert [(name, one.kind.name) for name, one in shown.items()] == [
        ("arg1", "POSITIONAL_ONLY"),
        ("arg2", "POSITIONAL_ONLY"),
        ("n", "POSITIONAL_OR_KEYWORD"),
    ]
    assert "input.1: float32[batch, 3]" in (main.__doc__ or "")


def test_it_goes_through_every_encoding_that_can_say_it(main: Any) -> None:
    made: Signature = main.signature
    again = Signature.from_iree(made.to_iree_json())
    assert [one.name for one in again.parameters] == ["input.1", "x:0", "n"]
    assert [leaf.shape for leaf in again.inputs] == [("?", 3), (), ("?", "?", 2)]  # type: ignore[union-attr]
    assert made.to_reflection()["f"] == "I26!B6!d-1d3B1!B11!t7d-1d-1d2R23!B6!d-1d3B11!t7d-1d-1d2"


def test_names_that_python_cannot_show() -> None:
    function = fc.convert(lambda *args: None)
    types = {"x": "int8", "class": "int8", "y": "int8"}
    function.signature = Signature.of(types)
    assert str(inspect.signature(function)) == "(x: 'int8', arg2: 'int8', /, y: 'int8') -> '()'"
    assert function(1, y=2, **{"class": 3}) is None
