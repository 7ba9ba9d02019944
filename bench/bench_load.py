"""Importing farcall, and loading a library: what a program pays before its first call."""

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

import farcall
from bench.bench_call import build_kernels
from bench.harness import Row, spread

ROUNDS = 15


def run() -> list[Row]:
    """Rows for the import, for a library that is new, and for one that is mapped already."""
    return [_import(), *_load()]


def _import() -> Row:
    """In processes of their own; the interpreter's start does not count. Without numpy and torch."""
    script = (
        "import sys, time; start = time.perf_counter(); import farcall, farcall.ffi; "
        "took = time.perf_counter() - start; assert not {'numpy', 'torch'} & set(sys.modules); print(took)"
    )
    command = [sys.executable, "-c", script]
    runs = [subprocess.run(command, capture_output=True, check=True) for _ in range(ROUNDS)]
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
    """Seconds of each load; the two take turns."""
    mine, rivals = [], []
    for one, other in zip(ours, theirs, strict=True):
        mine.append(_took(lambda path=one: farcall.load_module(path)))  # type: ignore[misc]
        rivals.append(_took(lambda path=other: tvm_ffi.load_module(str(path))))  # type: ignore[misc]
    return mine, rivals


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
