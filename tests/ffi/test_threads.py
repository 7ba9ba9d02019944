"""Threads: the GIL is free during a kernel, and nothing is lost when many call at once."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from farcall import ffi

from .threads import in_threads


def test_gil_is_released_around_the_kernel(kernels: ffi.Module) -> None:
    """One thread waits inside a kernel for an action of another Python thread."""
    kernels["set_flag"](0)
    waiter = threading.Thread(target=kernels["wait_flag"])
    waiter.start()
    kernels["set_flag"](1)
    waiter.join()


def test_waiting_for_nobody_is_an_error_not_a_hang(kernels: ffi.Module) -> None:
    kernels["set_flag"](1)
    assert kernels["wait_flag"]() is None


def test_many_threads_call(kernels: ffi.Module) -> None:
    def work(i: int) -> None:
        x = np.full(100, i, "f4")
        for k in range(300):
            assert kernels["add"](i, k) == i + k
            np.testing.assert_array_equal(kernels["copy"](x), x)
            with pytest.raises(ValueError, match=f"^{i}$"):
                kernels["raise"]("ValueError", str(i))

    in_threads(16, work)


def test_many_threads_call_back(kernels: ffi.Module) -> None:
    def work(i: int) -> None:
        for k in range(200):
            assert kernels["call"](lambda a, b: a * b, i, k) == i * k

    in_threads(8, work)


def test_many_threads_register(kernels: ffi.Module) -> None:
    def work(i: int) -> None:
        for k in range(200):
            name = f"threads.{i}.{k}"
            ffi.register_global_func(name, lambda x: x + 1)
            assert kernels["call_global"](name, k) == k + 1
            if k % 2:
                ffi.remove_global_func(name)

    in_threads(16, work)
    left = {name for name in ffi.list_global_func_names() if name.startswith("threads.")}
    assert left == {f"threads.{i}.{k}" for i in range(16) for k in range(0, 200, 2)}
    for name in left:
        ffi.remove_global_func(name)


def test_one_winner_for_one_name() -> None:
    won: list[int] = []

    def work(i: int) -> None:
        try:
            ffi.register_global_func("threads.one", lambda: i)
            won.append(i)
        except ValueError:
            pass

    in_threads(16, work)
    assert len(won) == 1
    assert ffi.get_global_func("threads.one")() == won[0]
    ffi.remove_global_func("threads.one")


def test_many_threads_load(kernels_path: Path) -> None:
    def work(i: int) -> None:
        for _ in range(50):
            assert ffi.load_library(kernels_path)["add"](i, 1) == i + 1

    in_threads(8, work)


def test_many_threads_meet_new_types(kernels: ffi.Module) -> None:
    """The table of setters grows while others read it."""

    def work(i: int) -> None:
        for k in range(100):
            number = type(f"Int{i}_{k}", (int,), {})(k)
            assert kernels["add"](number, 1) == k + 1

    in_threads(16, work)
