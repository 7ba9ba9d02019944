"""Kernels that the real ``tvm_ffi.cpp.load_inline`` built, without that package and beside it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ..conftest import ROOT
from ..programs import hiding_torch, output_of

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
    """The cases are in tvm_cases.py; each mode is a process of its own."""
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
