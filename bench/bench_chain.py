"""The chain host -> phone -> DSP: a full server here as the phone, the small server on an emulated Hexagon.

Both hops are mailboxes. The rival of a null call is what the bytes alone cost: a round trip of a pair of C
programs here, and one of a pair whose far program is emulated, added up; see bench_mailbox. As there, all
processes share a core. The calls that depend on each other travel in one round trip; what they take beyond
it is the emulator's time for their requests.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import farcall as fc
from bench import rpc_exports
from bench.bench_mailbox import CALLS, ROUNDS, Pair
from bench.harness import Row, blocks, median_call, rows_of
from bench.rpc_ends import LAST, Limits, on_core, serve
from farcall.toolchain import MACHINES, Machine

DEPENDENT = 5


def run() -> list[Row]:
    """All rows."""
    near, far = (
        next(machine for machine in MACHINES if machine.name == name) for name in ("x86_64", "hexagon")
    )
    emulator = far.emulate()
    if emulator is None:
        return []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, on_core(LAST):
        folder = Path(name)
        rpc_exports.build(folder)
        limits = Limits(folder, "mailbox_limits")
        return _rows(folder, Pair(near, [], folder, limits), Pair(far, emulator, folder, limits), far)


def _rows(folder: Path, near: Pair, far: Pair, machine: Machine) -> list[Row]:
    with ExitStack() as stack:
        device = stack.enter_context(far.serving())
        phone = stack.enter_context(serve(f"mailbox:{folder / 'phone'}", "--device", f"dsp0={device}"))
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
    way = f"full server -> {machine.name} (qemu)"
    call = {"farcall": times["call"], "both pairs": times["pairs"]}
    chain = {"farcall": times["chain"], "one round trip": times["call"]}
    return [
        *rows_of(f"null call, host -> {way}", call, ratios={"both pairs": 1.5}),
        *rows_of(f"{DEPENDENT} dependent calls, host -> {way}", chain, ratios={"one round trip": 1.2}),
    ]


def _chain(session: fc.Session, function: fc.ffi.Function) -> None:
    """Each call takes the result of the previous one, which has not arrived yet."""
    with session.pipeline() as pipeline:
        call: object = 1
        for _ in range(DEPENDENT):
            call = pipeline(function, call)
