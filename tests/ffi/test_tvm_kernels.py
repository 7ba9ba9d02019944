"""Kernels that the real ``tvm_ffi.cpp.load_inline`` built, without that package and beside it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from farcall import _core

from ..programs import hiding_torch, output_of
from ..tree import ROOT

HERE = Path(__file__).parent
BUILD = """
import sys, tvm_ffi.cpp
print(tvm_ffi.cpp.build_inline("kernels", cpp_sources=open(sys.argv[1]).read(), functions=sys.argv[3:],
                               extra_cflags=["-O1"], build_directory=sys.argv[2]))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tvm_ffi", reason="it builds the kernels")
    source = HERE / "tvm_kernels.cc"
    names = re.findall(r"^\w[\w:<>, ]* (\w+)\([^()]*\) \{", source.read_text(), re.MULTILINE)
    folder = tmp_path_factory.mktemp("tvm")
    wanted = sorted(set(names) - {"floats"})
    printed = output_of("-c", BUILD, source, folder, *wanted, env=hiding_torch())
    return Path(printed.splitlines()[-1])


@pytest.mark.parametrize("mode", ["alone", "ours first", "theirs first"])
def test_kernels_of_tvm_ffi(library: Path, mode: str) -> None:
    """The cases are in tvm_cases.py; each mode runs in a separate process."""
    env = {
        **os.environ,
        "FARCALL_TEST_MODE": mode,
        "FARCALL_TEST_LIBRARY": str(library),
        "FARCALL_BACKTRACE": "1",
    }
    cases = HERE / "tvm_cases.py"
    printed = output_of("-m", "pytest", "-v", "-p", "no:cacheprovider", cases, env=env, cwd=ROOT)
    assert re.search(r"\b\d{2,} passed", printed), printed


def test_it_asks_for_a_library_that_farcall_is(library: Path) -> None:
    """Without this, the modes above would prove nothing."""
    assert b"libtvm_ffi.so\0" in library.read_bytes()


COLUMNS = """
import ctypes, sys

class Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]

find = ctypes.CDLL(sys.argv[1]).TVMFFIGetTypeAttrColumn
find.restype = ctypes.c_void_p
print(*(name for name in sys.argv[2:] if find(ctypes.byref(Bytes(name.encode(), len(name))))))
"""
TESTING = """
import sys
import farcall.ffi as ffi
ffi.load_library(sys.argv[1])
add_one, echo = (ffi.get_global_func(f"testing.{name}") for name in ("add_one", "echo"))
assert (add_one(4), echo((1, "x"))) == (5, (1, "x"))
assert "testing.TestEnumVariant" in repr(ffi.get_global_func("testing.enum_variant_get")("Alpha"))
print("done")
"""


def tvm_library(name: str) -> Path:
    return Path(pytest.importorskip("tvm_ffi").__file__).parent / "lib" / name


def test_the_columns_of_attributes_are_there_from_the_start() -> None:
    theirs = tvm_library("libtvm_ffi.so")
    names = sorted(set(re.findall(r"__[a-z_]+__", theirs.read_bytes().decode("latin-1"))))
    found = output_of("-c", COLUMNS, theirs, *names).split()
    assert "__ffi_enum__" in found
    assert output_of("-c", COLUMNS, _core.__file__, *names).split() == found


def test_a_library_whose_constructors_use_attributes() -> None:
    """TVM FFI's own library: its static enumerations and columns used to end the process."""
    assert output_of("-c", TESTING, tvm_library("libtvm_ffi_testing.so")) == "done\n"
