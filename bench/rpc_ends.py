"""The ends of the lines that are measured: our server, TVM's client and server, and C programs.

What a small round trip takes is decided by where its two processes run. On one core the kernel switches from
one to the other. On two it wakes a core that sleeps, which takes several times as long, differs from moment
to moment, and hides what the programs do. Left alone, each pair of processes settles in one state or the
other for seconds. So all ends of a row of round trips are put on the *same* core: in this state a channel is
the quickest, our own share of the time the largest, and ratios repeat to some percent. Shared memory, whose
sides spin, is measured on two cores also. What moves many bytes or many calls at once keeps both ends busy,
and is left to the scheduler. All processes live as long as their row: none is started for a round.
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
    """What runs here, and what is started here, stays on one core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def serve(listen: str = "tcp://127.0.0.1:0", *options: str) -> Iterator[str]:
    """A `farcall serve` with the functions of the bench; its URL."""
    command = [sys.executable, "-m", "farcall", "serve", "--listen", listen, "--init", EXPORTS, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


Ask = Callable[..., float]


@contextmanager
def _asked(*command: str | Path) -> Iterator[Ask]:
    """A process that measures itself on request: a line in, seconds out. It ends with its input."""
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
    """TVM's client with a session at TVM's server, see rpc_tvm.py. A block of small works has so many."""
    with _asked(sys.executable, "-m", "bench.rpc_tvm", str(calls)) as ask:
        yield ask


class Limits:
    """The C programs that move the bytes and nothing else, compiled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("rpc_limits", "shm_limits"):
            flags = ["-O2", str(HERE / f"{name}.c"), "-o", name]
            find_compiler().run(flags, folder, "a program that shows a channel's limit")

    @contextmanager
    def started(self, program: str, *words: str | int) -> Iterator[Ask]:
        """One of them, with its arguments; see there. Each request measures a block."""
        with _asked(self._folder / program, *map(str, words)) as ask:
            yield ask
