"""Shared memory beside what it allows: C programs over two slots, and memcpy. TCP and Unix: bench_rpc.

Contenders take turns within each round. A round trip costs the kernel nothing when both sides spin, each on a
core of its own; what is left of a null call then is encoding, decoding and the Python function itself. The
limit is set beside sides that sleep, as those of a socket do.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import farcall as fc
from bench.harness import Row, spread
from farcall.toolchain import find_compiler

ROUNDS = 15
CALLS = 2000
REQUEST, REPLY = 24, 32  # bytes of a kCallFunc without arguments, and of the kReturn of None
BULK = 64 << 20


def run() -> list[Row]:
    """All rows."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        limit = _Limit(folder)
        server = stack.enter_context(_server(f"shm://{folder}/socket"))
        session = stack.enter_context(fc.connect(server))
        return [*_null_call(session, limit), *_copies(session, limit)]


def _null_call(session: fc.Session, limit: _Limit) -> list[Row]:
    nop = session.get_function("bench.nop")
    limits = {
        "C, sleeping": lambda: limit("sleep", CALLS, REQUEST, REPLY),
        "C, spinning": lambda: limit("spin", CALLS, REQUEST, REPLY),
    }
    return _in_turn("null call, shared memory", lambda: _median_call(nop), limits, {"C, sleeping": 1.5})


def _copies(session: fc.Session, limit: _Limit) -> list[Row]:
    here = np.ones(BULK, "uint8")
    there = session.tensor(here)
    memcpy, reach = {"memcpy": lambda: limit("copy", 3, BULK)}, {"memcpy": 1 / 0.6}
    return [
        *_in_turn(
            "copy 64 MiB up, shared memory", lambda: _once(lambda: session.copy(here, there)), memcpy, reach
        ),
        *_in_turn(
            "copy 64 MiB down, shared memory", lambda: _once(lambda: session.copy(there, here)), memcpy, reach
        ),
    ]


def register() -> None:
    """What the server exports."""
    fc.register_global_func("bench.nop", lambda: None)


def _once(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _median_call(call: Callable[[], object]) -> float:
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _in_turn(
    work: str,
    ours: Callable[[], float],
    limits: dict[str, Callable[[], float]],
    reach: dict[str, float],
) -> list[Row]:
    """A row for each of ``limits``."""
    contenders = {"farcall": ours, **limits}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    ours()  # warms up
    for _ in range(ROUNDS):
        for name, measure in contenders.items():
            times[name].append(measure())
    medians = {name: statistics.median(samples) for name, samples in times.items()}
    mine = medians["farcall"], spread(times["farcall"])
    return [Row(work, *mine, name, medians[name], reach.get(name)) for name in limits]


class _Limit:
    """The C program that moves the bytes and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "shm_limits"
        source = Path(__file__).with_name("shm_limits.c")
        subprocess.run([*find_compiler().command, "-O2", str(source), "-o", str(self._program)], check=True)

    def __call__(self, work: str, *numbers: int) -> float:
        """Seconds."""
        command = [self._program, work, *map(str, numbers)]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout) / 1e9


@contextlib.contextmanager
def _server(url: str) -> Iterator[str]:
    command = [sys.executable, "-m", "farcall", "serve", "--listen", url, "--init", f"{__name__}:register"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield url
        finally:
            process.terminate()
