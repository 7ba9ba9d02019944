"""Sessions on a DSP by FastRPC's calls, here and on an emulated Hexagon, beside pairs of C programs.

The calls travel by a mailbox, and the pair moves the bytes of the session through such a file: see
bench_mailbox. A call of the session is two of FastRPC, one that sends and one that receives, and between the
session and the calls there are a thread and a socket on each side. A DSP does the work of a call itself.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

import farcall as fc
from bench.bench_mailbox import CALLS, Pair
from bench.harness import Row, blocks, median_call, once, rows_of
from bench.rpc_ends import HERE, LAST, Limits, on_core
from farcall.launch._server_build import build_dsp
from farcall.toolchain import MACHINES

NAMES = ("x86_64", "hexagon")
ROUNDS = 7
SIZE = 1 << 20


def run() -> list[Row]:
    """All rows."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        limits = Limits(folder, "mailbox_limits")
        for machine in MACHINES:
            emulator = [] if machine.name == "x86_64" else machine.emulate()
            if machine.name not in NAMES or emulator is None:
                continue
            pair = Pair(machine, emulator, folder, limits)
            program = folder / f"dsp-{machine.name}"
            build_dsp(machine.target, output=program, sources=[HERE / "mailbox_functions.c"])
            rows += _calls([*emulator, str(program)], pair, machine.name)
            rows += _copies([*emulator, str(program)], pair, machine.name)
    return rows


def _calls(words: list[str], pair: Pair, name: str) -> list[Row]:
    with on_core(LAST), ExitStack() as stack:
        session = stack.enter_context(fc.connect(stack.enter_context(_serving(words))))
        raw = stack.enter_context(pair.pingpong())
        nop = session.get_function("bench.nop")
        times = blocks({"farcall": lambda: median_call(nop, CALLS), "the pair": raw}, ROUNDS)
    return rows_of(f"null call, FastRPC, {name}, one core", times)


def _copies(words: list[str], pair: Pair, name: str) -> list[Row]:
    rows: list[Row] = []
    here = np.ones(SIZE, "uint8")
    with _serving(words) as url, fc.connect(url) as session:
        there = session.tensor(here)
        for way, source, target in (("up", here, there), ("down", there, here)):
            with pair.transfer(way, SIZE) as raw:
                ours = {"farcall": lambda a=source, b=target: once(lambda: session.copy(a, b))}
                times = blocks({**ours, "the pair": raw}, ROUNDS)
            rows += rows_of(f"copy 1 MiB {way}, FastRPC, {name}", times)
    return rows


@contextmanager
def _serving(words: list[str]) -> Iterator[str]:
    """An emulated DSP; gives its URL."""
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        subprocess.Popen([*words, f"{folder}/box"], stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.kill()
