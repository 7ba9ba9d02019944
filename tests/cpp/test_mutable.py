"""List and Dict, changed Maps and Arrays, values of several types, modules as arguments."""

from __future__ import annotations

import numpy as np
import pytest

from farcall.ffi import Module, new_module


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 30])
def test_a_changed_map_is_a_new_one(kernels: Module, n: int) -> None:
    x = {str(i): i for i in range(n)}
    assert kernels["with_item"](x, "new", [1]) == {**x, "new": (1,)}
    assert kernels["with_item"](x, "0", "again") == {**x, "0": "again"}
    assert kernels["without"](x, "3") == {key: value for key, value in x.items() if key != "3"}


@pytest.mark.parametrize("n", [0, 1, 20])
def test_a_changed_array_is_a_new_one(kernels: Module, n: int) -> None:
    before, after = kernels["extended"]([5, 6], n)
    assert before == (5, 6)
    assert after == ((5, 6, *range(n - 1), 99) if n else (5, 6))


@pytest.mark.parametrize("n", [1, 5, 50])
def test_list_and_dict_are_shared(kernels: Module, n: int) -> None:
    assert kernels["shared_list"](n) == [6, 70, 8, *range(n - 1)]
    assert kernels["shared_dict"](n) == {str(i): i for i in range(n)}


def test_what_python_has_arrives_as_a_copy(kernels: Module) -> None:
    items, table = [1], {"a": [1]}
    assert kernels["append"](items, 2) == [1, 2]
    assert kernels["put"](table, "b", 1) == {"a": (1,), "b": 1}
    assert (items, table) == ([1], {"a": [1]})
    with pytest.raises(TypeError, match=r"expected List\[int\], got a list whose item 2 is str"):
        kernels["append"]([1, "x"], 2)
    with pytest.raises(TypeError, match=r"expected Dict\[str, Any\], got a dict with"):
        kernels["put"]({1: 2}, "b", 1)


def test_maps_of_the_standard_library(kernels: Module) -> None:
    grouped = kernels["grouped"]({1: "a", 2: "b", 3: "a"})
    assert {key: sorted(value) for key, value in grouped.items()} == {"a": [1, 3], "b": [2]}
    with pytest.raises(TypeError, match=r"expected dict\[int, str\], got a dict with int 1: int 2"):
        kernels["grouped"]({1: 2})


def test_one_of_several_types(kernels: Module) -> None:
    """The exact type of the value is preferred to a conversion."""
    values = (1, 2.5, True, "a", [1], np.zeros(2))
    assert [kernels["which"](x) for x in values] == ["int", "float", "float", "str", "list[int]", "Tensor"]
    assert (kernels["either"](2), kernels["either"](0)) == (2, "not positive")
    with pytest.raises(TypeError, match=r"expected float \| int \| str \| list\[int\] \| Tensor, got None"):
        kernels["which"](None)


def test_a_module_as_an_argument(kernels: Module, library: str) -> None:
    made = new_module("mine", {"add": lambda x: x + 1})
    assert kernels["call_in"](made, "add", 4) == 5
    assert kernels["call_in"](kernels, "half", 8) == 4
    assert kernels["about"](kernels, "add") == "library|true|true|true|0"
    assert kernels["about"](made, "none") == "mine|false|false|false|0"
    assert kernels["import_into"](new_module("empty", {}), kernels) is True
    assert kernels["load"](library)["add"](1, 2) == 3
    with pytest.raises(AttributeError, match="the module has no function `none`"):
        kernels["call_in"](made, "none", 1)
    with pytest.raises(RuntimeError, match="cyclic"):
        kernels["import_into"](made, made)
    with pytest.raises(TypeError, match="expected Module, got int 3"):
        kernels["about"](3, "add")


def test_functions_of_the_standard_library(kernels: Module) -> None:
    assert kernels["apply_std"](lambda x: x * 2, 4) == 9
    assert kernels["std_adder"](3)(4) == 7
    with pytest.raises(ZeroDivisionError):
        kernels["apply_std"](lambda x: x // 0, 4)


def test_causes_are_followed(kernels: Module) -> None:
    inner, outer = KeyError("inner"), ValueError("outer")
    outer.__cause__ = inner
    assert kernels["causes"](outer) == "ValueError;KeyError;"
