"""Whole models beside other engines, with one thread and with two; the build, the load, the memory.

``FARCALL_BENCH_MODELS`` (patterns of names, with commas) and ``FARCALL_BENCH_RIVALS`` (names, with commas)
choose some of them. A rival that is not installed, or that cannot take a model, is left out: the reason is
written to the standard error. docs/speed.md says how each figure is measured.
"""

from __future__ import annotations

import fnmatch
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import onnx

import farcall as fc
from bench.harness import Row, blocks, rows_of, spread
from bench.kernels import PEAK
from bench.networks import CASES, Case
from bench.rivals import RIVALS
from farcall import _core

THREADS = (1, 2)
BIG = "ResNet-50"  # whose load, memory and build are measured, too
STARTS, BUILDS = 7, 3
ROUNDS, LONG = 31, 0.02  # a call that takes longer, in seconds, has fewer rounds
FEWER = 13


def run() -> list[Row]:
    """Each model with each number of threads; then what ResNet-50 needs before it runs."""
    return measure(CASES)


def measure(cases: Mapping[str, Case]) -> list[Row]:
    """The rows of those that are chosen."""
    result = []
    for name in filter(is_chosen, cases):
        with tempfile.TemporaryDirectory() as folder:
            _make(Path(folder), cases[name])
            for threads in _threads():
                result += _compare(Path(folder), name, cases[name], threads)
            if name == BIG:
                result += [*_starts(Path(folder)), *_builds(Path(folder))]
    return result


def is_chosen(name: str) -> bool:
    patterns = os.environ.get("FARCALL_BENCH_MODELS", "*").split(",")
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _rivals(case: Case) -> list[str]:
    """onnxruntime, whose results are the expected ones, and those that were chosen."""
    names = os.environ.get("FARCALL_BENCH_RIVALS", ",".join(RIVALS)).split(",")
    fitting = [name for name in names if name and (name != "OpenBLAS" or case.numpy)]
    return list(dict.fromkeys(["onnxruntime", *fitting]))


def _threads() -> Sequence[int]:
    """One thread only, where the native core has no threads."""
    if b"FARCALL_THREADS" in Path(_core.__file__).read_bytes():
        return THREADS
    _say("this farcall computes with one thread: rows of two threads are left out")
    return THREADS[:1]


def _make(folder: Path, case: Case) -> None:
    """Export and build, in this process: they need much memory, and are not measured."""
    onnx.save(case.model(), folder / "model.onnx")
    fc.partition(folder / "model.onnx").build().save(folder / "model.so")


class _Engine:
    """A process that runs the model in one engine: see ``model_child``.

    It is stopped while others are asked: an engine's threads may spin for long after a call.
    """

    def __init__(self, folder: Path, name: str, engine: str, threads: int):
        self.name, self.reason = engine, ""
        words, settings = _child("serve", folder, name, engine, str(threads), threads=threads)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, env=settings, stdin=pipe, stdout=pipe, text=True, bufsize=1)

    def ask(self, command: str, *arguments: str) -> float | None:
        """Its reply; None, if the engine cannot take the model, for which ``reason`` is then the reason."""
        assert self.process.stdin and self.process.stdout
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps([command, *arguments]) + "\n")
        line = self.process.stdout.readline()
        self.process.send_signal(signal.SIGSTOP)
        if not line:
            raise RuntimeError(f"the process of {self.name} ended at {command!r}: see above")
        reply: dict[str, Any] = json.loads(line)
        self.reason = reply.get("absent", "")
        return reply.get("is")

    def measure(self) -> float:
        """Seconds of a call of a model that it has prepared."""
        return _known(self.ask("measure"))

    def __enter__(self) -> _Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.communicate()


def _child(*arguments: str | Path, threads: int = 1) -> tuple[list[str], dict[str, str]]:
    """The command of a process, and its environment."""
    settings = {"FARCALL_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    return [sys.executable, "-m", "bench.model_child", *map(str, arguments)], {**os.environ, **settings}


def _compare(folder: Path, name: str, case: Case, threads: int) -> list[Row]:
    result = []
    with ExitStack() as stack:
        names = [*_rivals(case), "farcall"]  # onnxruntime is the first: its results are the expected ones
        engines = [stack.enter_context(_Engine(folder, name, engine, threads)) for engine in names]
        for size in case.inputs:
            work = ", ".join(filter(None, (name, size, f"{threads} thread{'s' if threads > 1 else ''}")))
            times = _times(work, engines, size)
            if case.operations:
                least = case.operations / (_known(engines[-1].ask("peak")) * threads)
                times[PEAK] = [least] * len(times["farcall"])
            limits = {
                rival: case.beside.get(rival, case.reach[size]) for rival in times if rival != "farcall"
            }
            result += rows_of(work, times, ratios=limits)
    return result


def _times(work: str, engines: Sequence[_Engine], size: str) -> dict[str, list[float]]:
    """Seconds of a call in each round, by the names of the engines that take the model in this size."""
    found = {engine.name: engine.ask("prepare", size) for engine in engines}
    for engine in engines:
        if engine.reason:
            _say(f"{work}, {engine.name}: {engine.reason}")
    contenders = {
        engine.name: engine.measure for engine in reversed(engines) if found[engine.name] is not None
    }
    return blocks(contenders, FEWER if _known(found["farcall"]) > LONG else ROUNDS)


def _known(reply: float | None) -> float:
    assert reply is not None
    return reply


def _starts(folder: Path) -> list[Row]:
    """Load to first result, and the peak of memory that both add: in a new process each time, in turn."""
    found: dict[str, list[dict[str, float]]] = {"farcall": [], "onnxruntime": []}
    for _ in range(STARTS):
        for engine, samples in found.items():
            samples.append(_start(folder, engine))
    seconds, memory = (
        {engine: [one[key] for one in samples] for engine, samples in found.items()}
        for key in ("seconds", "bytes")
    )
    rows = rows_of(f"{BIG}, load to first result", seconds, ratios={"onnxruntime": 0.5})
    ours, theirs = map(statistics.median, memory.values())
    title = f"{BIG}, peak memory of load and call"
    rows.append(Row(title, ours, spread(memory["farcall"]), "onnxruntime", theirs, reach_ratio=1.0, unit="B"))
    return rows


def _start(folder: Path, engine: str) -> dict[str, float]:
    words, settings = _child("start", folder, BIG, engine)
    done = subprocess.run(words, env=settings, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _builds(folder: Path) -> list[Row]:
    """From a model file to a saved artifact: with an empty cache of objects, then with a full one."""
    times: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(BUILDS):
        with (
            tempfile.TemporaryDirectory() as cache,
            patch.dict(os.environ, {"FARCALL_CACHE_DIR": cache}),
        ):
            for samples in times.values():
                start = time.perf_counter()
                fc.partition(folder / "model.onnx").build().save(folder / "again.so")
                samples.append(time.perf_counter() - start)
    limits = {"cold": 3.0, "warm": 1.0}
    return [
        Row(f"{BIG}, build, {kind}", statistics.median(samples), spread(samples), reach_seconds=limits[kind])
        for kind, samples in times.items()
    ]


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr)
