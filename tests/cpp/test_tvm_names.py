"""What the real TVM FFI runtime offers to libraries, and farcall: the lists differ by what is named here.

Each name that is left out has a reason, and each that is not is there.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from farcall.library._elf import Elf

from ..programs import hiding_torch, output_of
from ..tree import CORE, CXX

CXX_LEFT_OUT = {
    # orders of whole values, and copies of them: kernels take and give values, and Python does this by itself
    "RecursiveLt": "orders of values",
    "RecursiveLe": "orders of values",
    "RecursiveGt": "orders of values",
    "RecursiveGe": "orders of values",
    "DeepCopy": "copies of object graphs",
    # graphs of compiler objects: farcall has a file format of its own
    "ToJSONGraph": "files of compiler objects",
    "FromJSONGraph": "files of compiler objects",
    "GetFirstMismatch": "where two compiler objects differ",
    "FindAccessPaths": "where a compiler object went wrong",
    # what C++ keeps beside a class, made anew in each library
    "mutex_": "a variable of their inline code",
    "tindex": "a variable of their inline code",
}

GLOBALS_LEFT_OUT = {
    **{f"ffi.Recursive{order}": "orders of values" for order in ("Lt", "Le", "Gt", "Ge")},
    "ffi.DeepCopy": "copies of object graphs",
    "ffi.ToJSONGraph": "files of compiler objects",
    "ffi.FromJSONGraph": "files of compiler objects",
    "ffi.ToJSONGraphString": "files of compiler objects",
    "ffi.FromJSONGraphString": "files of compiler objects",
    "ffi.GetFirstStructuralMismatch": "where two compiler objects differ",
    "ffi.VisitErrorContext.FindAccessPaths": "where a compiler object went wrong",
    "ffi.VisitInterrupt": "passes over compiler objects",
    "ffi.StructuralKey": "compiler objects as keys",
    "ffi.StructuralKeyEqual": "compiler objects as keys",
    "ffi.MakeFieldGetter": "classes in Python with fields in C++",
    "ffi.MakeFieldSetter": "classes in Python with fields in C++",
    "ffi.MakeObjectFromPackedArgs": "classes in Python with fields in C++",
    "ffi.GetKwargsObject": "classes in Python with fields in C++",
    "ffi._PyClassRegisterTypeAttrColumns": "classes in Python with fields in C++",
    "ffi._RegisterFFIInit": "classes in Python with fields in C++",
    "ffi.ContainerFindFirstNonCPUDevice": "for their conversion of arguments only",
    "ffi.FunctionFromExternC": "for their class Function only",
}
PASSES = ("ffi.StructuralVisit", "ffi.StructuralMutat", "ffi.StructuralMap", "ffi.StructuralWalk")

tvm_ffi = importlib.util.find_spec("tvm_ffi")
pytestmark = pytest.mark.skipif(tvm_ffi is None, reason="apache-tvm-ffi is not installed")


def exported(path: Path) -> set[str]:
    return {symbol.name for symbol in Elf(path.read_bytes()).dynamic_symbols() if symbol.defined}


@pytest.fixture(scope="module")
def theirs() -> set[str]:
    assert tvm_ffi is not None
    assert tvm_ffi.origin is not None
    return exported(Path(tvm_ffi.origin).parent / "lib" / "libtvm_ffi.so")


def test_all_c_functions_are_there(theirs: set[str]) -> None:
    wanted = {name for name in theirs if name.startswith("TVMFFI")}
    assert len(wanted) >= 50
    assert wanted <= exported(CORE)


def test_nothing_else_of_that_name_is_exported(theirs: set[str]) -> None:
    assert {name for name in exported(CORE) if name.startswith("TVMFFI")} <= theirs


def test_cxx_names_are_there_or_left_out(theirs: set[str]) -> None:
    wanted = {name for name in theirs if name.startswith(("_ZN3tvm3ffi", "_ZZN3tvm3ffi"))}
    assert len(wanted) > 20
    missing = wanted - exported(CXX)
    unexplained = {name for name in missing if not any(left in name for left in CXX_LEFT_OUT)}
    assert not unexplained
    assert all(any(left in name for name in missing) for left in CXX_LEFT_OUT), "the list only shrinks"


def test_the_class_that_libraries_derive_from_is_there() -> None:
    ours = exported(CXX)
    assert {"_ZTVN3tvm3ffi9ModuleObjE", "_ZTIN3tvm3ffi9ModuleObjE"} <= ours


THEIR_GLOBALS = """
import tvm_ffi
print(*tvm_ffi.registry.list_global_func_names(), sep="\\n")
"""
OUR_GLOBALS = """
import sys
sys.modules["tvm_ffi"] = None
from farcall.ffi import load_library
names = load_library(sys.argv[1]).names()
print(*(names(i) for i in range(names(-1))), sep="\\n")
"""
NAMES = """
using farcall::Function;
Function names() {
  return Function::GetGlobalRequired("ffi.FunctionListGlobalNamesFunctor")().cast<Function>();
}
"""


def run(code: str, *arguments: str) -> set[str]:
    return set(output_of("-c", code, *arguments, env=hiding_torch()).split())


def test_global_functions_are_there_or_left_out() -> None:
    from farcall.cpp import build_inline

    wanted = {name for name in run(THEIR_GLOBALS) if not name.startswith("testing.")}
    ours = run(OUR_GLOBALS, build_inline("names", cpp_sources=NAMES, functions="names", extra_cflags=["-O0"]))
    missing = {name for name in wanted - ours if not name.startswith(PASSES)}
    assert missing == set(GLOBALS_LEFT_OUT)
