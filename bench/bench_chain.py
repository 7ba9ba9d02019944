"""The chain host -> phone -> DSP: small servers, on an emulated aarch64 and behind it on an emulated Hexagon.

Both hops are mailboxes. The rival of a null call is what the bytes alone cost: round trips of a pair of C
programs whose far one is emulated on aarch64, and of one on Hexagon, added up; see bench_mailbox. As there,
all processes share a core. The calls that depend on each other travel in one round trip: what they take
beyond it is the emulators' time for nine packets more (QEMU returns to its own loop at every branch of a
Hexagon program, about 300 times a packet). One after another they would be five round trips.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import farcall as fc
from bench.bench_mailbox import CALLS, ROUNDS, Pair
from bench.harness import Row, blocks, median_call, rows_of
from bench.rpc_ends import LAST, Limits, on_core
from bench.slow_link import slow_link
from farcall.toolchain import MACHINES

DEPENDENT = 5
DELAY, SLOW_CALLS = 0.001, 20  # seconds each way
PHONE, DSP = "aarch64", "hexagon"
WAY = f"host -> {PHONE} (qemu) -> {DSP} (qemu)"


def run() -> list[Row]:
    """All rows; none without the emulators."""
    machines = [machine for machine in MACHINES if machine.name in ("aarch64", "hexagon")]
    emulators = [machine.emulate() for machine in machines]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, on_core(LAST):
        limits = Limits(Path(name), "mailbox_limits")
        pairs = [
            Pair(machine, emulator, Path(name), limits)
            for machine, emulator in zip(machines, emulators, strict=True)
            if emulator is not None
        ]
        return _rows(*pairs) if len(pairs) == len(machines) else []


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
                "turns": lambda: median_call(lambda: [nop(1) for _ in range(DEPENDENT)], CALLS),
                "pairs": lambda: sum(pair() for pair in pairs),
            },
            ROUNDS,
        )
    call = {"farcall": times["call"], "both pairs": times["pairs"]}
    chain = {"farcall": times["chain"], "one round trip": times["call"], "one by one": times["turns"]}
    return [
        *rows_of(f"null call, {WAY}", call, ratios={"both pairs": 1.5}),
        *rows_of(f"{DEPENDENT} dependent calls, {WAY}", chain, ratios={"one round trip": 1.2}),
        *_slow_rows(near, far),
    ]


def _slow_rows(near: Pair, far: Pair) -> list[Row]:
    """The same calls where the phone is behind a network: the link's time counts, not the emulators'."""
    with ExitStack() as stack:
        device = stack.enter_context(far.serving())
        phone = stack.enter_context(near.serving("--device", f"dsp0={device}", listen="tcp://127.0.0.1:0"))
        link = stack.enter_context(slow_link(int(phone.rpartition(":")[2]), DELAY))
        session = stack.enter_context(fc.connect(link, via=["device:dsp0"]))
        nop = session.get_function("bench.nop")
        times = blocks(
            {
                "call": lambda: median_call(nop, SLOW_CALLS),
                "chain": lambda: median_call(lambda: _chain(session, nop), SLOW_CALLS),
                "turns": lambda: median_call(lambda: [nop(1) for _ in range(DEPENDENT)], SLOW_CALLS),
            },
            ROUNDS,
        )
    chain = {"farcall": times["chain"], "one round trip": times["call"], "one by one": times["turns"]}
    what = f"{DEPENDENT} dependent calls over a link of {DELAY * 1e3:g} ms, {WAY}"
    return rows_of(what, chain, ratios={"one round trip": 1.2})


def _chain(session: fc.Session, function: fc.ffi.Function) -> None:
    """Each call takes the result of the previous one, which has not arrived yet."""
    with session.pipeline() as pipeline:
        call: object = 1
        for _ in range(DEPENDENT):
            call = pipeline(function, call)
