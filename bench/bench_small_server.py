"""The small server beside the full one: calls, copies, and how fast a session opens; its sizes go to stderr.

The processes of a round trip work one after the other; see rpc_ends for why they share a core.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

import farcall as fc
from bench import rpc_exports
from bench.harness import Row, blocks, in_turn, once, rows_of
from bench.rpc_ends import HERE, LAST, on_core, serve
from farcall.launch import build_server
from farcall.toolchain import MACHINES

MIB = 1 << 20
COPY = 64 * MIB
ROUNDS, CONNECTS, SESSIONS = 3000, 200, 9


@contextlib.contextmanager
def serve_small() -> Iterator[str]:
    """A small server of this machine; gives its URL."""
    program = build_server("x86_64", sources=[HERE / "small_functions.c"])
    command = [program, "--listen", "tcp://127.0.0.1:0", "--memory", "512M"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def run() -> list[Row]:
    """All rows."""
    with ExitStack() as stack:
        rpc_exports.build(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        url = stack.enter_context(serve_small())
        full_url = stack.enter_context(serve())
        rows = [*_calls(), *_copies(url, full_url), *_connect(url, full_url)]
    tell_sizes()
    return rows


def _calls() -> list[Row]:
    with ExitStack() as stack:
        stack.enter_context(on_core(LAST))
        url = stack.enter_context(serve_small())
        near = stack.enter_context(fc.connect(url)).get_function("bench.nop")
        far = stack.enter_context(fc.connect(stack.enter_context(serve()))).get_function("bench.nop")
        times = blocks({"small": lambda: once(near), "full": lambda: once(far)}, ROUNDS)
    ours = {"farcall": times["small"], "full server": times["full"]}
    return rows_of("null call to the small server, TCP", ours, ratios={"full server": 1.05})


def _copies(small: str, full: str) -> list[Row]:
    """Several pairs of sessions, since pages and cores make a pair fast or slow for as long as it lives."""
    times: dict[str, dict[str, list[float]]] = {}
    x, y = np.ones(COPY, "uint8"), np.ones(COPY, "uint8")  # pages of new arrays would cost more than the copy
    for _ in range(SESSIONS):
        with fc.connect(small) as one, fc.connect(full) as two:
            near, far = one.tensor(x), two.tensor(x)
            for way, there, here in (
                ("to the small server", partial(one.copy, x, near), partial(two.copy, x, far)),
                ("from the small server", partial(one.copy, near, y), partial(two.copy, far, y)),
            ):
                for name, samples in in_turn({"farcall": there, "full server": here}, 5).items():
                    times.setdefault(way, {}).setdefault(name, []).extend(samples)
    return [
        row
        for way, measured in times.items()
        for row in rows_of(f"copy {COPY // MIB} MiB {way}", measured, ratios={"full server": 1.1})
    ]


def _open(url: str) -> float:
    sessions: list[fc.Session] = []
    took = once(lambda: sessions.append(fc.connect(url)))
    sessions[0].close()
    return took


def _connect(small: str, full: str) -> list[Row]:
    times = blocks({"small": lambda: _open(small), "full": lambda: _open(full)}, CONNECTS)
    ours = {"farcall": times["small"], "full server": times["full"]}
    return rows_of("connect to the small server, with its fork", ours, seconds=1e-3)


# ---- sizes


def tell_sizes() -> None:
    """Write the sizes of every machine's program and memory to stderr, without an emulator's own."""
    for machine in MACHINES:
        program = build_server(machine.target)
        told = f"farcall-server {machine.name:8} {program.stat().st_size / 1024:6.1f} KiB stripped"
        emulator = [] if machine.name == "x86_64" else machine.emulate()
        if emulator is not None:
            rest, more = _memory_of([*emulator, program])
            told += f", {rest:4} KiB resident at rest, {more:3} KiB more in a session"
        print(told, file=sys.stderr)


def _memory_of(words: Sequence[str | Path]) -> tuple[int, int]:
    """KiB of a server at rest, and what its worker adds in a session that has a tensor."""
    command = [*words, "--listen", "tcp://127.0.0.1:0"]
    emulated = len(words) > 1
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            rest = _kib(process.pid, "Rss", emulated)
            with fc.connect(url) as session:
                session.tensor(np.ones(16, "float32")).numpy()
                worker = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
                return rest, _kib(int(worker), r"Private_\w+", emulated)
        finally:
            process.terminate()


def _kib(pid: int, field: str, emulated: bool) -> int:
    """The sum of a field of all memory maps, or of the guest's: those below the emulator's program."""
    maps = Path(f"/proc/{pid}/smaps").read_text()
    if emulated:
        maps = maps[: re.search(rf"^.* {Path(f'/proc/{pid}/exe').readlink()}$", maps, re.MULTILINE).start()]
    return sum(int(kib) for kib in re.findall(rf"^{field}: +(\d+) kB", maps, re.MULTILINE))
