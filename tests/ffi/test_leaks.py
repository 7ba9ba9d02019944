"""Calls leave nothing behind: reference counts and memory stay flat."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from farcall import ffi

CALLS = 20_000


class Protocol:
    """A tensor by __dlpack__ alone."""

    def __init__(self) -> None:
        self.data = np.ones(3, "f4")

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.data.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def torch_parameter() -> Any:
    torch = pytest.importorskip("torch")
    return torch.nn.Parameter(torch.ones(3))


class Says:
    """An object whose method returns a new tensor for each call."""

    def __tvm_ffi_value__(self) -> Any:
        return [np.ones(3), "a text of some length"]


class Pointer:
    def __tvm_ffi_opaque_ptr__(self) -> int:
        return 2**40


def callback(*_: Any) -> None:
    pass


VALUES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "bool": lambda: True,
    "int": lambda: 12345678901234,
    "float": lambda: 1.25,
    "str": lambda: "a text of some length",
    "str with nul": lambda: "a text of\0some length",
    "bytes": lambda: b"some bytes of a length",
    "bytearray": lambda: bytearray(b"some bytes of a length"),
    "numpy": lambda: np.ones((2, 3), "f4"),
    "numpy, many dims": lambda: np.ones((1,) * 12, "f4"),
    "numpy scalar": lambda: np.float32(3),
    "own tensor": lambda: ffi.empty((2, 3)),
    "protocol": Protocol,
    "dtype": lambda: ffi.dtype("int8"),
    "numpy dtype": lambda: np.dtype("int8"),
    "device": lambda: ffi.Device("cpu"),
    "callable": lambda: callback,
    "function": lambda: ffi.Function(callback),
    "read-only numpy": lambda: np.broadcast_to(np.ones(3, "f4"), (2, 3)),
    "numpy int4": lambda: np.ones(5, ml_dtypes.int4),
    "numpy bfloat16": lambda: np.ones(5, ml_dtypes.bfloat16),
    "torch": lambda: pytest.importorskip("torch").ones(2, 3),
    "torch parameter": torch_parameter,
    "jax": lambda: pytest.importorskip("jax.numpy").ones((2, 3)),
    "complex": lambda: 1 + 2j,
    "exception": lambda: ValueError("a text of some length"),
    "shape": lambda: ffi.Shape((2, 3)),
    "dict": lambda: {"a key of some length": [1, np.ones(2)], 3: {"x": None}},
    "numpy bool": lambda: np.bool_(True),
    "memoryview": lambda: memoryview(b"some bytes of a length"),
    "protocol of values": Says,
    "protocol of pointers": Pointer,
    "list": lambda: [1, "a text of some length", [b"bytes of a length"]],
    "too big": lambda: 2**70,
    "refused": lambda: {1},
}


def resident() -> int:
    """Bytes of this process in memory (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def attempt(function: Callable[..., Any], value: Any) -> None:
    with contextlib.suppress(TypeError, OverflowError, ValueError):
        function(value)


def repeat(function: Callable[..., Any], value: Any, calls: int) -> None:
    for _ in range(calls):
        attempt(function, value)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory in use from /proc")
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", ["count", "echo", "view"])
def test_arguments_and_results(kernels: ffi.Module, kind: str, name: str) -> None:
    check_flat(kernels, kind, name, CALLS)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory in use from /proc")
@pytest.mark.parametrize("kind", VALUES)
def test_a_million_calls(kernels: ffi.Module, kind: str) -> None:
    check_flat(kernels, kind, "count", 1_000_000)


ROUNDS = 3


def check_flat(kernels: ffi.Module, kind: str, name: str, calls: int) -> None:
    value = VALUES[kind]()
    function = kernels["first_tag" if name == "view" else name]
    function.views = name == "view"
    repeat(function, value, calls // 10)  # caches fill, the allocator finds its size
    gc.collect()
    # A leak of one bytes object a call would be 32 bytes, in every round. Other threads of this process may
    # allocate in some rounds.
    assert any(growth(function, value, calls) < 16 * calls for _ in range(ROUNDS))


def growth(function: ffi.Function, value: object, calls: int) -> int:
    """The bytes by which this process grows during the calls, which leave no reference to the value."""
    references, memory = sys.getrefcount(value), resident()
    repeat(function, value, calls)
    gc.collect()
    # A leak is one reference a call. None and small numbers have users in other threads, too.
    assert abs(sys.getrefcount(value) - references) < calls // 10
    return resident() - memory


def test_refused_call_releases_what_was_converted(kernels: ffi.Module) -> None:
    x, text, array = [1, "text of a length"], "nul\0 inside", np.ones(3)
    before = [sys.getrefcount(value) for value in (x, text, array)]
    for _ in range(1000):
        with pytest.raises(TypeError, match="argument 4"):
            kernels["count"](x, text, array, {1})
    assert [sys.getrefcount(value) for value in (x, text, array)] == before


def test_tracebacks_are_released(kernels: ffi.Module) -> None:
    """Also those with native frames in between, and through another exception."""

    def fail(depth: int) -> None:
        if depth:
            kernels["call"](fail, depth - 1)
        raise LookupError("a text of some length")

    def attempts(count: int) -> None:
        for _ in range(count):
            with contextlib.suppress(LookupError):
                kernels["call"](fail, 3)

    attempts(300)
    gc.collect()
    before = resident()
    attempts(3000)
    gc.collect()
    assert resident() - before < 16 * 3000


def test_errors_are_released(kernels: ffi.Module) -> None:
    class MineError(Exception):
        pass

    def fail() -> None:
        raise MineError

    before = sys.getrefcount(MineError)
    for _ in range(1000):
        with pytest.raises(MineError):
            kernels["call_and_reraise"](fail)
        assert kernels["call_or_kind"](fail) == "MineError"
    gc.collect()
    assert abs(sys.getrefcount(MineError) - before) < 10


def test_classes_without_end(kernels: ffi.Module) -> None:
    """The cache of types is bounded; types beyond it work too."""
    for i in range(9000):
        assert kernels["add"](type("I", (int,), {})(i), 0) == i
