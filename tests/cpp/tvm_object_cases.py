"""Modules, JSON and whole values of a library that apache-tvm-ffi built: run by test_tvm_objects.py.

Its processes differ in what is imported: farcall alone, and the package cannot be; or both, in either order.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import numpy as np
import pytest

MODE = os.environ["FARCALL_TEST_MODE"]
LIBRARY = os.environ["FARCALL_TEST_LIBRARY"]
if MODE == "alone":
    sys.modules["tvm_ffi"] = None  # type: ignore[assignment]
if MODE == "theirs first":
    importlib.import_module("tvm_ffi")

ffi = importlib.import_module("farcall.ffi")
EARLY: Any = ffi.new_module("early", {"double": lambda x: 2 * x})  # before any library
module = ffi.load_library(LIBRARY)
if MODE == "ours first":
    assert module.implements(EARLY, "double")
    importlib.import_module("tvm_ffi")

ours = MODE != "theirs first"  # whose functions the library is bound to


@pytest.fixture
def table() -> Any:
    return module.make_table(5)


class TestTheirModulesHere:
    """A C++ class of the library, used by farcall."""

    def test_functions(self, table: Any) -> None:
        assert table["add"](3) == 8
        assert table.implements_function("add")
        assert not table.implements_function("none")
        with pytest.raises(AttributeError, match="none"):
            table["none"]

    def test_what_it_says_of_itself(self, table: Any) -> None:
        assert (table.kind, table.property_mask) == ("tests.table", 3)
        assert table.save_to_bytes() == b"base=5"
        assert table.inspect_source("text") == "source as text"
        assert table.get_function_doc("add") == "Adds its base, which is a number."
        assert table.get_function_metadata("add") is None

    def test_exceptions_do_not_leave_it(self, table: Any) -> None:
        with pytest.raises(ValueError, match="no function can be made"):
            table["fails"]
        with pytest.raises(RuntimeError, match=r"other than a std::exception"):
            table["throws"]
        with pytest.raises(RuntimeError, match=r"SaveToBytes|saved"):
            module.make_bare().save_to_bytes()

    def test_what_a_class_inherits(self) -> None:
        bare = module.make_bare()
        assert (bare.kind, bare.property_mask, bare.inspect_source()) == ("tests.bare", 0, "")
        assert bare.get_function_doc("x") is None
        assert list(module.formats_of(bare)) == []

    def test_imports(self, table: Any) -> None:
        table.import_module(EARLY)
        assert [m.kind for m in table.imports] == ["early"]
        assert table.get_function("double", query_imports=True)(4) == 8
        with pytest.raises(RuntimeError, match=r"(?i)cyclic"):
            table.import_module(table)
        table.clear_imports()
        assert table.imports == ()
        assert not table.implements_function("double", query_imports=True)

    def test_in_our_tree(self, table: Any) -> None:
        root = ffi.new_module("root", {})
        root.import_module(table)
        assert root.get_function("add", query_imports=True)(1) == 6
        assert root.get_function_doc("add", query_imports=True).startswith("Adds")
        assert root.imports[0].kind == "tests.table"

    def test_it_outlives_its_python_object(self, table: Any) -> None:
        add = table["add"]
        del table
        assert add(1) == 6


class TestOurModulesThere:
    """A module that farcall made, used by the C++ code of the library."""

    @pytest.mark.parametrize("made", ["early", "late"])
    def test_functions(self, made: str) -> None:
        ours = EARLY if made == "early" else ffi.new_module("late", {"double": lambda x: 2 * x})
        assert module.call_in(ours, "double", 21) == 42
        assert [module.implements(ours, name) for name in ("double", "none")] == [True, False]
        assert module.implements_itself(ours, "double")
        assert (module.kind_of(ours), module.mask_of(ours)) == (made, ours.property_mask)

    def test_errors_of_a_function(self) -> None:
        def broken(_: Any) -> None:
            raise KeyError("lost")

        with pytest.raises(KeyError, match="lost"):
            module.call_in(ffi.new_module("broken", {"f": broken}), "f", 1)

    def test_a_library(self) -> None:
        assert module.kind_of(module) == "library"
        assert module.call_in(module, "taken", [1, 2]) == 2 if MODE == "alone" else True
        assert module.doc_of(module, "parse") is None
        assert module.metadata_of(module, "parse") is None
        assert module.source_of(module) == ""
        assert list(module.formats_of(module)) == []
        with pytest.raises(RuntimeError, match=r"written|WriteToFile"):
            module.write_to(module, "nowhere")

    def test_saving(self) -> None:
        kept = ffi.new_module("kept", {}, save=lambda: b"all of it", source=lambda fmt: f"in {fmt}")
        assert module.saved(kept) == b"all of it"
        assert module.source_of(kept) == "in c"
        with pytest.raises(RuntimeError, match="save"):
            module.saved(EARLY)

    def test_imports(self, table: Any) -> None:
        root = ffi.new_module("root", {})
        module.import_into(root, table)
        assert module.call_in(root, "add", 1) == 6
        assert [m.kind for m in module["imports"](root)] == ["tests.table"]
        assert module.doc_of(root, "add").startswith("Adds")
        assert module.caught(root, root) == "RuntimeError"
        assert module.caught(table, root) == "RuntimeError"
        module["clear_imports"](root)
        assert list(module["imports"](root)) == []

    def test_loading(self) -> None:
        again = module.load_module(LIBRARY)
        assert again["by_name"](2) == 8
        with pytest.raises((OSError, RuntimeError)):
            module.load_module("/no/such/library.so")

    def test_context_symbols(self) -> None:
        assert module.visits_context("__farcall_tests_context")


class TestJson:
    def test_values(self) -> None:
        text = '{"a": [1, -2.5e3, null, true, false, "x\\u00e9\\ud83d\\ude00\\n/"], "b": {}, "": []}'
        expected = {"a": (1, -2500.0, None, True, False, "xé😀\n/"), "b": {}, "": ()}
        assert module.parse(text) == expected
        assert module.parse(module.print(expected, None)) == expected
        assert module.parse(module.print(expected, 2)) == expected
        assert module.print({"a": [1, 2.5]}, None) == '{"a":[1,2.5]}'
        assert module.print({"a": [1]}, 2) == '{\n  "a": [\n    1\n  ]\n}'

    @pytest.mark.parametrize("text", ["", "[1,]", '{"a"}', '"abc', "1 x", "nul", '"\\ud800"', "[1 2]"])
    def test_wrong_text(self, text: str) -> None:
        with pytest.raises(ValueError, match="line 1 column"):
            module.parse(text)
        assert "line 1 column" in module.parse_error(text)
        assert module.parse_error("1") == ""

    def test_what_has_no_form(self) -> None:
        for value in ({1: 2}, b"x", [ffi.Device("cpu")]):
            with pytest.raises(ValueError, match=r".+"):
                module.print(value, None)


SAME: list[tuple[Any, Any, bool, bool]] = [
    (1, 1, True, True),
    (1, 1.0, False, False),
    (True, 1, False, False),
    ("short", "short", True, True),
    ("a" * 20, "a" * 20, True, True),
    ("a", b"a", False, False),
    ([1, "x", [None]], [1, "x", [None]], True, True),
    ([1, 2], [1, 3], False, False),
    ([1], [1, 2], False, False),
    ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True, True),
    ({"a": 1}, {"a": 2}, False, False),
    ({"a": 1}, {"b": 1}, False, False),
    (float("nan"), float("nan"), True, True),
    (0.0, -0.0, False, True),
    (None, None, True, True),
]


@pytest.mark.parametrize(("a", "b", "structural", "plain"), SAME)
def test_whole_values(a: Any, b: Any, structural: bool, plain: bool) -> None:
    assert module.same_structure(a, b) is structural
    assert module.equal(a, b) is plain
    if structural:
        assert module.same_hash(a, b)
    if plain:
        assert module.equal_hash(a, b)


def test_different_values_have_different_hashes() -> None:
    values: list[Any] = [1, 2, "a", "b", [1], [2], [[1]], {"a": 1}, {"a": 2}, 1.5, b"a", None, [None]]
    pairs = [(a, b) for i, a in enumerate(values) for b in values[:i]]
    assert not any(module.same_hash(a, b) or module.equal_hash(a, b) for a, b in pairs)


@pytest.mark.skipif(not ours, reason="theirs looks at no elements")
def test_tensors_are_compared_by_their_elements() -> None:
    zeros, again, ones = (ffi.from_dlpack(x) for x in (np.zeros(3), np.zeros(3), np.ones(3)))
    assert module.equal(zeros, again)
    assert module.same_structure(zeros, again)
    assert not module.equal(zeros, ones)
    assert module.equal_hash(zeros, again)
    assert not module.same_hash(zeros, ones)


def test_texts_of_values() -> None:
    value = {"a": [1, 2.5, True, None, "q\"'\n", b"\0x"], 2: [[]], "one": ["x"]}
    assert (
        module.repr(value) == '{"a": (1, 2.5, True, None, "q\\"\'\\n", b"\\x00x"), 2: ((),), "one": ("x",)}'
    )
    assert module.repr(ffi.empty((2, 3), "float32")) == "float32[2, 3]@cpu:0"


def test_a_type_with_fields() -> None:
    assert list(module.compared(1, 1)) == [True, True, True, True]
    assert list(module.compared(1, 2)) == [False, False, False, False]
    assert module.shown(7) == "farcall.tests.Point(x=7, more=(1, 2))"


def test_global_functions_of_the_library() -> None:
    assert module.by_name(2) == 8
    if not ours:
        return  # they are registered there
    assert ffi.get_global_func("farcall.tests.triple")(5) == 15
    assert ffi.get_global_func("farcall.tests.count")(1, "a", None) == 3
