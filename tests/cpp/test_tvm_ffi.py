"""The same library in the real tvm_ffi: alone, and beside farcall in either order."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from farcall.cpp import build_inline
from farcall.ffi import load_library

from ..programs import hiding_torch, output_of

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("tvm_ffi") and importlib.util.find_spec("torch")),
    reason="apache-tvm-ffi or torch is not installed",
)


@pytest.mark.parametrize("order", ["alone", "before", "after"])
def test_in_tvm_ffi(library: str, order: str) -> None:
    script = Path(__file__).with_name("tvm_ffi_checks.py")
    arguments = [library] if order == "alone" else [library, order]
    assert output_of(script, *arguments).strip() == "all passed"


SYSTEM = """
int64_t seven() { return 7; }
FARCALL_EXPORT(tests_cpp_seven, seven);
FARCALL_SYSTEM_LIB(tests_cpp_seven);
"""


def test_a_system_library() -> None:
    path = build_inline("system", cpp_sources=SYSTEM, extra_cflags=["-O0"])
    assert load_library(path)["tests_cpp_seven"]() == 7
    code = f"import tvm_ffi as r; keep = r.load_module({path!r}); print(r.system_lib()['tests_cpp_seven']())"
    assert output_of("-c", code, env=hiding_torch()).strip() == "7"


def test_a_library_imports_nothing_but_the_c_functions(library: str) -> None:
    from farcall.library._elf import Elf

    elf = Elf(Path(library).read_bytes())
    wanted = {
        symbol.name for symbol in elf.dynamic_symbols() if not symbol.defined and "TVMFFI" in symbol.name
    }
    assert wanted
    assert any(symbol.name == "__farcall_abi_version" and symbol.defined for symbol in elf.dynamic_symbols())
    assert all(name.startswith("TVMFFI") for name in wanted)  # no C++ name of a runtime
    assert b"libtvm_ffi" not in bytes(elf.data)
