"""Sessions over the other channels: Unix sockets and shared memory beside their limits, TLS beside TCP.

Both peers of a shared-memory channel spin for a moment before they sleep. On separate cores the kernel takes
no part in a round trip: a null call costs only encoding, decoding and the function itself. Its limit is
measured by a C program over two slots, whose processes wait in the same way on the same cores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

import farcall as fc
from bench import rpc_exports
from bench.harness import Row, blocks, median_call, once, rows_of
from bench.rpc_ends import FIRST, LAST, REPLY, REQUEST, Limits, on_core, serve
from farcall.rpc.certificates import make_certificates

CALLS, ROUNDS = 300, 41
BULK = 64 << 20


def run() -> list[Row]:
    """All rows."""
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(Path(folder))
        rpc_exports.build(Path(folder))
        place = Path(folder)
        with on_core(LAST):
            rows = [*_unix(place, limits), *_tls_calls(place)]
        rows += _shared_calls(place, limits, LAST)
        if FIRST != LAST:
            rows += _shared_calls(place, limits, FIRST)
        return [
            *rows,
            *_shared_copies(place, limits),
            *_tls_copies(place),
        ]


def _unix(folder: Path, limits: Limits) -> list[Row]:
    program = ("rpc_limits", "unix", "pingpong", CALLS, REQUEST, REPLY)
    with _session(f"unix://{folder}/unix") as session, limits.started(*program) as limit:
        nop = session.get_function("bench.nop")
        times = blocks({"farcall": lambda: median_call(nop, CALLS), "channel": limit}, ROUNDS)
    return rows_of("null call, Unix socket", times, ratios={"channel": 1.15})


def _shared_calls(folder: Path, limits: Limits, peer: int) -> list[Row]:
    """The servers run on the core ``peer``, the clients on the last core."""
    start, numbers = limits.started, (CALLS, REQUEST, REPLY, peer)
    with ExitStack() as stack:
        with on_core(peer):
            url = stack.enter_context(serve(f"shm://{folder}/shm"))
        stack.enter_context(on_core(LAST))
        session = stack.enter_context(fc.connect(url))
        spin = stack.enter_context(start("shm_limits", "spin", *numbers))
        sleep = stack.enter_context(start("shm_limits", "sleep", *numbers))
        nop = session.get_function("bench.nop")
        ours = {"farcall": lambda: median_call(nop, CALLS)}
        times = blocks({**ours, "channel": spin, "channel, sleeping": sleep}, ROUNDS)
    place = "one core" if peer == LAST else "two cores"
    return rows_of(f"null call, shared memory, {place}", times, ratios={"channel": 1.5})


def _shared_copies(folder: Path, limits: Limits) -> list[Row]:
    here, rows = np.ones(BULK, "uint8"), []
    with _session(f"shm://{folder}/shm") as session, limits.started("shm_limits", "copy", 3, BULK) as memcpy:
        there = session.tensor(here)
        for way, source, target in (("up", here, there), ("down", there, here)):
            ours = {"farcall": lambda a=source, b=target: once(lambda: session.copy(a, b))}
            times = blocks({**ours, "memcpy": memcpy}, 9)
            rows += rows_of(f"copy 64 MiB {way}, shared memory", times, ratios={"memcpy": 1 / 0.6})
    return rows


@contextmanager
def _session(listen: str) -> Iterator[fc.Session]:
    with serve(listen) as url, fc.connect(url) as session:
        yield session


@contextmanager
def _tls(folder: Path) -> Iterator[fc.Session]:
    make_certificates(folder, ["127.0.0.1"], 1)
    files = (
        "--ca",
        f"{folder}/ca.pem",
        "--cert",
        f"{folder}/server.pem",
        "--cert-key",
        f"{folder}/server.key",
    )
    with (
        serve("tls://127.0.0.1:0", *files) as url,
        fc.connect(url, tls=fc.rpc.Tls.of(folder / "client")) as session,
    ):
        yield session


def _tls_calls(folder: Path) -> list[Row]:
    with _tls(folder) as session, _session("tcp://127.0.0.1:0") as plain:
        secret, open_ = session.get_function("bench.nop"), plain.get_function("bench.nop")
        times = blocks(
            {"farcall": lambda: median_call(secret, CALLS), "TCP": lambda: median_call(open_, CALLS)}, 21
        )
    return rows_of("null call, TLS", times)


def _tls_copies(folder: Path) -> list[Row]:
    here = np.ones(BULK, "uint8")
    with _tls(folder) as session, _session("tcp://127.0.0.1:0") as plain:
        one, other = session.tensor(here), plain.tensor(here)
        times = blocks(
            {
                "farcall": lambda: once(lambda: session.copy(here, one)),
                "TCP": lambda: once(lambda: plain.copy(here, other)),
            },
            5,
        )
    return rows_of("copy 64 MiB up, TLS", times)
