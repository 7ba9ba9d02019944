"""The time to compile a kernel of one line, with our header and with the rival's."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from pathlib import Path

from tvm_ffi.libinfo import include_paths

import farcall.ffi
from bench.harness import Row, spread

ROUNDS = 9
FUNCTION = "static int64_t add(int64_t a, int64_t b) { return a + b; }\n"
OURS = f"#include <farcall/kernel.hpp>\n{FUNCTION}FARCALL_EXPORT(add, add);\n"
THEIRS = f"#include <tvm/ffi/tvm_ffi.h>\n{FUNCTION}TVM_FFI_DLL_EXPORT_TYPED_FUNC(add, add);\n"


def run() -> list[Row]:
    """A row for each level of optimisation, in processor time of the compiler's process."""
    return [_row(level) for level in ("-O0", "-O2")]


def _row(level: str) -> Row:
    theirs_at = [f"-I{path}" for path in include_paths()]
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            ours.append(_compile(Path(folder), OURS, [level, f"-I{farcall.ffi.include_dir()}"]))
            theirs.append(_compile(Path(folder), THEIRS, [level, *theirs_at]))
    mine, rival = min(ours), min(theirs)
    return Row(f"compile 1 line, g++ {level}", mine, spread(ours), "tvm-ffi", rival, reach_ratio=0.75)


def _compile(folder: Path, source: str, flags: list[str]) -> float:
    """Seconds of processor time."""
    (folder / "one.cpp").write_text(source)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["g++", "-std=c++17", "-fPIC", *flags, "-c", "one.cpp", "-o", "one.o"]
    subprocess.run(command, cwd=folder, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
