"""The packet codec (include/farcall/wire.h), compiled for fuzzing; ``wire_target.c`` has the oracle."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from . import harness

HERE = Path(__file__).parent
_COVERAGE = "-fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp"


def coverage_flags() -> tuple[list[str], list[str]]:
    """The compiler of C targets, and its flags by which atheris sees their coverage, where it runs them."""
    from ..wire.building import compiler

    if not _shows_coverage():
        return compiler(), []
    return [sys.executable, "-m", "ziglang", "cc"], [_COVERAGE, "-fno-sanitize=undefined"]


def _compile(folder: Path) -> Path:
    """Compile and link in two steps: with the coverage flags at the link, clang would add its own fuzzer."""
    from ..wire.building import FLAGS

    command, flags = coverage_flags()
    thing, library = folder / "wire.o", folder / "libwire.so"
    source = str(HERE / "wire_target.c")
    subprocess.run([*command, *FLAGS, *flags, "-g", "-fPIC", "-c", source, "-o", str(thing)], check=True)
    subprocess.run([*command, "-shared", str(thing), "-o", str(library)], check=True)
    return library


def _shows_coverage() -> bool:
    """Whether atheris runs this target and C code can use its coverage; makes its symbols visible."""
    core = sys.modules.get("atheris.core_with_libfuzzer")
    if core is None or importlib.util.find_spec("ziglang") is None:
        return False
    ctypes.CDLL(core.__file__, mode=ctypes.RTLD_GLOBAL | os.RTLD_NOLOAD)
    return True


@functools.cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(str(_compile(Path(folder))))


def one_input(data: bytes) -> None:
    """The bytes give the same events whole and in pieces (the first byte chooses them); else it aborts."""
    _library().LLVMFuzzerTestOneInput(data, ctypes.c_size_t(len(data)))


if __name__ == "__main__":
    harness.main("wire", one_input)
