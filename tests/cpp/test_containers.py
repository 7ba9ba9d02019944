"""Lists, tuples, dicts, shapes and functions, in and out of C++."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farcall.ffi import Function, Module, get_global_func, register_global_func, remove_global_func


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("sum", ([1, 2.5, True],), 4.5),
        ("sum", ((),), 0.0),
        ("sizes", ([np.zeros((2, 3), np.float32), np.zeros(1, np.float32)],), (6, 1)),
        ("sizes", ([],), ()),
        ("item", ([1, "b", None], -2), "b"),
        ("nested", ([[1, 2], [3, 4]],), 4),
        ("swap", ((1, "b"),), ("b", 1, 2.5)),
        ("dims", ((2, 3, 4),), (24, 4)),  # Shape <- a list of ints
    ],
)
def test_lists_tuples_and_shapes(kernels: Module, name: str, args: tuple[Any, ...], expected: Any) -> None:
    assert kernels[name](*args) == expected


def test_an_item_out_of_range(kernels: Module) -> None:
    with pytest.raises(IndexError, match="item 3 is out of range: there are 1"):
        kernels["item"]([1], 3)


@pytest.mark.parametrize("n", [0, 1, 4, 5, 40])
def test_a_dict_in(kernels: Module, n: int) -> None:
    x = {f"k{i}": i for i in range(n)}
    assert kernels["total"](x) == f"{''.join(x)}={sum(x.values())}"
    if n:
        assert kernels["lookup"](x, f"k{n - 1}") == n - 1


@pytest.mark.parametrize("n", [0, 1, 4, 5, 40])
def test_a_dict_out(kernels: Module, n: int) -> None:
    words = [f"{i:x}" * (i + 1) for i in range(n)]
    assert kernels["by_length"](words) == {word: len(word) for word in words}


def test_a_key_that_is_not_there(kernels: Module) -> None:
    with pytest.raises(KeyError):
        kernels["lookup"]({"a": 1}, "b")


def test_a_dict_of_other_types_is_refused(kernels: Module) -> None:
    with pytest.raises(TypeError, match="expected dict\\[str, int\\], got a dict with"):
        kernels["total"]({"a": "b"})


def test_a_callback_gets_all_kinds(kernels: Module) -> None:
    seen: list[Any] = []
    kernels["apply"](lambda *args: seen.extend(args), 7)
    assert seen == [7, "text\0with NUL", 2.5, True, None]


def test_a_typed_callback(kernels: Module) -> None:
    assert kernels["apply_typed"](lambda x: x * 2, 4) == 9
    with pytest.raises(TypeError, match="expected int, got str"):
        kernels["apply_typed"](lambda x: "s", 4)


def test_a_callback_with_a_tensor(kernels: Module) -> None:
    x = np.arange(4, dtype=np.float32)
    assert kernels["apply_tensor"](lambda view: int(view.numpy().sum()), x) == 6


def test_a_function_as_a_result(kernels: Module) -> None:
    adder = kernels["adder"](3)
    assert isinstance(adder, Function)
    assert adder(4) == 7
    with pytest.raises(
        TypeError, match=r"argument 1 `arg1` of `adder\(arg1: int\) -> int`: expected int, got str"
    ):
        adder("q")
    assert kernels["apply_typed"](adder, 5) == 9


def test_global_functions_both_ways(kernels: Module) -> None:
    register_global_func("tests.cpp.increment", lambda x: x + 1)
    try:
        assert kernels["has_global"]("tests.cpp.increment") is True
        assert kernels["call_global"]("tests.cpp.increment", 3) == 4
        kernels["set_global"]("tests.cpp.triple")
        assert get_global_func("tests.cpp.triple")(5) == 15
    finally:
        remove_global_func("tests.cpp.increment")
        remove_global_func("tests.cpp.triple")
    assert kernels["has_global"]("tests.cpp.increment") is False
    with pytest.raises(ValueError, match=r"no global function is registered as `tests.cpp.increment`"):
        kernels["call_global"]("tests.cpp.increment", 3)


def test_a_name_that_is_taken_is_an_error(kernels: Module) -> None:
    kernels["set_global"]("tests.cpp.twice")
    try:
        with pytest.raises(Exception, match=r"tests\.cpp\.twice"):
            kernels["set_global"]("tests.cpp.twice")
    finally:
        remove_global_func("tests.cpp.twice")


def test_streams_and_signals(kernels: Module) -> None:
    assert kernels["stream"](3) == 0x1230
    kernels["signals"]()
