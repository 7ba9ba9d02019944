"""Libraries of ``tvm_ffi.cpp.load_inline`` that import C++ names: without that package, and beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..programs import hiding_torch, output_of
from ..tree import ROOT

HERE = Path(__file__).parent
BUILD = """
import sys, tvm_ffi.cpp
print(tvm_ffi.cpp.build_inline("objects", cpp_sources=open(sys.argv[1]).read(), functions=sys.argv[3:],
                               extra_cflags=["-O0"], build_directory=sys.argv[2]))
"""


def build(source: Path, folder: Path) -> Path:
    """All functions that begin at the margin are exported."""
    names = re.findall(r"^[a-z][\w:<>]* (\w+)\([^;\n]*\) \{", source.read_text(), re.MULTILINE)
    return Path(output_of("-c", BUILD, source, folder, *names, env=hiding_torch()).splitlines()[-1])


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tvm_ffi", reason="it builds the kernels")
    return build(HERE / "tvm_objects.cc", tmp_path_factory.mktemp("tvm"))


@pytest.mark.parametrize("mode", ["alone", "ours first", "theirs first"])
def test_objects_of_tvm_ffi(library: Path, mode: str) -> None:
    """The cases are in tvm_object_cases.py; each mode is a process of its own."""
    env = hiding_torch() | {"FARCALL_TEST_MODE": mode, "FARCALL_TEST_LIBRARY": str(library)}
    cases = HERE / "tvm_object_cases.py"
    printed = output_of("-m", "pytest", "-v", "-p", "no:cacheprovider", cases, env=env, cwd=ROOT)
    assert re.search(r"\b[3-9]\d passed", printed), printed


def test_it_imports_cxx_names(library: Path) -> None:
    """Without this, the modes above would prove nothing."""
    from farcall.library._elf import Elf

    symbols = Elf(library.read_bytes()).dynamic_symbols()
    wanted = {symbol.name for symbol in symbols if not symbol.defined and "3tvm3ffi" in symbol.name}
    assert {"_ZTVN3tvm3ffi9ModuleObjE", "_ZTIN3tvm3ffi9ModuleObjE"} < wanted
    assert len(wanted) > 15
