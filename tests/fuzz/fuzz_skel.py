"""Hostile calls against a generated skel; ``skel_target.c`` has the oracle."""

from __future__ import annotations

import ctypes
import functools
import shutil
import tempfile
from pathlib import Path

from . import harness

HERE = Path(__file__).parent


def build(folder: Path, *flags: str, output: str) -> Path:
    """Compile the skel of ``everything.idl`` and the target."""
    from farcall.idl import compile as compile_idl

    from ..idl.building import compiler, run_compiler

    shutil.copy(HERE.parent / "idl/everything.idl", folder)
    (folder / "base.c").write_text(
        '#include "everything.h"\n'
        "int32_t base_open(const char* u, fc_remote_handle* h) { *h = 0; return !u; }\n"
        "int32_t base_close(fc_remote_handle h) { return !h; }\n"
        "int32_t base_reset(fc_remote_handle h) { return !h; }\n"
    )
    compile_idl(folder / "everything.idl", folder, stubs=())
    sources = (HERE / "skel_target.c", folder / "everything_skel.c", folder / "base.c")
    run_compiler(
        compiler(), "-D_GNU_SOURCE", "-g", "-O1", *flags, *sources, "-o", folder / output, folder=folder
    )
    return folder / output


@functools.cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(str(build(Path(folder), "-fPIC", "-shared", output="libskel.so")))


def one_input(data: bytes) -> None:
    """Any call returns a status. One that touches memory which is not its own ends the process."""
    _library().LLVMFuzzerTestOneInput(data, ctypes.c_size_t(len(data)))


if __name__ == "__main__":
    harness.main("skel", one_input)
