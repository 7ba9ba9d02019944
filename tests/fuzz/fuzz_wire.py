"""The packet codec (include/farcall/wire.h), compiled for this: ``wire_target.c`` has the oracle."""

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


def _compile(folder: Path, *, covered: bool) -> Path:
    """Two steps: a compiler that is told of coverage at the link would add a fuzzer of its own."""
    from ..wire.building import FLAGS, compiler

    zig = [sys.executable, "-m", "ziglang", "cc"]
    command = zig if covered else compiler()
    flags = [_COVERAGE, "-fno-sanitize=undefined"] if covered else []
    thing, library = folder / "wire.o", folder / "libwire.so"
    source = str(HERE / "wire_target.c")
    subprocess.run([*command, *FLAGS, *flags, "-g", "-fPIC", "-c", source, "-o", str(thing)], check=True)
    subprocess.run([*command, "-shared", str(thing), "-o", str(library)], check=True)
    return library


def _shows_coverage() -> bool:
    """Whether atheris runs us, and its coverage can be had by C code: make its symbols visible."""
    core = sys.modules.get("atheris.core_with_libfuzzer")
    if core is None or importlib.util.find_spec("ziglang") is None:
        return False
    ctypes.CDLL(core.__file__, mode=ctypes.RTLD_GLOBAL | os.RTLD_NOLOAD)
    return True


@functools.cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(str(_compile(Path(folder), covered=_shows_coverage())))


def one_input(data: bytes) -> None:
    """Whole and in pieces (the first byte says how) the bytes give the same events; else it aborts."""
    _library().LLVMFuzzerTestOneInput(data, ctypes.c_size_t(len(data)))


if __name__ == "__main__":
    harness.main("wire", one_input)
