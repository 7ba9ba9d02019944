"""Random Signatures, with values that fit them and values that are wrong at known paths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from farcall import ffi
from farcall.abi import Arg, Signature

DTYPES = {
    "bool": np.bool_,
    "int8": np.int8,
    "uint16": np.uint16,
    "int32": np.int32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float32": np.float32,
    "float64": np.float64,
    "complex64": np.complex64,
}
RANGES = {
    "int8": (-128, 127),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint64": (0, 2**64 - 1),
}
SIZES = {"n": 2, "m": 3, "batch size": 1}


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Point:
    x: Any
    y: Any


@dataclasses.dataclass
class Spot:
    """One leaf of a call: its path, its value, and a value that is wrong for it."""

    path: str
    value: Any
    wrong: Any


class Built(NamedTuple):
    """A type, and a function that builds its value from the list of the spots' values."""

    types: Any
    fill: Callable[[list[Any]], Any]
    count: int


@st.composite
def tensors(draw: st.DrawFn) -> tuple[str, Any, Any]:
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    dims = draw(st.lists(st.sampled_from(["n", "m", "batch size", "?", "0", "4"]), max_size=3))
    shape = [SIZES.get(dim, 5 if dim == "?" else int(dim) if dim.isdigit() else 0) for dim in dims]
    value = np.zeros(shape, DTYPES[dtype])
    layout = draw(st.sampled_from(["plain", "reversed", "misaligned", "fortran", "read only"]))
    if layout == "reversed":
        value = value[::-1] if value.ndim else value
    elif layout == "misaligned":
        raw = np.zeros(value.nbytes + 1, np.uint8)[1:]
        value = raw.view(value.dtype).reshape(shape)
    elif layout == "fortran" and value.ndim:
        value = np.asfortranarray(value)
    else:
        value.flags.writeable = layout == "plain"
    wrongs = [np.zeros((*shape, 1), DTYPES[dtype]), "text", {}, [object()], np.zeros(shape, object)]
    if dtype != "complex64":
        wrongs.append(np.zeros(shape, np.complex128))
    if "4" in dims:
        wrongs.append(
            np.zeros([size + (dim == "4") for dim, size in zip(dims, shape, strict=True)], DTYPES[dtype])
        )
    return f"{dtype}[{', '.join(dims)}]", value, draw(st.sampled_from(wrongs))


@st.composite
def scalars(draw: st.DrawFn) -> tuple[str, Any, Any]:
    dtype = draw(st.sampled_from(["bool", *RANGES, "float16", "float32", "float64", "complex64"]))
    if dtype == "bool":
        return dtype, draw(st.booleans()), draw(st.sampled_from([1, 0.0, "no"]))
    if dtype in RANGES:
        low, high = RANGES[dtype]
        value = draw(st.integers(low, high))
        value = draw(st.sampled_from([value, DTYPES[dtype](value)]))
        return dtype, value, draw(st.sampled_from([high + 1, low - 1, 0.5, 1j, "1", True, np.float32(1)]))
    value = draw(st.one_of(st.integers(-2048, 2048), st.floats(-60000, 60000), st.just(float("inf"))))
    if dtype == "complex64":
        return (
            dtype,
            draw(st.sampled_from([value, complex(value, 1.0)])),
            draw(st.sampled_from([1e40, "1", True])),
        )
    return dtype, value, draw(st.sampled_from([10**400, 2**53 + 1, 1j, "1", True, [1.0]]))


def _function() -> str:
    return "called"


REFS = [
    ("str", "text", 3),
    ("bytes", b"bytes", "text"),
    ("function", _function, 3),
    ("device", ffi.Device("cpu"), 3.5),
    ("dtype", ffi.dtype("int8"), "no dtype"),
    ("shape", ffi.Shape((1, 2)), "text"),
]

leaves = st.one_of(tensors(), scalars(), st.sampled_from(REFS))


@st.composite
def trees(draw: st.DrawFn, spots: list[Spot], path: str, depth: int = 0) -> Built:
    """A structure below ``path``. Appends its leaves to ``spots`` in order."""
    kind = draw(st.sampled_from(["leaf", "leaf", "list", "tuple", "dict", "pair", "point", "many", "none"]))
    if kind == "leaf" or depth > 2:
        text, value, wrong = draw(leaves)
        if draw(st.integers(0, 5)) == 0:
            text, value = f"{text} | None", draw(st.sampled_from([value, None]))
        spots.append(Spot(path, value, wrong))
        return Built(text, lambda values: values[0], 1)
    if kind == "none":
        return Built(None, lambda values: None, 0)
    if kind == "many":
        return _many(draw, spots, path)
    if kind in ("pair", "point"):
        steps, make = ((".left", ".right"), Pair) if kind == "pair" else ((".x", ".y"), Point)
        parts = [draw(trees(spots, path + step, depth + 1)) for step in steps]
        return _joined(parts, lambda items: make(*items))
    count = draw(st.integers(0, 3))
    if kind == "dict":
        keys = draw(
            st.lists(
                st.sampled_from(["a", "b c", 'say "hi"', "é"]), min_size=count, max_size=count, unique=True
            )
        )
        quoted = [f'["{key}"]'.replace('"hi"', '\\"hi\\"') for key in keys]
        parts = [draw(trees(spots, path + step, depth + 1)) for step in quoted]
        return _joined(parts, lambda items: dict(zip(keys, items, strict=True)))
    parts = [draw(trees(spots, f"{path}[{i}]", depth + 1)) for i in range(count)]
    return _joined(parts, list if kind == "list" else tuple)


def _joined(parts: list[Built], make: Callable[[list[Any]], Any]) -> Built:
    def fill(values: list[Any]) -> Any:
        items, at = [], 0
        for part in parts:
            items.append(part.fill(values[at : at + part.count]))
            at += part.count
        return make(items)

    return Built(make([part.types for part in parts]), fill, sum(part.count for part in parts))


def _many(draw: st.DrawFn, spots: list[Spot], path: str) -> Built:
    """A list of any length, with items of one type."""
    text, value, wrong = draw(leaves)
    count = draw(st.integers(0, 3))
    spots += [Spot(f"{path}[{i}]", value, wrong) for i in range(count)]
    return Built([text, ...], list, count)


class Call(NamedTuple):
    """A Signature, a function that calls it with values for its spots, and the spots."""

    signature: Signature
    arguments: Callable[[list[Any]], tuple[tuple[Any, ...], dict[str, Any]]]
    spots: list[Spot]


@st.composite
def calls(draw: st.DrawFn) -> Call:
    count = draw(st.integers(0, 4))
    names = [f"p{i}" for i in range(count)]
    by_name = draw(st.integers(0, count))  # arguments from this one on are passed by name
    spots: list[Spot] = []
    parts = [draw(trees(spots, name)) for name in names]
    kinds = ["keyword_only" if i >= by_name and draw(st.booleans()) else "" for i in range(count)]
    first = next((i for i, kind in enumerate(kinds) if kind), count)
    types = {
        name: Arg(part.types, kind="keyword_only" if i >= first else "positional_or_keyword")
        for i, (name, part) in enumerate(zip(names, parts, strict=True))
    }
    positions = min(by_name, first)

    def arguments(values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given, at = [], 0
        for part in parts:
            given.append(part.fill(values[at : at + part.count]))
            at += part.count
        return tuple(given[:positions]), dict(zip(names[positions:], given[positions:], strict=True))

    return Call(Signature.of(types), arguments, spots)
