"""The chain host -> phone -> DSP: small servers on an emulated aarch64, and on an emulated Hexagon behind it.

Both hops are mailboxes. The rival of a null call is what the bytes alone cost: a round trip of a C program
here with one on each emulated machine, added up; see bench_mailbox. As there, all processes share a core.
The calls that depend on each other travel in one round trip; what they take beyond it is the emulators' time
for their requests.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import farcall as fc
from bench.bench_mailbox import CALLS, ROUNDS, Pair
from bench.harness import Row, blocks, median_call, rows_of
from bench.rpc_ends import LAST, Limits, on_core
from farcall.toolchain import MACHINES

DEPENDENT = 5
PHONE, DSP = "aarch64", "hexagon"
WAY = f"host -> {PHONE} (qemu) -> {DSP} (qemu)"


def run() -> list[Row]:
    """All rows."""
    machines = {machine.name: machine for machine in MACHINES}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, on_core(LAST):
        folder, pairs = Path(name), []
        limits = Limits(folder, "mailbox_limits")
        for machine in (machines[PHONE], machines[DSP]):
            emulator = machine.emulate()
            if emulator is None:
                return []
            pairs.append(Pair(machine, emulator, folder, limits))
        return _rows(*pairs)


def _rows(near: Pair, far: Pair) -> list[Row]:
    with ExitStack() as stack:
        device = stack.enter_context(far.serving())
        phone = stack.enter_context(near.serving("--device", f"dsp0={device}"))
        session = stack.enter_context(fc.connect(phone, via=["device:dsp0"]))
        pairs = [stack.enter_context(pair.pingpong()) for pair in (near, far)]
        nop = session.get_function("bench.nop")
        times = blocks(
            {
                "call": lambda: median_call(nop, CALLS),
                "chain": lambda: median_call(lambda: _chain(session, nop), CALLS),
                "pairs": lambda: sum(pair() for pair in pairs),
            },
            ROUNDS,
        )
    call = {"farcall": times["call"], "both pairs": times["pairs"]}
    chain = {"farcall": times["chain"], "one round trip": times["call"]}
    return [
        *rows_of(f"null call, {WAY}", call, ratios={"both pairs": 1.5}),
        *rows_of(f"{DEPENDENT} dependent calls, {WAY}", chain, ratios={"one round trip": 1.2}),
    ]


def _chain(session: fc.Session, function: fc.ffi.Function) -> None:
    """Each call takes the result of the previous one, which has not arrived yet."""
    with session.pipeline() as pipeline:
        call: object = 1
        for _ in range(DEPENDENT):
            call = pipeline(function, call)
