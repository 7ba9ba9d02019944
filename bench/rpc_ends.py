"""The peers of the measured connections: our server, TVM's client and server, and C programs.

The time of a small round trip depends on where its two processes run. On one core the kernel switches between
them. On two cores it wakes a sleeping core, which takes several times as long, varies from moment to moment,
and hides the cost of the programs. Without control, each pair of processes settles in one state or the other
for seconds. So all processes of a row of round trips run on the *same* core: there a channel is the fastest,
our share of the time the largest, and ratios repeat within a few percent. Shared memory, whose peers spin, is
also measured on two cores. Work that moves many bytes or many calls at once keeps both peers busy, and is
left to the scheduler. All processes live as long as their row: no round starts one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from farcall.toolchain import find_compiler

FIRST, LAST = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))  # cores; there may be but one
EXPORTS = "bench.rpc_exports:register"
REQUEST, REPLY = 24, 32  # bytes of a kCallFunc without arguments, and of the kReturn of None
HERE = Path(__file__).parent


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Keeps this process, and the processes that it starts in the block, on one core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def serve(listen: str = "tcp://127.0.0.1:0", *options: str) -> Iterator[str]:
    """Runs a `farcall serve` with the benchmark's functions; gives its URL."""
    command = [
        sys.executable,
        "-m",
        "farcall",
        "serve",
        "-q",
        "--listen",
        listen,
        "--init",
        EXPORTS,
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


Ask = Callable[..., float]


@contextmanager
def _asked(*command: str | Path) -> Iterator[Ask]:
    """Runs a process that measures on request: a line in, seconds out. The process ends with its input."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:

        def ask(work: str = "") -> float:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(work + "\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        yield ask


@contextmanager
def tvm(calls: int) -> Iterator[Ask]:
    """TVM's client with a session at TVM's server: see rpc_tvm.py. ``calls``: per block of small work."""
    with _asked(sys.executable, "-m", "bench.rpc_tvm", str(calls)) as ask:
        yield ask


class Limits:
    """The compiled C programs that only move the bytes."""

    def __init__(self, folder: Path, *names: str) -> None:
        self._folder = folder
        for name in names or ("rpc_limits", "shm_limits"):
            flags = ["-O2", str(HERE / f"{name}.c"), "-o", name]
            find_compiler().run(flags, folder, "a program that shows a channel's limit")

    @contextmanager
    def started(self, program: str, *words: str | int) -> Iterator[Ask]:
        """Runs one program with its arguments, which its source explains. Each request measures a block."""
        with _asked(self._folder / program, *map(str, words)) as ask:
            yield ask
