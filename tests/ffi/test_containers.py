"""Array, List, Map, Dict, Shape, big integers, types: shared by libraries, and their functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farcall import ffi

Compile = Callable[..., Path]
HERE = Path(__file__).parent
CHECKS = ["types", "descriptions", "attributes", "big_integers", "views"]


@pytest.fixture(scope="session")
def checks(compile_kernels: Compile) -> ffi.Module:
    return ffi.load_library(compile_kernels("runtime_checks", (HERE / "runtime_checks.c").read_text()))


@pytest.fixture(scope="session")
def call(kernels: ffi.Module) -> Callable[..., Any]:
    """A global function, as a kernel finds and calls it."""
    return kernels["call_global"]


@pytest.mark.parametrize("name", CHECKS)
def test_native_side(checks: ffi.Module, name: str) -> None:
    line = checks[f"check_{name}"]()
    assert line == 0, (HERE / "runtime_checks.c").read_text().splitlines()[line - 1]


def test_no_check_is_forgotten(checks: ffi.Module) -> None:
    assert {n for n in checks.function_names() if n.startswith("check_")} == {f"check_{n}" for n in CHECKS}


# ---- maps: against Python's own

keys = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.none(),
    st.integers(0, 30),
)


@settings(max_examples=150)
@given(items=st.dictionaries(keys, st.integers(0, 100), max_size=60), others=st.lists(keys, max_size=10))
def test_map_is_a_dict(call: Callable[..., Any], items: dict[Any, int], others: list[Any]) -> None:
    """For any keys, a Map finds the same entries as a dict, in the same order."""
    built = call("ffi.Map", *[part for item in items.items() for part in item])
    assert list(built.items()) == list(items.items())
    for key in [*items, *others]:
        assert call("ffi.MapCount", items, key) == (key in items)
        if key in items:
            assert call("ffi.MapGetItem", items, key) == items[key]
        else:
            with pytest.raises(KeyError):
                call("ffi.MapGetItem", items, key)


operations = st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 1, 2]), keys, st.integers(0, 9)), max_size=120)


@settings(max_examples=150)
@given(steps=operations)
def test_dict_lives_through_anything(checks: ffi.Module, steps: list[tuple[int, Any, int]]) -> None:
    """Set, erase and clear in any order leave the same entries as in a Python dict."""
    model: dict[Any, int] = {}
    for op, key, value in steps:
        if op == 0:
            model[key] = value
        elif op == 1:
            model.pop(key, None)
        else:
            model.clear()
    left = checks["dict_session"](*[part for step in steps for part in step])
    assert list(left.items()) == list(model.items())


@pytest.mark.parametrize("n", [3000, 10000])
def test_large_dict(checks: ffi.Module, n: int) -> None:
    """Filled, every third taken out, filled again: long chains, many moves."""
    steps = [(0, f"k{i}", i) for i in range(n)]
    steps += [(1, f"k{i}", 0) for i in range(0, n, 3)]
    steps += [(0, f"k{i}", -i) for i in range(0, n, 2)]
    model = {f"k{i}": i for i in range(n)}
    for i in range(0, n, 3):
        del model[f"k{i}"]
    for i in range(0, n, 2):
        model[f"k{i}"] = -i
    left = checks["dict_session"](*[part for step in steps for part in step])
    assert list(left.items()) == list(model.items())


def test_values_with_references(call: Callable[..., Any]) -> None:
    """Objects as keys are compared by identity; as values they live as long as the map."""
    array = [1, "a long text that is an object"]
    built = call("ffi.Map", "list", array, "again", array, "list", "replaced")
    assert built == {"list": "replaced", "again": (1, "a long text that is an object")}
    with pytest.raises(TypeError, match="alternating keys and values, got 1"):
        call("ffi.Map", 1)


# ---- sequences


def test_array(call: Callable[..., Any]) -> None:
    assert call("ffi.Array") == ()
    assert call("ffi.Array", 1, "two", None, [3]) == (1, "two", None, (3,))
    assert call("ffi.ArrayGetItem", [5, 6, 7], -1) == 7
    assert call("ffi.ArrayContains", ["a", "a longer text"], "a longer text") is True
    assert call("ffi.ArrayContains", [1], 2) is False
    for index in (3, -4):
        with pytest.raises(IndexError, match="of 3 items"):
            call("ffi.ArrayGetItem", [5, 6, 7], index)


list_steps = st.lists(st.tuples(st.integers(0, 6), st.integers(-6, 6), st.integers(-6, 6)), max_size=40)


@settings(max_examples=150)
@given(steps=list_steps)
def test_list_is_a_list(checks: ffi.Module, steps: list[tuple[int, int, int]]) -> None:
    """Each operation acts as Python's, or raises for an index that does not exist."""
    model: list[int] = []
    expected: type[Exception] | None = None
    for op, a, b in steps:
        size = len(model)
        inside = -size <= a < size + (op in (1, 6))
        if op == 0:
            model.append(a)
        elif op == 5:
            model.clear()
        elif not inside or (op == 6 and not -size <= b <= size):
            expected = IndexError
            break
        elif op == 1:
            model.insert(a, b)
        elif op == 2:
            model[a] = b
        elif op == 6:
            begin, end = (x + size if x < 0 else x for x in (a, b))
            del model[begin:end]
        else:
            del model[a]
    flat = [part for step in steps for part in step]
    if expected:
        with pytest.raises(expected):
            checks["list_session"](*flat)
    else:
        assert checks["list_session"](*flat) == model


def test_shape_string_bytes(call: Callable[..., Any]) -> None:
    assert tuple(call("ffi.Shape", 2, 3)) == (2, 3)
    assert call("ffi.String", "short") == "short"
    assert call("ffi.Bytes", b"many more bytes") == b"many more bytes"
    for name, value in (("ffi.Shape", "x"), ("ffi.String", 1), ("ffi.Bytes", "text")):
        with pytest.raises(TypeError, match="argument 1: expected"):
            call(name, value)


def test_wrong_arguments_are_named(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"`ffi\.ArraySize`: expected 1 argument, got 2"):
        call("ffi.ArraySize", [1], 2)
    with pytest.raises(TypeError, match=r"argument 1: expected ffi\.Map, got `ffi\.Array`"):
        call("ffi.MapSize", [1])


def test_sessions_cannot_reach_them() -> None:
    """Only native code may call them: they load libraries, and a server exports every registered function."""
    assert ffi.get_global_func("ffi.ModuleLoadFromFile", allow_missing=True) is None
    assert not [name for name in ffi.list_global_func_names() if name.startswith("ffi.Array")]


def test_a_registered_name_comes_first(call: Callable[..., Any]) -> None:
    ffi.register_global_func("ffi.ArraySize", lambda array: "mine")
    assert call("ffi.ArraySize", [1]) == "mine"
    ffi.remove_global_func("ffi.ArraySize")
    assert call("ffi.ArraySize", [1]) == 1
