"""The same library in the real tvm_ffi: alone, and beside farcall in either order."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("tvm_ffi") and importlib.util.find_spec("torch")),
    reason="apache-tvm-ffi or torch is not installed",
)


@pytest.mark.parametrize("order", ["alone", "before", "after"])
def test_in_tvm_ffi(library: str, order: str) -> None:
    script = Path(__file__).with_name("tvm_ffi_checks.py")
    arguments = [library] if order == "alone" else [library, order]
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.strip() == "all passed", done.stderr[-4000:]


def test_a_library_imports_nothing_but_the_c_functions(library: str) -> None:
    from farcall.abi.elf import Elf

    elf = Elf(Path(library).read_bytes())
    wanted = {
        symbol.name for symbol in elf.dynamic_symbols() if not symbol.defined and "TVMFFI" in symbol.name
    }
    assert wanted
    assert all(name.startswith("TVMFFI") for name in wanted)  # no C++ name of a runtime
    assert b"libtvm_ffi" not in bytes(elf.data)
