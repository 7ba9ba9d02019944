"""Importing farcall, and loading a library: a program's costs before its first call."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tvm_ffi
import tvm_ffi.cpp

import farcall
from bench.bench_call import build_kernels
from bench.harness import Row, quieter_half, rows, spread
from farcall import cpp

ROUNDS = 61


def run() -> list[Row]:
    """Rows for the import, for a library that is new or mapped already, and for kernels built before."""
    return [_import(), *_load(), *_inline()]


def _import() -> Row:
    """Each import in a new process, without the interpreter's start, and without numpy and torch."""
    script = (
        "import sys, time; start = time.perf_counter(); import farcall, farcall.ffi; "
        "took = time.perf_counter() - start; assert not {'numpy', 'torch'} & set(sys.modules); print(took)"
    )
    command = [sys.executable, "-c", script]
    runs = [subprocess.run(command, capture_output=True, check=True) for _ in range(15)]
    times = [float(done.stdout) for done in runs]
    return Row("import farcall", statistics.median(times), spread(times), reach_seconds=0.040)


def _load() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        kernels = build_kernels(Path(folder), "kernels")
        copies = [Path(folder) / f"copy{i}.so" for i in range(2 * ROUNDS)]
        for path in copies:
            shutil.copy(kernels, path)
        fresh = _pairs(copies[::2], copies[1::2])
        known = _pairs(copies[:1] * ROUNDS, copies[1:2] * ROUNDS)
        return [_row("load_module, a new file", *fresh), _row("load_module, mapped already", *known)]


def _pairs(ours: list[Path], theirs: list[Path]) -> tuple[list[float], list[float]]:
    """Seconds of each load. The libraries take turns to be first, because the second finds a warm linker."""
    mine: list[float] = []
    rivals: list[float] = []
    for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        turns = [
            (mine, lambda path=one: farcall.load_module(path)),
            (rivals, lambda path=other: tvm_ffi.load_module(str(path))),
        ]
        for times, load in turns if i % 2 else reversed(turns):
            times.append(_took(load))
    quiet = quieter_half({"mine": mine, "rivals": rivals})
    return quiet["mine"], quiet["rivals"]


def _took(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _row(work: str, mine: list[float], rivals: list[float]) -> Row:
    return Row(
        work,
        statistics.median(mine),
        spread(mine),
        "apache-tvm-ffi",
        statistics.median(rivals),
        reach_ratio=1.0,
    )


def _inline() -> list[Row]:
    """The cost of kernels in a program's source at each later start, which finds the cached build."""
    mine = "int64_t one_more(int64_t x) { return x + 1; }"
    contenders = {
        "farcall": lambda: cpp.load_inline("bench_inline", cpp_sources=mine, functions=["one_more"]),
        "apache-tvm-ffi": lambda: tvm_ffi.cpp.load_inline(
            "bench_inline", cpp_sources=mine, functions=["one_more"]
        ),
    }
    return rows("load_inline, built before", contenders, ratios={"apache-tvm-ffi": 1.0}, rounds=31)
