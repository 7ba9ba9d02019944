"""Calls by a Signature, beside IREE's Python runtime: packing, unpacking, nesting, parsing; no kernel runs.

IREE's packer copies every array into a device buffer and checks no dims; farcall's checks all dims and
shares the memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import iree.runtime
import numpy as np
from iree.runtime import _binding
from iree.runtime import function as iree_function

from bench.harness import Row, in_turn, rows, spread
from farcall import ffi
from farcall.abi import FunctionAbi, Signature
from farcall.abi.iree import _reflection as raw

ARRAY = ["ndarray", "f32", 1, 4]
FLAT = Signature.of({"a": "float32[n]", "b": "float32[n]"}, "float32[n]")
NESTED = Signature.of(
    {"d": {"arrays": ["float32[n]"] * 6}}, {"x": "float32[n]", "y": "float32[n]", "z": "float32[n]"}
)
NESTED_RECORDS = [["sdict", ["arrays", ["slist", *[ARRAY] * 6]]]]
NESTED_RESULTS = [["sdict", ["x", ARRAY], ["y", ARRAY], ["z", ARRAY]]]
Call = Callable[[], object]


def run() -> list[Row]:
    """Rows for packing, nesting and parsing; and for calls of a Function with and without a Signature."""
    return [*_flat(), *_nested(), *_sizes(), *_parse(), *_functions()]


class Iree:
    """The two halves of ``iree.runtime``'s FunctionInvoker, without the call between them."""

    def __init__(self, arguments: list[Any], results: list[Any]) -> None:
        self._device = iree.runtime.Config("local-sync").device
        self._packer = _binding.ArgumentPacker(_binding._invoke_statics, arguments)
        self._results = results

    def pack(self, *args: Any) -> Any:
        return self._packer.pack(_binding.InvokeContext(self._device), args, {})

    def unpack(self, values: Any) -> Any:
        invocation = iree_function.Invocation(self._device)
        return iree_function._extract_vm_sequence_to_python(invocation, values, self._results)


def _arrays(count: int, size: int = 4) -> list[np.ndarray]:
    return [np.ones(size, np.float32) for _ in range(count)]


def _flat() -> Iterator[Row]:
    abi, theirs = FunctionAbi(FLAT), Iree([ARRAY, ARRAY], [ARRAY])
    a, b = _arrays(2)
    value = abi.pack_inputs(a, b)[:1]
    result = Iree([ARRAY], []).pack(a)

    def ours() -> None:
        abi.pack_inputs(a, b)
        abi.unpack_results(value)

    def rival() -> None:
        theirs.pack(a, b)
        theirs.unpack(result)

    yield from _row("pack 2 arrays, unpack 1 result", ours, rival, 1.2e-6)


def _nested() -> Iterator[Row]:
    abi, theirs = FunctionAbi(NESTED), Iree(NESTED_RECORDS, NESTED_RESULTS)
    nested = {"arrays": _arrays(6)}
    values = abi.pack_inputs(nested)[:3]
    results = _binding.VmVariantList(1)
    results.push_list(Iree([ARRAY] * 3, []).pack(*_arrays(3)))

    def ours() -> None:
        abi.pack_inputs(nested)
        abi.unpack_results(values)

    def rival() -> None:
        theirs.pack(nested)
        theirs.unpack(results)

    yield from _row("pack a dict of a list of 6, unpack a dict of 3", ours, rival, 4e-6)


def _row(work: str, ours: Call, rival: Call, seconds: float) -> list[Row]:
    return rows(work, {"farcall": ours, "iree.runtime": rival}, seconds=seconds)


def _sizes() -> Iterator[Row]:
    """Packing shares memory, so its cost does not depend on the size of the arrays."""
    abi, theirs = FunctionAbi(FLAT), Iree([["ndarray", "f32", 1, None]] * 2, [])
    small, large = _arrays(1, 4)[0], _arrays(1, 16 << 20)[0]
    calls = {
        "farcall": lambda: abi.pack_inputs(large, large),
        "farcall, 16 B": lambda: abi.pack_inputs(small, small),
    }
    yield from rows("pack 2 arrays of 64 MB", calls, ratios={"farcall, 16 B": 1.2})
    calls = {"farcall": calls["farcall"], "iree.runtime": lambda: theirs.pack(large, large)}
    yield from rows("pack 2 arrays of 64 MB", calls, rounds=7)


def _parse() -> Iterator[Row]:
    """100 arguments, in IREE's raw encoding of 2020 and in its JSON of today."""
    attributes = {"f": f"I{100 * 11 + 1}!{'B9!t6d1d384' * 100}R1!", "fv": "1"}
    text = json.dumps({"a": [["ndarray", "f32", 2, i + 1, None] for i in range(100)], "r": [], "v": 1})

    def fresh(read: Callable[..., Signature], cache: Any, source: Any) -> Call:
        def parse() -> None:
            cache.cache_clear()
            read(source)

        return parse

    from farcall.abi.iree import _json as iree_json

    kinds: Mapping[str, tuple[Call, Call]] = {
        "raw": (
            fresh(Signature.from_reflection, raw._read, attributes),
            lambda: Signature.from_reflection(attributes),
        ),
        "JSON": (fresh(Signature.from_iree, iree_json._read, text), lambda: Signature.from_iree(text)),
    }
    for name, (first, again) in kinds.items():
        yield _alone(f"parse 100 arguments, {name}", first, 200e-6)
        yield _alone(f"the same again, {name}", again, 1e-6)


def _alone(work: str, call: Call, seconds: float) -> Row:
    times = sorted(in_turn({"farcall": call})["farcall"])
    return Row(work, times[len(times) // 2], spread(times), reach_seconds=seconds)


def _functions() -> Iterator[Row]:
    """The same kernel with and without a Signature: the cost of checking two arrays."""
    plain, signed = ffi.Function(_nothing), ffi.Function(_nothing)
    signed.signature = Signature.of({"a": "float32[n]", "b": "float32[n]"})
    a, b = _arrays(2)
    calls = {"farcall": lambda: signed(a, b), "no Signature": lambda: plain(a, b)}
    yield from rows("a Python function with a Signature", calls)


def _nothing(a: object, b: object) -> None:
    return None
