"""The function that bench_rpc's servers export: ``bench.nop``, in C, which does nothing."""

from __future__ import annotations

import os
from pathlib import Path

import farcall as fc
from farcall.toolchain import find_compiler

LIBRARY = "FARCALL_BENCH_RPC"  # environment variable: the library's path, for the server's workers
NOP = "#include <farcall/c_api.h>\nFARCALL_KERNEL(nop) { return 0; }\n"


def build(folder: Path) -> None:
    """Compile the library, and set its path in the environment."""
    (folder / "nop.c").write_text(NOP)
    flags = ["-O2", "-shared", "-fPIC", f"-I{fc.ffi.include_dir()}"]
    find_compiler().run([*flags, "nop.c", "-o", "nop.so"], folder, "the benchmark's kernel")
    os.environ[LIBRARY] = str(folder / "nop.so")


def register() -> None:
    """The workers' ``--init``."""
    fc.register_global_func("bench.nop", fc.ffi.load_library(os.environ[LIBRARY])["nop"])
