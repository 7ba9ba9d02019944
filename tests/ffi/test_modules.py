"""Modules: trees of imports, embedded modules, loaders, the system library, descriptions, refusals."""

from __future__ import annotations

import contextlib
import gc
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall import _core, ffi
from farcall.errors import ArtifactError

Compile = Callable[..., Path]

SOURCE = """
#include <farcall/c_api.h>
FARCALL_KERNEL(who) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = %d;
  return 0;
}
"""

CONTEXT = """
#include <farcall/c_api.h>
#include <string.h>
FARCALL_VISIBLE void* __tvm_ffi__library_ctx;
FARCALL_VISIBLE void* test_context_symbol;

FARCALL_KERNEL(call_import) {
  TVMFFIObjectHandle f;
  TVMFFIByteArray name = {args[0].v_c_str, strlen(args[0].v_c_str)};
  (void)name;
  if (TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, args[0].v_c_str, &f) != 0) return -1;
  return TVMFFIFunctionCall(f, (TVMFFIAny*)args + 1, num_args - 1, result);
}
FARCALL_KERNEL(context) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = (int64_t)(intptr_t)test_context_symbol;
  return 0;
}
FARCALL_KERNEL(register_context) {
  return TVMFFIEnvModRegisterContextSymbol("test_context_symbol", (void*)(intptr_t)args[0].v_int64);
}
FARCALL_KERNEL(register_system) {
  return TVMFFIEnvModRegisterSystemLibSymbol(args[0].v_c_str, (void*)__tvm_ffi_context);
}
FARCALL_KERNEL(wrong_context) {
  TVMFFIObjectHandle f;
  return TVMFFIEnvModLookupFromImports(result, "f", &f);
}
FARCALL_KERNEL(register_host) { return TVMFFIEnvRegisterCAPI(args[0].v_c_str, result); }
"""

DESCRIBED = """
#include <farcall/c_api.h>
#include <string.h>
static int text(const char* value, TVMFFIAny* result) {
  TVMFFIByteArray bytes = {value, strlen(value)};
  return TVMFFIStringFromByteArray(&bytes, result);
}
FARCALL_KERNEL(f) { return 0; }
FARCALL_KERNEL(main) {
  *result = args[0];
  return 0;
}
FARCALL_KERNEL(_metadata_f) { return text("{\\"type_schema\\": \\"{}\\"}", result); }
FARCALL_KERNEL(_doc_f) { return text("What f does.", result); }
"""


def bin_of(begins: list[int], children: list[int], modules: list[tuple[str, bytes | None]]) -> bytes:
    """The bytes of `__tvm_ffi__library_bin`, as its format says."""

    def number(value: int) -> bytes:
        return struct.pack("<Q", value)

    body = b"".join(number(len(part)) + b"".join(map(number, part)) for part in (begins, children))
    for kind, data in modules:
        body += number(len(kind)) + kind.encode()
        body += b"" if data is None else number(len(data)) + data
    return number(len(body)) + body


@pytest.fixture(scope="session")
def embedding(compile_kernels: Compile) -> Callable[[bytes], ffi.Module]:
    """A library that embeds these bytes, loaded."""
    made = 0

    def build(data: bytes) -> ffi.Module:
        nonlocal made
        made += 1
        text = ",".join(map(str, data)) or "0"
        source = SOURCE % 7 + f"FARCALL_VISIBLE const unsigned char __tvm_ffi__library_bin[] = {{{text}}};\n"
        return ffi.load_library(compile_kernels(f"embedding{made}", source))

    return build


@pytest.fixture
def note_loader() -> Iterator[str]:
    """A kind of module whose bytes are a number, and whose function `who` gives it."""

    def load(data: bytes) -> ffi.Module:
        value = int(data)
        return _core.new_module("note", {"who": lambda: value, "note": lambda: value}, save=lambda: data)

    _core.register_loader("note", load, extension=".note", override=True)
    yield "note"
    ffi.remove_global_func("ffi.Module.load_from_bytes.note")
    ffi.remove_global_func("ffi.Module.load_from_file.note")


def note(value: int) -> ffi.Module:
    return _core.load_module_from_bytes("note", b"%d" % value)


@pytest.fixture(scope="session")
def context(compile_kernels: Compile) -> ffi.Module:
    return ffi.load_library(compile_kernels("context", CONTEXT))


NEST = """
#include <farcall/c_api.h>
FARCALL_KERNEL(nest) { /* arrays in arrays, the last of which has the second argument */
  TVMFFIByteArray name = {"ffi.Array", 9};
  TVMFFIObjectHandle make = NULL;
  TVMFFIAny array = args[1], outer;
  if (TVMFFIFunctionGetGlobal(&name, &make) != 0) return -1;
  for (int64_t i = 0; i < args[0].v_int64; ++i, array = outer) {
    outer = (TVMFFIAny){0};
    if (TVMFFIFunctionCall(make, &array, 1, &outer) != 0) return -1;
    if (i) TVMFFIObjectDecRef(array.v_obj);
  }
  TVMFFIObjectDecRef(array.v_obj);
  TVMFFIObjectDecRef(make);
  *result = args[0];
  return 0;
}
"""


class TestImports:
    def test_own_functions_come_first_then_depth_first(self, compile_kernels: Compile) -> None:
        root = ffi.load_library(compile_kernels("root", SOURCE % 1))
        left = _core.new_module("left", {"who": lambda: 2})
        below = _core.new_module("below", {"deep": lambda: 3, "both": lambda: 4})
        right = _core.new_module("right", {"both": lambda: 5})
        left.import_module(below)
        root.import_module(left)
        root.import_module(right)
        assert root.imports == (left, right)
        assert root.get_function("who", query_imports=True)() == 1
        assert root.get_function("deep", query_imports=True)() == 3
        assert root.get_function("both", query_imports=True)() == 4
        assert root.implements_function("deep", query_imports=True)
        assert not root.implements_function("deep")
        with pytest.raises(AttributeError, match="no function `deep`"):
            root.get_function("deep")
        root.clear_imports()
        assert not root.imports
        assert not root.implements_function("deep", query_imports=True)

    def test_cycles_are_refused(self) -> None:
        a, b, c = (_core.new_module(name, {}) for name in "abc")
        a.import_module(b)
        b.import_module(c)
        for module, other in ((c, a), (a, a), (b, a)):
            with pytest.raises(RuntimeError, match="cyclic import"):
                module.import_module(other)
        a.import_module(c)
        assert a.imports == (b, c)

    def test_a_chain_of_diamonds_is_walked_once(self) -> None:
        """There are 2**40 ways from its first module to its last one."""
        first = last = _core.new_module("top", {})
        for _ in range(40):
            left, right, below = (_core.new_module(name, {}) for name in ("left", "right", "below"))
            for side in (left, right):
                last.import_module(side)
                side.import_module(below)
            last = below
        assert not first.implements_function("deep", query_imports=True)
        assert first.get_function_doc("deep", query_imports=True) is None
        last.import_module(_core.new_module("end", {"deep": lambda: 7}))
        assert first.get_function("deep", query_imports=True)() == 7
        with pytest.raises(RuntimeError, match="cyclic import"):
            last.import_module(first)

    def test_a_long_chain_needs_no_stack(self) -> None:
        chain = [_core.new_module("link", {})]
        for _ in range(20_000):
            chain.append(_core.new_module("link", {}))
            chain[-2].import_module(chain[-1])
        assert not chain[0].implements_function("deep", query_imports=True)
        chain.reverse()

    def test_the_end_of_a_long_chain_needs_little_stack(self, compile_kernels: Compile) -> None:
        """A chain of modules, and one of arrays, in a thread whose stack is 256 KiB."""
        kernels = ffi.load_library(compile_kernels("nest", NEST))

        def make_and_end() -> None:
            first = last = _core.new_module("link", {})
            for _ in range(100_000):
                last.import_module(imported := _core.new_module("link", {}))
                last = imported
            ended = weakref.ref(last)
            del last, imported, first
            results.append(ended() is None)
            results.append(kernels["nest"](100_000, "inside"))

        results: list[object] = []
        before = threading.stack_size(256 * 1024)
        thread = threading.Thread(target=make_and_end)
        thread.start()
        threading.stack_size(before)
        thread.join()
        assert results == [True, 100_000]

    def test_only_modules_are_imported(self) -> None:
        with pytest.raises(TypeError, match="expected a Module, got `int`"):
            _core.new_module("a", {}).import_module(1)  # type: ignore[arg-type]

    def test_a_module_is_one_object(self, kernels: ffi.Module) -> None:
        module = _core.new_module("one", {"f": lambda: 1})
        assert kernels["call"](lambda m: m, module) is module
        parent = _core.new_module("parent", {})
        parent.import_module(module)
        gone = weakref.ref(module)
        del module
        gc.collect()
        assert gone() is None
        assert parent.imports[0].f() == 1


class TestDescriptions:
    def test_metadata_and_docs(self, compile_kernels: Compile) -> None:
        module = ffi.load_library(compile_kernels("described", DESCRIBED))
        assert module.get_function_metadata("f") == {"type_schema": "{}"}
        assert module.get_function_doc("f") == "What f does."
        assert module.get_function_doc("main") is None
        assert module.get_function_metadata("none") is None
        assert module.function_names() == ["f", "main"]
        parent = _core.new_module("parent", {})
        parent.import_module(module)
        assert parent.get_function_doc("f") is None
        assert parent.get_function_doc("f", query_imports=True) == "What f does."

    def test_a_module_is_called_by_its_main(self, compile_kernels: Compile) -> None:
        assert ffi.load_library(compile_kernels("described", DESCRIBED))(5) == 5

    def test_kind_and_properties(self, kernels: ffi.Module, note_loader: str) -> None:
        assert (kernels.kind, kernels.property_mask, kernels.inspect_source()) == ("library", 2, "")
        assert (note(1).kind, note(1).property_mask) == ("note", 3)

    def test_source(self) -> None:
        module = _core.new_module("text", {}, source=lambda form: f"source as {form or 'text'}")
        assert module.inspect_source() == "source as text"
        assert module.inspect_source("ptx") == "source as ptx"


class TestLoaders:
    def test_bytes_and_back(self, note_loader: str) -> None:
        module = note(42)
        assert module.who() == 42
        assert _core.load_module_from_bytes("note", module.save_to_bytes()).who() == 42

    def test_file_by_its_ending(self, note_loader: str, tmp_path: Path) -> None:
        (tmp_path / "a.note").write_bytes(b"5")
        module = ffi.load_library(tmp_path / "a.note")
        assert (module.kind, module.who()) == ("note", 5)

    def test_what_a_loader_raises_arrives(self, note_loader: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            _core.load_module_from_bytes("note", b"x")
        with pytest.raises(FileNotFoundError):
            ffi.load_library(tmp_path / "none.note")

    def test_a_loader_that_returns_no_module(self) -> None:
        _core.register_loader("wrong", lambda data: 3)  # type: ignore[type-var]
        with pytest.raises(TypeError, match="returned a `int`, not a module"):
            _core.load_module_from_bytes("wrong", b"")
        ffi.remove_global_func("ffi.Module.load_from_bytes.wrong")

    def test_unknown_kind(self) -> None:
        with pytest.raises(ArtifactError, match="no loader for modules of kind `cubin`"):
            _core.load_module_from_bytes("cubin", b"")

    def test_registered_twice(self, note_loader: str) -> None:
        with pytest.raises(ValueError, match="registered already"):
            _core.register_loader("note", lambda data: data)

    def test_what_cannot_be_saved(self, kernels: ffi.Module) -> None:
        with pytest.raises(RuntimeError, match="cannot be saved: copy the file that it was loaded from"):
            kernels.save_to_bytes()

    def test_functions_must_be_callable(self) -> None:
        with pytest.raises(TypeError, match="expected a callable, got `int`"):
            _core.new_module("bad", {"f": 1})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="is a str"):
            _core.new_module("bad", {1: print})  # type: ignore[dict-item]


class TestEmbedded:
    """`__tvm_ffi__library_bin`: modules that are embedded in the library."""

    def test_a_tree(self, embedding: Any, note_loader: str) -> None:
        data = bin_of([0, 2, 3, 3], [1, 2, 2], [("_lib", None), ("note", b"8"), ("note", b"9")])
        root = embedding(data)
        assert (root.kind, root.who(), [m.who() for m in root.imports]) == ("library", 7, [8, 9])
        assert root.imports[0].imports == (root.imports[1],)
        assert root.get_function("note", query_imports=True)() == 8

    def test_the_library_may_be_below(self, embedding: Any, note_loader: str) -> None:
        root = embedding(bin_of([0, 1, 1], [1], [("note", b"1"), ("_lib", None)]))
        assert (root.kind, root.who(), root.imports[0].who()) == ("note", 1, 7)

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"\1", "cut off"),
            (struct.pack("<Q", 2**63), "longer than its symbol"),
            (struct.pack("<QQ", 8, 2**61), "list is longer"),
            (bin_of([0], [], []), "number of modules"),
            (bin_of([0, 0], [], [("note", b"1")])[:-1], "longer than its symbol"),
            (bin_of([0, 5], [], [("_lib", None)]), "children are not in the list"),
            (bin_of([1, 0], [0], [("_lib", None)]), "children are not in the list"),
            (bin_of([0, 1], [9], [("_lib", None)]), "child is not a module"),
            (bin_of([0, 0], [], [("cubin", b"")]), "no loader for modules of kind `cubin`"),
            (bin_of([0, 1], [0], [("_lib", None)]), "cyclic import"),
        ],
    )
    def test_hostile_bytes(self, embedding: Any, data: bytes, text: str) -> None:
        with pytest.raises((ArtifactError, RuntimeError), match=text):
            embedding(data)


class TestContext:
    def test_lookup_in_imports_then_globally(self, context: ffi.Module) -> None:
        helper = _core.new_module("helper", {"twice": lambda x: 2 * x})
        context.import_module(helper)
        assert [context.call_import("twice", i) for i in range(3)] == [0, 2, 4]
        ffi.register_global_func("context.thrice", lambda x: 3 * x)
        assert context.call_import("context.thrice", 2) == 6
        ffi.remove_global_func("context.thrice")
        assert context.call_import("context.thrice", 2) == 6, "the module keeps what it found"
        with pytest.raises(RuntimeError, match=r"function `no\.such`"):
            context.call_import("no.such")
        context.clear_imports()

    def test_a_context_of_somebody_else(self, context: ffi.Module) -> None:
        with pytest.raises(RuntimeError, match="not loaded by this runtime"):
            context.wrong_context()

    def test_context_symbols_fill_new_libraries(self, context: ffi.Module, compile_kernels: Compile) -> None:
        assert context.context() == 0
        context.register_context(1234)
        later = ffi.load_library(compile_kernels("later", CONTEXT))
        assert later.context() == 1234

    def test_system_library(self, context: ffi.Module) -> None:
        system = _core.system_lib("sys_")
        assert system is _core.system_lib("sys_")
        assert not system.implements_function("late")
        context.register_system("__tvm_ffi_sys_late")
        context.register_system("__tvm_ffi_plain_late")
        assert system.late() == context.context()
        assert _core.system_lib().plain_late() == context.context()
        assert not _core.system_lib().implements_function("late")

    def test_functions_of_a_host(self, context: ffi.Module) -> None:
        context.register_host("PyErr_CheckSignals")
        with pytest.raises(ValueError, match="`system` is not a function of the host"):
            context.register_host("system")


class TestRefusals:
    def test_another_version_of_the_abi(self, compile_kernels: Compile) -> None:
        good = SOURCE % 1 + "FARCALL_SAY_ABI_VERSION;\n"
        assert ffi.load_library(compile_kernels("version1", good)).who() == 1
        later = SOURCE % 1 + "FARCALL_VISIBLE const unsigned __farcall_abi_version;\n"
        later += "const unsigned __farcall_abi_version = 9;\n"
        with pytest.raises(ImportError, match="version 9 of the ABI, and this farcall has version 1"):
            ffi.load_library(compile_kernels("version9", later))

    def test_a_refusal_after_a_second_way_to_load(self, compile_kernels: Compile) -> None:
        """The linker alone does not find TVMFFI* functions. That is not why the library is refused."""
        late = DESCRIBED + "FARCALL_VISIBLE const unsigned __farcall_abi_version = 9;\n"
        with pytest.raises(ImportError, match="version 9 of the ABI, and this farcall has version 1"):
            ffi.load_library(compile_kernels("importing_version9", late))

    def test_constructors_that_register_in_vain(self, compile_kernels: Compile) -> None:
        """In the C++ runtime this error ends the process; in farcall the load fails, the next one works."""
        source = """
#include <farcall/c_api.h>
static int f(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  (void)self, (void)args, (void)n, (void)result;
  return 0;
}
__attribute__((constructor)) static void begin(void) {
  TVMFFIByteArray name = {"modules.taken", 13};
  TVMFFIObjectHandle function;
  if (TVMFFIFunctionCreate(NULL, f, NULL, &function) != 0) __builtin_abort();
  if (TVMFFIFunctionSetGlobal(&name, function, 0) != 0) __builtin_abort();
  TVMFFIObjectDecRef(function);
}
"""
        paths = [compile_kernels("registering", source), compile_kernels("after", SOURCE % 2)]
        # A process of its own: where the real tvm_ffi was imported, its registry is the one that they meet.
        subprocess.run([sys.executable, "-c", REGISTERS_IN_VAIN, *map(str, paths)], check=True)

    def test_constructors_that_look_for_attributes(self, compile_kernels: Compile) -> None:
        """With the C++ runtime a missing column ends the process, so farcall provides an empty one."""
        paths = [compile_kernels("looking", LOOKS_FOR_A_COLUMN)]
        subprocess.run([sys.executable, "-c", FINDS_A_COLUMN, *map(str, paths)], check=True)


LOOKS_FOR_A_COLUMN = """
#include <farcall/c_api.h>
static const TVMFFITypeAttrColumn* look(const char* name) {
  TVMFFIByteArray text = {name, __builtin_strlen(name)};
  return TVMFFIGetTypeAttrColumn(&text);
}
static const TVMFFITypeAttrColumn* early;
__attribute__((constructor)) static void begin(void) { early = look("modules.early"); }
FARCALL_KERNEL(found_early) {
  int same = early && early->size == 0 && early == look("modules.early");
  *result = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = same};
  return 0;
}
FARCALL_KERNEL(found) {
  *result = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = look(args[0].v_c_str) != 0};
  return 0;
}
"""
FINDS_A_COLUMN = """
import sys
import farcall.ffi as ffi
library = ffi.load_library(sys.argv[1])
assert library.found_early()
assert not library.found("modules.late")
"""


REGISTERS_IN_VAIN = """
import sys
import farcall.ffi as ffi
ffi.register_global_func("modules.taken", lambda: 1)
try:
    ffi.load_library(sys.argv[1])
except ValueError as error:
    assert "`modules.taken` is registered already" in str(error), error
else:
    raise AssertionError("it was loaded")
assert ffi.get_global_func("modules.taken")() == 1
ffi.remove_global_func("modules.taken")
assert ffi.load_library(sys.argv[2]).who() == 2
"""


@given(st.binary(max_size=40), st.integers(0, 200), st.binary(max_size=9))
def test_any_bytes_give_a_module_or_an_error(head: bytes, cut: int, patch: bytes) -> None:
    """The parser alone, on bytes that are almost valid."""
    good = bin_of([0, 1, 1], [1], [("_lib", None), ("_lib", None)])
    at = cut % len(good)
    for data in (head, good[:at], good[:at] + patch + good[at + len(patch) :]):
        with contextlib.suppress(ArtifactError, RuntimeError):
            _core._module_from_bin(data)
