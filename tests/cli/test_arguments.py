"""The names of a Signature on the command line: `run --input`, and the tables of `inspect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import farcall.library._loading
from farcall.abi import Arg, Signature
from farcall.artifact import inspect as read_manifest
from farcall.cli._arguments import call_arguments, read_inputs, result_arrays
from farcall.cli.inspect import command as inspect_command
from farcall.library._manifest import FunctionInfo

NESTED = Signature.of(
    {
        "tokens": {"ids": ["int64[n]", "int64[n]"]},
        "scale": Arg("float32", default=2.0, doc="what to multiply by"),
        "mode": Arg("str", default="fast", kind="keyword_only"),
        "gap": Arg(None, default=None, kind="keyword_only"),
    },
    {"y": "float32[n]", "parts": ("int32", ["float32[n]"])},
)

TOKENS = ["tokens.ids.0=a.npy", "tokens.ids.1=b.npy"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.arange(3))
    np.save("b.npy", np.ones(3, "int64"))
    np.save("three.npy", np.float32(3))
    return tmp_path


@pytest.mark.parametrize(
    "texts",
    [
        ['tokens["ids"][0]=a.npy', 'tokens["ids"][1]=b.npy', "scale=0.5", "mode=slow"],
        ["tokens.ids.0=a.npy", "tokens.ids.1=b.npy", "scale=0.5", "mode=slow"],
    ],
)
def test_leaves_are_named_by_their_paths(files: Path, texts: list[str]) -> None:
    args, kwargs = call_arguments(NESTED, read_inputs(NESTED, texts))
    (tokens, scale) = args
    np.testing.assert_array_equal(tokens["ids"][0], np.arange(3))
    np.testing.assert_array_equal(tokens["ids"][1], np.ones(3))
    assert scale == 0.5
    assert kwargs == {"mode": "slow", "gap": None}


def test_defaults_may_be_left_out(files: Path) -> None:
    args, kwargs = call_arguments(NESTED, read_inputs(NESTED, TOKENS))
    assert len(args) == 1
    assert kwargs == {"gap": None}


def test_a_number_is_given_as_it_is_or_as_a_file(files: Path) -> None:
    made = Signature.of({"a": "float32", "b": "bool", "c": "int8"})
    values = read_inputs(made, ["a=three.npy", "b=true", "c=-7"])
    assert values == {0: 3.0, 1: True, 2: -7}


def test_a_parameter_after_one_left_out_goes_by_keyword(files: Path) -> None:
    made = Signature.of({"a": Arg("int32", default=1), "b": Arg("int32", default=2)})
    assert call_arguments(made, read_inputs(made, ["b=5"])) == ([], {"b": 5})


def test_names_that_are_no_identifiers(files: Path) -> None:
    made = Signature.of({"input.1": "int64[n]", "x=y": "int64[n]", "x:0": "int64[n]"})
    values = read_inputs(made, ["x:0=a.npy", "input.1=a.npy", "x=y=b.npy"])
    args, kwargs = call_arguments(made, values)
    assert kwargs == {}
    np.testing.assert_array_equal(args[1], np.ones(3))


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (
            ["tokens.ids.0=a.npy"],
            r"missing inputs: tokens\[\"ids\"\]\[1\]: int64\[n\]; add --input tokens.ids.1=",
        ),
        (
            ["token.ids.0=a.npy"],
            r"no input 'token.ids.0'; did you mean 'tokens.ids.0'\?; the inputs are tokens",
        ),
        ([*TOKENS, "scale=fast"], "no such file: fast"),
        ([*TOKENS, "scale=[1]"], r"expected a number, got '\[1\]'"),
        ([*TOKENS, "scale=null"], "expected a number, got 'null'"),
        (["scale"], "expected NAME=FILE.npy"),
        (["scale="], "expected NAME=FILE.npy"),
        (["tokens.ids.0=a.npy", 'tokens["ids"][0]=a.npy'], "is given twice"),
    ],
)
def test_wrong_names_are_explained(files: Path, texts: list[str], problem: str) -> None:
    with pytest.raises(click.UsageError) as error:
        read_inputs(NESTED, texts)
    assert error.match(problem)


def test_objects_are_no_numbers(files: Path) -> None:
    """numpy's message would advise to load the file as a pickle, which can run code."""
    np.save(files / "objects.npy", np.array([{}, None], dtype=object))
    with pytest.raises(
        click.UsageError, match=r"objects\.npy holds Python objects; save an array of numbers"
    ) as error:
        read_inputs(NESTED, ["tokens.ids.0=objects.npy", *TOKENS[1:]])
    assert "pickle" not in error.value.message


def test_what_no_file_holds(files: Path) -> None:
    with pytest.raises(click.UsageError, match="call the function from Python"):
        read_inputs(Signature.of({"f": "function"}), ["f=a.npy"])


def test_results_are_flat_and_named() -> None:
    result = {"y": np.ones(2, "float32"), "parts": (7, [np.zeros(2, "float32")])}
    found = result_arrays(NESTED, result)
    assert {name: array.shape for name, array in found.items()} == {
        '["y"]': (2,),
        '["parts"][0]': (),
        '["parts"][1][0]': (2,),
    }


def test_inspect_shows_every_leaf(digits_artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = read_manifest(digits_artifact)
    nested = msgspec.structs.replace(manifest, functions={"main": FunctionInfo(NESTED)})
    monkeypatch.setattr(farcall.library._loading, "examine", lambda *_: (None, nested))
    text = CliRunner().invoke(inspect_command, [str(digits_artifact)]).output
    for row in (
        f"main{NESTED}",
        'argument tokens["ids"][1] int64[n]',
        "argument scale float32 2.0 what to multiply by",
        'result ["parts"][0] int32',
        "argument gap None None",
    ):
        assert row in " ".join(text.split())
    seen: dict[str, Any] = json.loads(
        CliRunner().invoke(inspect_command, [str(digits_artifact), "--json"]).output
    )
    assert msgspec.convert(seen["functions"]["main"]["signature"], Signature) == NESTED
