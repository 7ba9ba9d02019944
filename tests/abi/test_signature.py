"""The Signature model: structure over leaves, texts, JSON, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import msgspec
import pytest

from farcall.abi import (
    Arg,
    Fields,
    Items,
    ListSpec,
    Nothing,
    Parameter,
    RefSpec,
    Repeated,
    ScalarSpec,
    Signature,
    Slot,
    TensorSpec,
    parse_leaf,
)

X = TensorSpec("x", "float32", ("n", 128))
Y = TensorSpec("y", "int64", ("n",))


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Point:
    a: Any
    b: Any


EVERYTHING = Signature.of(
    {
        "tokens": {"ids": ["int64[batch, 128]", "int64[batch, 128]"], "p": Point("float32[...]", None)},
        "xs": [("float32[n]", "int8"), ...],
        "k": Arg("float32", default=1.0, doc="a factor"),
        "rest": Arg(["str", ...], kind="var_positional"),
        "f": Arg("function | None", default=None, kind="keyword_only"),
        "pair": Arg(Pair("?[]", "bytes"), kind="keyword_only"),
    },
    {"y": "float32[batch, Max(a, 2*b)]", "e": [], "t": (), "s": ("int4",)},
)


def test_flat_use() -> None:
    signature = Signature(inputs=(X, Y), outputs=(X,))
    assert [one.name for one in signature.parameters] == ["x", "y"]
    assert signature.result == Slot(0)
    assert str(signature) == "(x: float32[n, 128], y: int64[n]) -> float32[n, 128]"
    assert Signature((X,), (X, Y)).result == Items("tuple", (Slot(0), Slot(1)))
    assert Signature((), ()).result == Nothing()


def test_text_of_everything() -> None:
    assert str(EVERYTHING) == (
        '(tokens: {"ids": [int64[batch, 128], int64[batch, 128]], "p": Point(a: float32[...], b: None)}, '
        "xs: [(float32[n], int8), ...], k: float32 = 1.0, *rest: [str, ...], f: function | None = None, "
        'pair: Pair(left: ?[], right: bytes)) -> {"y": float32[batch, Max(a, 2*b)], "e": [], "t": (), '
        '"s": (int4,)}'
    )


def test_json_round_trip() -> None:
    text = msgspec.json.encode(EVERYTHING)
    again = msgspec.json.decode(text, type=Signature)
    assert again == EVERYTHING
    assert hash(again) == hash(EVERYTHING)
    assert msgspec.json.encode(again) == text


def test_manifests_of_farcall_0_1_load() -> None:
    old = b"""{"inputs": [{"name": "x", "dtype": "float32", "shape": ["n", 128]}],
               "outputs": [{"name": "y", "dtype": "int64", "shape": ["n"]}]}"""
    assert msgspec.json.decode(old, type=Signature) == Signature((X,), (Y,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"inputs": [{"name": "x", "dtype": "real", "shape": []}], "outputs": []}', "unknown dtype `real`"),
        ('{"inputs": [{"name": "x", "dtype": "int8"}], "outputs": []}', "missing required field `shape`"),
        ('{"inputs": [{"name": "x", "dtype": "int8", "shape": [-1]}], "outputs": []}', "dim -1 is not in"),
        ('{"inputs": [{"leaf": "what", "name": "x"}], "outputs": []}', "expected a TensorSpec"),
        ('{"inputs": [{"leaf": ["ref"]}], "outputs": []}', "expected a TensorSpec"),
        ('{"inputs": [3], "outputs": []}', "expected a TensorSpec"),
        ('{"inputs": [], "outputs": [], "result": {"node": "slot", "index": 0}}', "not one of its 0 leaves"),
        ('{"inputs": [], "outputs": [], "result": {"node": "repeated"}}', "ListSpec"),
        ('{"inputs": [], "outputs": [], "result": {"node": "items", "kind": "set"}}', "Invalid enum value"),
    ],
)
def test_damaged_json(text: str, message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.json.decode(text, type=Signature)


def test_deep_json_is_refused() -> None:
    node = '{"node": "items", "kind": "list", "items": [' * 100 + "]}" * 100
    with pytest.raises(msgspec.ValidationError, match="deeper than 64 levels"):
        msgspec.json.decode(f'{{"inputs": [], "outputs": [], "result": {node}}}', type=Signature)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([Parameter("a", Slot(0))], "leaves out slot 1"),
        ([Parameter("a", Slot(0)), Parameter("b", Slot(0))], "slot 0 is named twice"),
        ([Parameter("a", Slot(0)), Parameter("b", Slot(-1))], "slot -1 is not one of its 2 leaves"),
        ([Parameter("a", Slot(0)), Parameter("a", Slot(1))], "name one twice"),
        (
            [Parameter("a", Slot(0), kind="keyword_only"), Parameter("b", Slot(1))],
            "parameters go positional_only",
        ),
        ([Parameter("a", Slot(0), default=1), Parameter("b", Slot(1))], "parameter `b` needs a default"),
        ([Parameter("a", Fields("dict", (("k", Slot(0)), ("k", Slot(1)))))], "names one twice"),
        ([Parameter("a", Fields("dataclass", (("no way", Slot(0)), ("k", Slot(1)))))], "identifiers"),
    ],
)
def test_parameters_that_do_not_fit(parameters: list[Parameter], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Signature((X, Y), (), tuple(parameters))


@pytest.mark.parametrize(
    ("text", "leaf"),
    [
        ("float32[batch, 128]", TensorSpec("", "float32", ("batch", 128))),
        ("float32[]", TensorSpec("", "float32", ())),
        (" ?[...] | None", TensorSpec("", "?", None, optional=True)),
        ("int4[Max(a, b), ?]", TensorSpec("", "int4", ("Max(a, b)", "?"))),
        ("float8_e4m3fn", ScalarSpec("", "float8_e4m3fn")),
        ("int64 | None", ScalarSpec("", "int64", optional=True)),
        ("function", RefSpec("", "function")),
    ],
)
def test_texts_of_leaves(text: str, leaf: object) -> None:
    parsed = parse_leaf(text)
    assert parsed == leaf
    assert parse_leaf(str(parsed)) == parsed


@pytest.mark.parametrize("text", ["", "real", "float32[", "float32[n,,m]", "int8 | int16", "float32[-1]x"])
def test_texts_that_are_no_leaves(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_leaf(text)


@pytest.mark.parametrize("dim", ["-1", "1.5", "n if m else k", "__import__('os')", "2 - 3"])
def test_dims_that_no_tensor_has(dim: str) -> None:
    with pytest.raises(ValueError, match="dim"):
        parse_leaf(f"float32[{dim}]")


def test_lists_travel_as_one() -> None:
    signature = Signature.of({"xs": ["int8[n]", ...]})
    assert signature.inputs == (ListSpec("xs", (TensorSpec("", "int8", ("n",)),), Repeated()),)
    with pytest.raises(ValueError, match="needs one leaf, got 2"):
        ListSpec("xs", (X, Y), Repeated())
    with pytest.raises(ValueError, match="leaves out slot 1"):
        ListSpec("xs", (X, Y), Items("list", (Slot(0),)))
