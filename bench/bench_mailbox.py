"""Sessions with the small server through a mailbox, here and in emulators, beside pairs of C programs.

The pair moves the same bytes through a file that both map, waits as our channel does, and knows no packets.
In an emulator both the server and the pair's peer are emulated. The pair is compiled for speed, the server
for size: with it comes a C library whose memcpy copies byte by byte, which shows in the copies.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

import farcall as fc
from bench.harness import Row, blocks, median_call, once, rows_of
from bench.rpc_ends import FIRST, HERE, LAST, REPLY, REQUEST, Ask, Limits, on_core
from farcall.launch import build_server
from farcall.toolchain import MACHINES, Machine, zig_compiler

CALLS, ROUNDS = 200, 11
NAMES = ("x86_64", "aarch64", "hexagon")
FILE_BYTES = 2 << 20  # of the pair, at least the size of its memory


def run() -> list[Row]:
    """All rows."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        limits = Limits(Path(folder), "mailbox_limits")
        for machine in MACHINES:
            emulator = [] if machine.name == "x86_64" else machine.emulate()
            if machine.name in NAMES and emulator is not None:
                rows += Pair(machine, emulator, Path(folder), limits).rows()
    return rows


class Pair:
    """This machine and another one, perhaps emulated."""

    def __init__(self, machine: Machine, emulator: list[str], folder: Path, limits: Limits) -> None:
        self._machine, self._emulator, self._limits = machine, emulator, limits
        self._folder = folder / machine.name
        self._folder.mkdir()
        build_server(machine.target, output=self._folder / "server", sources=[HERE / "mailbox_functions.c"])
        compiler = zig_compiler("a program that shows a mailbox's limit")
        flags = [*compiler.target_flags(machine.target), "-O2", "-static", "-s", "-w"]
        compiler.run(
            [*flags, str(HERE / "mailbox_limits.c"), "-o", "limits"], self._folder, "the limit's peer"
        )

    def rows(self) -> list[Row]:
        """Calls, then copies."""
        rows = self._calls(LAST, "one core")
        if FIRST != LAST:
            rows += self._calls(FIRST, "two cores")
        return rows + self._copies()

    def _calls(self, core: int, place: str) -> list[Row]:
        with ExitStack() as stack:
            with on_core(core):
                url = stack.enter_context(self.serving())
                file = stack.enter_context(self._peer("pingpong", REQUEST, REPLY))
            stack.enter_context(on_core(LAST))
            session = stack.enter_context(fc.connect(url))
            raw = stack.enter_context(self._measuring("pingpong", CALLS, REQUEST, REPLY, file))
            nop = session.get_function("bench.nop")
            times = blocks({"farcall": lambda: median_call(nop, CALLS), "the pair": raw}, ROUNDS)
        return rows_of(f"null call, mailbox, {self._machine.name}, {place}", times, ratios={"the pair": 3.0})

    def _copies(self) -> list[Row]:
        size, rows = (64 << 20) if not self._emulator else (8 << 20), []
        here = np.ones(size, "uint8")
        with self.serving() as url, fc.connect(url) as session:
            there = session.tensor(here)
            for way, source, target in (("up", here, there), ("down", there, here)):
                with self.transfer(way, size) as raw:
                    ours = {"farcall": lambda a=source, b=target: once(lambda: session.copy(a, b))}
                    times = blocks({**ours, "the pair": raw}, 7)
                work = f"copy {size >> 20} MiB {way}, mailbox, {self._machine.name}"
                rows += rows_of(work, times, ratios={"the pair": 1.5})
        return rows

    @contextmanager
    def serving(self, *options: str, listen: str | None = None) -> Iterator[str]:
        """A small server, behind a mailbox or at the URL ``listen``; gives its URL."""
        place = ["--listen", listen] if listen else ["--mailbox", str(self._folder / "box")]
        words = [*self._emulator, str(self._folder / "server"), *place, *options]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline().split()[-1]
            finally:
                process.terminate()

    @contextmanager
    def pingpong(self) -> Iterator[Ask]:
        """The pair at work; measures a round trip of the bytes of a null call."""
        with (
            self._peer("pingpong", REQUEST, REPLY) as file,
            self._measuring("pingpong", CALLS, REQUEST, REPLY, file) as raw,
        ):
            yield raw

    @contextmanager
    def transfer(self, way: str, size: int) -> Iterator[Ask]:
        """The pair at work; measures a transfer of ``size`` bytes ``up`` or ``down``."""
        with self._peer(way, size, 0) as file, self._measuring(way, 1, size, 0, file) as raw:
            yield raw

    @contextmanager
    def _peer(self, work: str, *sizes: int) -> Iterator[Path]:
        """The far program of a pair; gives the pair's file."""
        file = self._folder / work
        file.write_bytes(bytes(FILE_BYTES))
        words = [*self._emulator, str(self._folder / "limits"), work, "0", *map(str, sizes), str(file)]
        with subprocess.Popen(words) as process:
            try:
                yield file
            finally:
                process.kill()

    @contextmanager
    def _measuring(self, work: str, *words: str | int | Path) -> Iterator[Ask]:
        with self._limits.started("mailbox_limits", work, *map(str, words)) as ask:
            yield ask
