"""Sessions over TCP, beside Apache TVM's and beside C programs that move the same bytes.

The contenders of a row alternate in short blocks. See rpc_ends for the cores on which their processes run.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

import farcall as fc
from bench import rpc_exports
from bench.harness import Row, blocks, median_call, once, rows_of, spread
from bench.rpc_ends import LAST, REPLY, REQUEST, Ask, Limits, on_core, serve, tvm

CALLS, ROUNDS = 300, 41
BULK = 64 << 20
FILE = 32 << 20
MANY = 200


class Ends(NamedTuple):
    """Our session, TVM's, and the channel's programs."""

    url: str
    session: fc.Session
    rival: Ask
    limits: Limits


def run() -> list[Row]:
    """All rows."""
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(Path(folder))
        rpc_exports.build(Path(folder))
        with on_core(LAST), _ends(limits) as ends:
            rows = [*_null_call(ends), *_small_copies(ends)]
        with _ends(limits) as ends:
            rows += [*_pipelined(ends), *_copies(ends), *_file(ends), *_connect(ends)]
        return [*rows, *_many_sessions()]


@contextmanager
def _ends(limits: Limits) -> Iterator[Ends]:
    with serve() as url, fc.connect(url) as session, tvm(CALLS) as rival:
        yield Ends(url, session, rival, limits)


def _null_call(ends: Ends) -> list[Row]:
    nop = ends.session.get_function("bench.nop")
    with ends.limits.started("rpc_limits", "tcp", "pingpong", CALLS, REQUEST, REPLY) as limit:
        times = blocks(
            {
                "farcall": lambda: median_call(nop, CALLS),
                "channel": limit,
                "tvm": lambda: ends.rival("nop"),
            },
            ROUNDS,
        )
    return rows_of("null call, TCP", times, ratios={"channel": 1.15, "tvm": 0.9})


def _small_copies(ends: Ends) -> list[Row]:
    session = ends.session
    nop, here = session.get_function("bench.nop"), np.zeros(1024, "uint8")
    there = session.tensor(here)

    def rows(work: str, source: object, target: object, theirs: str) -> list[Row]:
        times = blocks(
            {
                "farcall": lambda: median_call(lambda: session.copy(source, target), CALLS),
                "null call": lambda: median_call(nop, CALLS),
                "tvm": lambda: ends.rival(theirs),
            },
            ROUNDS,
        )
        return rows_of(work, times, ratios={"null call": 1.3})

    return [*rows("copy 1 KiB up", here, there, "up1k"), *rows("copy 1 KiB down", there, here, "down1k")]


def _pipelined(ends: Ends) -> list[Row]:
    nop, count = ends.session.get_function("bench.nop"), 100_000
    nothing = [()] * count

    def ours() -> float:
        with ends.session.pipeline() as p:
            return once(lambda: p.map(nop, nothing)) / count

    times = blocks({"farcall": ours, "tvm": lambda: ends.rival("nop")}, 9)
    return rows_of("pipelined null call", times, ratios={"tvm": 1 / 8}, seconds=2e-6)


def _copies(ends: Ends) -> list[Row]:
    session, here = ends.session, np.zeros(BULK, "uint8")
    there = session.tensor(here)

    def rows(way: str, source: object, target: object, theirs: str) -> list[Row]:
        with ends.limits.started("rpc_limits", "tcp", theirs, 3, BULK, 0) as limit:
            times = blocks(
                {
                    "farcall": lambda: once(lambda: session.copy(source, target)),
                    "channel": limit,
                    "tvm": lambda: ends.rival(way),
                },
                5,
            )
        return rows_of(f"copy 64 MiB {way}, TCP", times, ratios={"channel": 1 / 0.8, "tvm": 1 / 40})

    return [*rows("up", here, there, "send"), *rows("down", there, here, "receive")]


def _file(ends: Ends) -> list[Row]:
    """A developer's loop: uploads under one name, each time with content that the server does not have.

    From the third upload on, the server overwrites the content before the previous one. So two
    untimed uploads come first, for farcall and for the C program that stores so ("channel into a file").
    """
    data, numbers = os.urandom(FILE), iter(range(1 << 30))

    def ours() -> float:
        fresh = data[:-8] + next(numbers).to_bytes(8, "little")  # content that the server does not have
        return once(lambda: ends.session.upload(fresh, "bench.bin"))

    ours()  # and once more by blocks
    start = ends.limits.started
    with (
        start("rpc_limits", "tcp", "send", 3, FILE, 0) as limit,
        start("rpc_limits", "tcp", "store", 3, FILE, 0) as store,
    ):
        times = blocks(
            {
                "farcall": ours,
                "channel": limit,
                "channel into a file": store,
                "tvm": lambda: ends.rival("file"),
            },
            5,
        )
    return rows_of("upload 32 MiB", times, ratios={"channel": 1 / 0.6})


def _connect(ends: Ends) -> list[Row]:
    def ours() -> float:
        start = time.perf_counter()
        session = fc.connect(ends.url)
        took = time.perf_counter() - start
        session.close()
        time.sleep(0.3)  # a warm server has its next worker ready
        return took

    times = blocks({"farcall": ours, "tvm": lambda: ends.rival("connect")}, 21)
    return rows_of("connect to a warm server", times, seconds=3e-3)


def _many_sessions() -> list[Row]:
    """Calls in one of many sessions while the others are idle."""
    with ExitStack() as stack:
        url = stack.enter_context(serve())
        nop = stack.enter_context(fc.connect(url)).get_function("bench.nop")

        def slowest() -> float:
            """The 99th percentile."""
            return statistics.quantiles([once(nop) for _ in range(2000)], n=100)[-1]

        alone = [slowest() for _ in range(9)]
        for _ in range(MANY - 1):
            stack.enter_context(fc.connect(url, timeout=60))
        crowded = [slowest() for _ in range(9)]
    work, median = f"null call among {MANY} sessions, p99", statistics.median
    return [Row(work, median(crowded), spread(crowded), "alone", median(alone), 1.5)]
