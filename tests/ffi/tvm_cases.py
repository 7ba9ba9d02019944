"""Kernels that the real apache-tvm-ffi package built, called by farcall: run by test_tvm_kernels.py.

Its processes differ in what is imported: farcall alone, and the package cannot be; or both, in either order.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

import numpy as np
import pytest

MODE = os.environ["FARCALL_TEST_MODE"]
if MODE == "alone":
    sys.modules["tvm_ffi"] = None  # type: ignore[assignment]
if MODE == "theirs first":
    importlib.import_module("tvm_ffi")

core = importlib.import_module("farcall._core")
ffi = importlib.import_module("farcall.ffi")
module = ffi.load_library(os.environ["FARCALL_TEST_LIBRARY"])
if MODE == "ours first":
    assert module.add(1, 2) == 3
    importlib.import_module("tvm_ffi")

SIZES = [0, 1, 2, 4, 5, 8, 9, 17, 100, 1000]


def test_plain_values() -> None:
    assert module.add(2**62, -1) == 2**62 - 1
    assert module.halve(3) == 1.5
    assert module.invert(True) is False
    assert module.nothing() is None
    assert module.dtype_name("float8_e4m3fn") == "float8_e4m3fn"
    assert module.parse_dtype("bfloat16x4") == "bfloat16x4"
    assert module.device_id(ffi.Device("cuda:3")) == 3
    assert module.signals() == 0
    assert module.stream(2, 0) == 0


def test_what_a_signal_handler_raises_ends_the_kernel() -> None:
    def handler(*_: object) -> None:
        raise LookupError("enough")

    old = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(LookupError, match="enough"):
            module.until_a_signal()
    finally:
        signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize("text", ["", "x", "1234567", "12345678", "ÄÖÜ " * 100])
def test_text_and_bytes(text: str) -> None:
    assert module.greet(text) == "hello " + text
    assert module.backwards(text.encode()) == text.encode()[::-1]


def test_tensors() -> None:
    x = np.arange(6, dtype="f4").reshape(2, 3)
    assert module.total(x) == 15
    assert tuple(module.dims(x)) == (2, 3)
    assert [module.stride_of(x, i) for i in range(2)] == [3, 1]
    np.testing.assert_array_equal(module.increased(x), x + 1)
    assert type(module.increased(x)) is np.ndarray
    own = ffi.from_dlpack(x)
    assert module.same(own).data_ptr() == own.data_ptr()
    np.testing.assert_array_equal(module.zeros(5).numpy(), np.zeros(5, "f4"))
    np.testing.assert_array_equal(module.row(own, 1).numpy(), x[1])


def test_torch_tensors_come_back_as_such() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0)
    y = module.increased(x)
    assert type(y) is torch.Tensor
    assert torch.equal(y, x + 1)


def test_optional_and_variant() -> None:
    assert [module.maybe(x) for x in (None, 3)] == [-1, 4]
    assert [module.maybe_text(x) for x in (None, "a longer text")] == [None, "a longer text"]
    assert [module.maybe_size(x) for x in (None, ffi.empty(6))] == [-1, 6]
    assert [module.either(x) for x in (1, "a")] == [1, "a"]
    assert tuple(module.swapped((1, "a"))) == ("a", 1)


def test_sequences() -> None:
    assert module.sum([1, 2, 3]) == 6
    assert module.product((2, 3, 4)) == 24
    assert list(module.squares(5)) == [0, 1, 4, 9, 16]
    assert [list(x) for x in module.nested([[1, "a"], [2.5, None]])] == [[1, "a"], [2.5, None]]
    assert list(module.texts(20)) == [f"item {i}" for i in range(20)]
    assert module.type_key([1]) == "ffi.Array"


@pytest.mark.parametrize("n", SIZES)
def test_their_maps(n: int) -> None:
    """Containers built by TVM FFI's inlined code are read by farcall, in the same order."""
    assert list(module.make_map(n).items()) == [(f"key number {i}", i) for i in range(n)]
    assert list(module.make_dict(n).items()) == [(i * 7, f"v{i}") for i in range(n)]


@pytest.mark.parametrize("n", SIZES)
def test_our_maps(n: int) -> None:
    """Containers built by farcall are searched and changed by TVM FFI's inlined code."""
    keys: list[Any] = [f"name {i}" if i % 3 else i for i in range(n)]
    ours = {key: i for i, key in enumerate(keys)}
    assert module.map_size(ours) == n
    assert list(module.map_keys(ours)) == keys
    assert [module.map_get(ours, key) for key in keys[:50]] == [ours[key] for key in keys[:50]]
    assert module.map_set(ours, "new", 5) == {**ours, "new": 5}
    for key in keys[::7]:
        assert module.map_erase(ours, key) == {k: v for k, v in ours.items() if k != key}
    with pytest.raises(KeyError):
        module.map_get(ours, "no such key")


def test_functions() -> None:
    assert module.apply(lambda x: x * 2, 21) == 42
    assert module.adder(3)(4) == 7
    ffi.register_global_func("tvm.double", lambda x: 2 * x, override=True)
    assert module.call_global("tvm.double", 4) == 8
    with pytest.raises((ValueError, RuntimeError), match=r"no\.such"):
        module.call_global("no.such", 1)


def test_errors_both_ways() -> None:
    with pytest.raises(KeyError, match="lost"):
        module.fail("KeyError", "lost")
    with pytest.raises(RuntimeError, match="Custom: strange"):
        module.fail("Custom", "strange")
    with pytest.raises(ValueError, match="x is -1"):
        module.positive(-1)
    with pytest.raises(TypeError, match="Expected 2 but got 1"):
        module.add(1)
    with pytest.raises(TypeError, match="argument #1"):
        module.add(1, "x")

    def broken() -> None:
        raise OverflowError("too much")

    assert module.caught(broken) == "OverflowError: too much"
    assert module.caught(lambda: None) == "none"
    with pytest.raises(OverflowError, match="too much"):
        module.apply(lambda _: broken(), 1)


@pytest.mark.skipif(MODE != "alone", reason="theirs writes its own")
def test_backtrace_is_named_when_it_is_looked_at() -> None:
    with pytest.raises(ValueError, match="x is -1"):
        module.positive(-1)
    frames = core.last_backtrace()
    assert os.environ["FARCALL_TEST_LIBRARY"] in frames[0]
    assert any("positive" in frame for frame in frames)
    assert len(frames) == 1 or not any("_core" in frame for frame in frames), "it ends where Python begins"


def test_a_class_of_the_library() -> None:
    assert module.count(100) == 100


def builtin(name: str, *args: Any) -> Any:
    return module.builtin(name, args)


class TestGlobalFunctions:
    """The functions that native code finds by name although no user registered them."""

    def test_sequences(self) -> None:
        call = builtin
        assert list(call("ffi.Array", 1, "a")) == [1, "a"]
        assert call("ffi.ArraySize", [1, 2]) == 2
        assert call("ffi.ArrayGetItem", [1, 2], 1) == 2
        with pytest.raises(IndexError):
            call("ffi.ArrayGetItem", [1, 2], 2)
        assert tuple(call("ffi.Shape", 2, 3)) == (2, 3)
        assert call("ffi.String", "a text of some length") == "a text of some length"

    @pytest.mark.parametrize("n", SIZES)
    def test_maps(self, n: int) -> None:
        call = builtin
        built = call("ffi.Map", *[part for i in range(n) for part in (f"k{i}", i)])
        assert built == {f"k{i}": i for i in range(n)}
        assert call("ffi.MapSize", built) == n
        for i in range(0, n, 9):
            assert call("ffi.MapGetItem", built, f"k{i}") == i
            assert call("ffi.MapCount", built, f"k{i}") == 1
        assert call("ffi.MapCount", built, "none") == 0
        with pytest.raises(KeyError):
            call("ffi.MapGetItem", built, "none")

    @pytest.mark.skipif(MODE == "theirs first", reason="theirs does not keep its map alive")
    def test_iteration(self) -> None:
        step = builtin("ffi.MapForwardIterFunctor", {"a": 1, "b": 2})
        seen = [(step(0), step(1))]
        while step(2):
            seen.append((step(0), step(1)))
        assert seen == [("a", 1), ("b", 2)]

    def test_names(self) -> None:
        ffi.register_global_func("tvm.listed", lambda: None, override=True)
        names = builtin("ffi.FunctionListGlobalNamesFunctor")
        listed = {names(i) for i in range(names(-1))}
        assert "ffi.ArraySize" in listed
        if MODE == "alone":
            assert "tvm.listed" in listed
