"""A launch: from the call to the first answer of a server in an emulator, its program built before."""

from __future__ import annotations

import statistics
import subprocess
import time

import farcall as fc
from bench.harness import Row, once, spread
from farcall.launch import build_server
from farcall.toolchain import MACHINES

ROUNDS = 15


def run() -> list[Row]:
    """One row: the launch without the emulator's own start, which is that of ``farcall-server --version``."""
    machine = next(machine for machine in MACHINES if machine.name == "aarch64")
    emulator = machine.emulate()
    if emulator is None:
        print(f"skipped: a launch needs {machine.emulator} (apt install qemu-user)")
        return []
    program = build_server(machine.target)
    version = [*emulator, str(program), "--version"]
    _launch()  # imports modules
    beyond = [_launch() - once(lambda: subprocess.check_output(version)) for _ in range(ROUNDS)]
    work = "launch emulator:aarch64 to the first answer, beyond the emulator's start"
    return [Row(work, statistics.median(beyond), spread(beyond), reach_seconds=0.150)]


def _launch() -> float:
    """Seconds to the first answer; the server's end comes later."""
    start = time.perf_counter()
    with fc.launch("emulator:aarch64") as device, device.connect() as session:
        assert session.cpu().exist
        return time.perf_counter() - start
