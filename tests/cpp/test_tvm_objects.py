"""Libraries of ``tvm_ffi.cpp.load_inline`` that import C++ names: without that package, and beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = """
import sys, tvm_ffi.cpp
print(tvm_ffi.cpp.build_inline("objects", cpp_sources=open(sys.argv[1]).read(), functions=sys.argv[3:],
                               extra_cflags=["-O0"], build_directory=sys.argv[2]))
"""


def build(source: Path, folder: Path) -> Path:
    """All functions that begin at the margin are exported."""
    names = re.findall(r"^[a-z][\w:<>]* (\w+)\([^;\n]*\) \{", source.read_text(), re.MULTILINE)
    command = [sys.executable, "-c", BUILD, source, folder, *names]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tvm_ffi", reason="it builds the kernels")
    return build(HERE / "tvm_objects.cc", tmp_path_factory.mktemp("tvm"))


@pytest.mark.parametrize("mode", ["alone", "ours first", "theirs first"])
def test_objects_of_tvm_ffi(library: Path, mode: str) -> None:
    """The cases are in tvm_object_cases.py; each mode is a process of its own."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        str(HERE / "tvm_object_cases.py"),
    ]
    env = {**os.environ, "FARCALL_TEST_MODE": mode, "FARCALL_TEST_LIBRARY": str(library)}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=300, env=env, cwd=HERE.parents[1]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b[3-9]\d passed", done.stdout), done.stdout


def test_it_imports_cxx_names(library: Path) -> None:
    """Without this, the modes above would prove nothing."""
    from farcall.abi.elf import Elf

    symbols = Elf(library.read_bytes()).dynamic_symbols()
    wanted = {symbol.name for symbol in symbols if not symbol.defined and "3tvm3ffi" in symbol.name}
    assert {"_ZTVN3tvm3ffi9ModuleObjE", "_ZTIN3tvm3ffi9ModuleObjE"} < wanted
    assert len(wanted) > 15
