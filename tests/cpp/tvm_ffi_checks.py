"""Run by test_tvm_ffi.py in a separate process: the same library in the real tvm_ffi.

usage: tvm_ffi_checks.py LIBRARY [before | after]

With the second argument farcall is imported too, before or after tvm_ffi, and loads the library as well.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch

ORDER = sys.argv[2] if len(sys.argv) > 2 else ""

if ORDER == "before":
    from farcall.ffi import load_library

    FARCALL: Any = load_library(sys.argv[1])
    assert FARCALL["add"](1, 2) == 3

import tvm_ffi  # noqa: E402 - the order is what is tested

MOD: Any = tvm_ffi.load_module(sys.argv[1])

if ORDER == "after":
    from farcall.ffi import load_library

    FARCALL = load_library(sys.argv[1])


def raises(cls: type[BaseException], text: str, name: str, *args: Any) -> None:
    try:
        result = MOD[name](*args)
    except cls as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"{name} returned {result!r}")


def values() -> None:
    assert MOD["add"](1, 2) == 3
    assert MOD["add"](1) == 11
    assert MOD["mean"](1, True) == 1.0
    assert MOD["flip"](True) is False
    assert MOD["join"]("a", "b" * 20, "c") == "a" + "b" * 20 + "c"
    assert MOD["reversed"](b"a\0b") == b"b\0a"
    assert MOD["half"](None) is None
    assert MOD["half"](8) == 4
    assert MOD["kinds"]("int8", "cuda:2") == "int8 cuda:2"
    assert MOD["options"](3) == "3a much longer texttrue-1"
    assert MOD["same"]("a text of more than 7 bytes") == "a text of more than 7 bytes"
    assert MOD["count_all"](1, "b", None) == 3


def tensors() -> None:
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    result = MOD["doubled"](x)
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, x * 2)
    assert MOD["asked"](x.T) == "2|3,2,|1,3,|6|float32|cpu:0|0|false|24"
    assert torch.equal(MOD["keep"](x), x)
    assert torch.equal(MOD["transposed"](x), x.T)
    assert torch.equal(MOD["through_dlpack"](x, True, 4, True), x)
    array = np.arange(6, dtype=np.float32)
    MOD["add_one"](array)
    assert array[0] == 1
    filled = MOD["filled"]((2, 3), 4.0)
    assert MOD["live"]() == 1
    assert np.from_dlpack(filled).tolist() == [[4.0] * 3] * 2
    del filled
    assert MOD["live"]() == 0


def containers() -> None:
    assert MOD["sum"]([1, 2.5]) == 3.5
    assert list(MOD["sizes"]([torch.zeros(2), torch.zeros(3)])) == [2, 3]
    assert list(MOD["swap"]((1, "b"))) == ["b", 1, 2.5]
    assert tuple(MOD["dims"]((2, 3, 4))) == (24, 4)
    for n in (0, 1, 4, 5, 40):
        x = {f"k{i}": i for i in range(n)}
        assert MOD["total"](x) == f"{''.join(x)}={sum(x.values())}"
        words = [f"{i:x}" * (i + 1) for i in range(n)]
        made = MOD["by_length"](words)
        assert {key: made[key] for key in made} == {word: len(word) for word in words}
        if n:
            assert MOD["lookup"](x, f"k{n - 1}") == n - 1
    raises(KeyError, "b", "lookup", {"a": 1}, "b")
    assert MOD["sum"](tvm_ffi.List([1, 2.5])) == 3.5
    assert MOD["total"](tvm_ffi.Dict({"a": 1, "b": 2})) == "ab=3"


def mutable() -> None:
    """List and Dict are shared: what C++ changes is seen here."""
    items = tvm_ffi.List([1])
    MOD["append"](items, 2)
    assert list(items) == [1, 2]
    assert list(MOD["shared_list"](3)) == [6, 70, 8, 0, 1]
    table = tvm_ffi.Dict({"a": 1})
    MOD["put"](table, "b", "two")
    assert dict(table) == {"a": 1, "b": "two"}
    assert dict(MOD["shared_dict"](9).items()) == {str(i): i for i in range(9)}
    MOD["cleared"](items)
    assert list(items) == []
    assert list(MOD["append"]([1], 2)) == [1, 2]
    for n in (0, 3, 4, 5, 30):
        x = {str(i): i for i in range(n)}
        assert {**MOD["with_item"](x, "new", 1)} == {**x, "new": 1}
        assert {**MOD["without"](x, "2")} == {key: value for key, value in x.items() if key != "2"}
    before, after = MOD["extended"]([1, 2], 3)
    assert (list(before), list(after)) == ([1, 2], [1, 2, 0, 1, 99])
    assert {key: list(value) for key, value in MOD["grouped"]({1: "a", 2: "b", 3: "a"}).items()} in (
        {"a": [1, 3], "b": [2]},
        {"a": [3, 1], "b": [2]},
    )


def variants() -> None:
    names = [MOD["which"](x) for x in (1, 2.5, True, "a", [1], np.zeros(2))]
    assert names == ["int", "float", "float", "str", "list[int]", "Tensor"]
    assert (MOD["either"](2), MOD["either"](0)) == (2, "not positive")
    raises(TypeError, "expected float | int | str | list[int] | Tensor, got None", "which", None)


def modules() -> None:
    again = tvm_ffi.load_module(sys.argv[1])
    assert MOD["call_in"](again, "half", 8) == 4
    assert MOD["about"](MOD, "add") == "library|true|true|true|0"
    assert MOD["about"](MOD, "none") == "library|false|false|false|0"
    raises(AttributeError, "the module has no function `none`", "call_in", MOD, "none", 1)
    raises(TypeError, "expected Module, got int 3", "about", 3, "add")
    assert MOD["load"](sys.argv[1])["add"](1, 2) == 3
    assert MOD["apply_std"](lambda x: x * 2, 4) == 9
    assert MOD["std_adder"](3)(4) == 7


def moves() -> None:
    """An object that the caller gives away (an rvalue reference)."""
    array = tvm_ffi.Array([1, 2, 3])
    assert MOD["sum"](array._move()) == 6.0
    raises(
        TypeError, "expected list[float], got a list whose item 1 is str", "sum", tvm_ffi.Array(["x"])._move()
    )


def functions() -> None:
    assert MOD["apply_typed"](lambda x: x * 2, 4) == 9
    assert MOD["adder"](3)(4) == 7
    tvm_ffi.register_global_func("tests.cpp.increment", lambda x: x + 1)
    assert MOD["call_global"]("tests.cpp.increment", 3) == 4

    def fail() -> None:
        raise IndexError("from Python")

    assert MOD["catches"](fail) == "IndexError: from Python"


def errors() -> None:
    raises(ValueError, "it broke", "fail", "ValueError", "it broke")
    raises(
        TypeError,
        'argument 2 `b` of `add(a: int, b: int = 10) -> int`: expected int, got str "x"',
        "add",
        1,
        "x",
    )
    raises(TypeError, "`add(a: int, b: int = 10) -> int` takes 1 to 2 arguments, got 0", "add")
    raises(TypeError, "argument 1 `a` of", "add", "x", "y")
    raises(IndexError, "far away", "fail_std", "out_of_range")
    raises(RuntimeError, "went wrong", "fail_std", "runtime_error")


def metadata() -> None:
    read = MOD.get_function_metadata("options")
    assert json.loads(read["type_schema"])["type"] == "ffi.Function"
    assert read["parameters"][1] == {"name": "mode", "default": "a much longer text"}
    assert MOD.get_function_doc("options") == "Has defaults of every kind."


def in_farcall() -> None:
    assert FARCALL["add"](1, 2) == 3
    x = torch.ones(3)
    assert torch.equal(FARCALL["doubled"](x), x * 2)
    assert isinstance(FARCALL["doubled"](np.ones(3, np.float32)), np.ndarray)
    try:
        FARCALL["fail"]("NotImplementedError", "mine")
    except NotImplementedError as error:
        assert str(error) == "mine"
    else:
        raise AssertionError("no error")


CHECKS = [values, tensors, containers, mutable, variants, modules, moves, functions, errors, metadata]
for check in [*CHECKS, in_farcall] if ORDER else CHECKS:
    check()
print("all passed")
