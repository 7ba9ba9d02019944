"""The reader of shared objects (native/runtime/image); ``image_target.c`` has the oracle."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

from . import harness
from .fuzz_wire import coverage_flags

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native"
SOURCES = [
    HERE / "image_target.c",
    *(NATIVE / f"runtime/image/{name}.c" for name in ("elf", "dynamic", "machine")),
]
FLAGS = [
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Werror",
    f"-I{NATIVE}",
    f"-I{HERE.parents[1] / 'include'}",
]


def _compile(folder: Path) -> Path:
    """Compile and link in two steps, for the reason that fuzz_wire gives."""
    command, coverage = coverage_flags()
    objects = [folder / f"{source.stem}.o" for source in SOURCES]
    for source, thing in zip(SOURCES, objects, strict=True):
        subprocess.run([*command, *FLAGS, *coverage, "-g", "-fPIC", "-c", source, "-o", thing], check=True)
    library = folder / "libimage.so"
    subprocess.run([*command, "-shared", *objects, "-o", library], check=True)
    return library


@functools.cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(str(_compile(Path(folder))))


def one_input(data: bytes) -> None:
    """The bytes are refused, or loaded without touching anything else; otherwise it aborts."""
    _library().LLVMFuzzerTestOneInput(data, ctypes.c_size_t(len(data)))


if __name__ == "__main__":
    harness.main("image", one_input)
