"""The small server beside the full one: calls, copies, and how fast a session opens; its sizes go to stderr.

The processes of a round trip work one after the other; see rpc_ends for why they share a core.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
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
ROUNDS, CONNECTS = 3000, 200


@contextlib.contextmanager
def serve_small() -> Iterator[tuple[int, str]]:
    """A small server of this machine: its process id and its URL."""
    program = build_server("x86_64", sources=[HERE / "small_functions.c"])
    command = [program, "--listen", "tcp://127.0.0.1:0", "--memory", "512M"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.pid, process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def run() -> list[Row]:
    """All rows."""
    with ExitStack() as stack:
        rpc_exports.build(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        pid, url = stack.enter_context(serve_small())
        full_url = stack.enter_context(serve())
        rows = [*_calls(), *_copies(url, full_url), *_connect(url, full_url)]
        tell_sizes(pid, url)
    return rows


def _calls() -> list[Row]:
    with ExitStack() as stack:
        stack.enter_context(on_core(LAST))
        _, url = stack.enter_context(serve_small())
        near = stack.enter_context(fc.connect(url)).get_function("bench.nop")
        far = stack.enter_context(fc.connect(stack.enter_context(serve()))).get_function("bench.nop")
        times = blocks({"small": lambda: once(near), "full": lambda: once(far)}, ROUNDS)
    ours = {"farcall": times["small"], "full server": times["full"]}
    return rows_of("null call to the small server, TCP", ours, ratios={"full server": 1.05})


def _copies(small: str, full: str) -> list[Row]:
    x = np.ones(COPY, "uint8")
    rows = []
    with fc.connect(small) as one, fc.connect(full) as two:
        near, far = one.tensor(x), two.tensor(x)
        for work, there, here in (
            ("to the small server", lambda: one.copy(x, near), lambda: two.copy(x, far)),
            ("from the small server", near.numpy, far.numpy),
        ):
            times = in_turn({"small": there, "full": here}, 15)
            ours = {"farcall": times["small"], "full server": times["full"]}
            rows += rows_of(f"copy {COPY // MIB} MiB {work}", ours, ratios={"full server": 1.1})
    return rows


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


def tell_sizes(pid: int, url: str) -> None:
    """Write the size of every machine's program, and this machine's resident memory, to stderr."""
    for machine in MACHINES:
        size = build_server(machine.target).stat().st_size
        print(f"farcall-server {machine.name:8} {size / 1024:7.1f} KiB stripped", file=sys.stderr)
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with fc.connect(url) as session:
        session.get_function("bench.nop")()
        child = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        smaps = Path(f"/proc/{child}/smaps_rollup").read_text()
    private = sum(int(kib) for kib in re.findall(r"^Private_\w+: +(\d+) kB", smaps, re.MULTILINE))
    print(f"resident at rest {resident / 1024:.0f} KiB, one session more {private} KiB", file=sys.stderr)
