"""Sessions beside Apache TVM's, and beside what the channel allows: C programs that move the same bytes.

Every row's contenders take turns within each round. Both ends run on this machine, so on two cores each
process has one; the channel's own program shows what that costs.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import farcall as fc
from bench import rpc_exports
from bench.harness import Row, spread

ROUNDS = 9
CALLS = 2000
REQUEST, REPLY = 24, 32  # bytes of a kCallFunc without arguments, and of the kReturn of None
BULK = 64 << 20
FILE = 32 << 20
HERE = Path(__file__).parent
EXPORTS = "bench.rpc_exports:register"

Contenders = dict[str, Callable[[], float]]


def run() -> list[Row]:
    """All rows."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        limit = Limit(folder)
        rpc_exports.build(folder)
        server = stack.enter_context(fc.rpc.Server(init=EXPORTS, key="k"))
        session = stack.enter_context(fc.connect(server.url, key="k"))
        rival = stack.enter_context(_tvm())
        return [
            *_null_call(session, rival, limit),
            *_local_channels(limit),
            *_pipelined(session, rival),
            *_copies(session, rival, limit),
            *_small_copies(session, rival),
            *_file(session, rival, limit),
            *_connect(server, rival),
            *_hops(),
            *_many_sessions(),
        ]


# ---- measuring


def _median_call(call: Callable[[], object], count: int = CALLS) -> float:
    """The median of ``count`` calls, each timed."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _once(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _in_turn(work: str, contenders: Contenders, ratios: dict[str, float], rounds: int = ROUNDS) -> list[Row]:
    """A row for each rival of ``contenders["farcall"]``; all measure themselves, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for measure in contenders.values():
        measure()  # warms up
    for _ in range(rounds):
        for name, measure in contenders.items():
            times[name].append(measure())
    medians = {name: statistics.median(samples) for name, samples in times.items()}
    return [
        Row(work, medians["farcall"], spread(times["farcall"]), rival, medians[rival], ratios.get(rival))
        for rival in contenders
        if rival != "farcall"
    ]


class Limit:
    """The C program that moves the bytes and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "rpc_limits"
        compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
        command = [compiler] if compiler else [sys.executable, "-m", "ziglang", "cc"]
        subprocess.run([*command, "-O2", str(HERE / "rpc_limits.c"), "-o", str(self._program)], check=True)

    def __call__(self, channel: str, work: str, count: int, sent: int, received: int = 0) -> float:
        """Seconds."""
        command = [self._program, channel, work, str(count), str(sent), str(received)]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        return int(done.stdout) / 1e9


class Rival:
    """TVM's client with a session at TVM's server, in processes of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready", "TVM's server did not start"

    def __call__(self, work: str) -> float:
        """Seconds of one unit of ``work``; see rpc_tvm.py."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(work + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


@contextmanager
def _tvm() -> Iterator[Rival]:
    with subprocess.Popen(
        [sys.executable, str(HERE / "rpc_tvm.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield Rival(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


# ---- the rows


def _null_call(session: Any, rival: Rival, limit: Limit) -> list[Row]:
    nop = session.get_function("bench.nop")
    contenders: Contenders = {
        "farcall": lambda: _median_call(nop),
        "channel": lambda: limit("tcp", "pingpong", CALLS, REQUEST, REPLY),
        "tvm": lambda: rival("nop"),
    }
    return _in_turn("null call, TCP", contenders, {"channel": 1.15, "tvm": 0.9})


def _local_channels(limit: Limit) -> list[Row]:
    """The Unix socket, and shared memory, which is compared with memcpy and with the quickest socket."""
    with tempfile.TemporaryDirectory() as folder:
        urls = [f"unix://{folder}/socket", f"shm://{folder}/shm"]
        with (
            fc.rpc.Server(urls=urls, init=EXPORTS) as server,
            fc.connect(server.urls[0]) as unix,
            fc.connect(server.urls[1]) as shared,
        ):
            return [*_local_calls(unix, shared, limit), *_shared_copy(shared)]


def _local_calls(unix: Any, shared: Any, limit: Limit) -> list[Row]:
    rows = []
    # There is no simpler program for shared memory than ours: it is compared with the quickest socket.
    for name, session, rival, reach in (
        ("Unix socket", unix, "channel", 1.15),
        ("shared memory", shared, "Unix channel", 1.5),
    ):
        nop = session.get_function("bench.nop")
        contenders: Contenders = {
            "farcall": lambda nop=nop: _median_call(nop),  # type: ignore[misc]
            rival: lambda: limit("unix", "pingpong", CALLS, REQUEST, REPLY),
        }
        rows += _in_turn(f"null call, {name}", contenders, {rival: reach})
    return rows


def _shared_copy(session: Any) -> list[Row]:
    here, other = np.zeros(BULK, "uint8"), np.zeros(BULK, "uint8")
    there = session.tensor(here)
    contenders: Contenders = {
        "farcall": lambda: _once(lambda: session.copy(here, there)),
        "memcpy": lambda: _once(lambda: np.copyto(other, here)),
    }
    return _in_turn("copy 64 MiB up, shared memory", contenders, {"memcpy": 1 / 0.6}, 5)


def _hops() -> list[Row]:
    """Three servers in a row, of one process each."""
    with ExitStack() as stack:
        urls = [stack.enter_context(fc.rpc.Server(init=EXPORTS)).url for _ in range(3)]
        near = stack.enter_context(fc.connect(urls[0]))
        far = stack.enter_context(fc.connect(urls[2], via=urls[:2]))
        one, three = near.get_function("bench.nop"), far.get_function("bench.nop")
        call: Contenders = {"farcall": lambda: _median_call(three), "one hop": lambda: _median_call(one)}

        def chain() -> None:
            with far.pipeline() as p:
                result: Any = None
                for _ in range(5):
                    result = p(three) if result is None else p(three, result)

        chained: Contenders = {
            "farcall": lambda: _median_call(chain, CALLS // 4),
            "one call through": lambda: _median_call(three),
        }
        return [
            *_in_turn("null call, 3 hops", call, {"one hop": 3.5}, 5),
            *_in_turn("chain of 5, 3 hops", chained, {"one call through": 1.2}, 5),
        ]


def _many_sessions() -> list[Row]:
    """One of 200 sessions is called while the others do nothing."""
    with ExitStack() as stack:
        server = stack.enter_context(fc.rpc.Server(init=EXPORTS, limits=fc.rpc.Limits(sessions=256)))
        session = stack.enter_context(fc.connect(server.url))
        nop = session.get_function("bench.nop")
        alone = [_slowest(nop) for _ in range(ROUNDS)]
        for _ in range(199):
            stack.enter_context(fc.connect(server.url, timeout=60))
        crowded = [_slowest(nop) for _ in range(ROUNDS)]
    median = statistics.median
    return [
        Row(
            "null call among 200 sessions, p99", median(crowded), spread(crowded), "alone", median(alone), 1.5
        )
    ]


def _slowest(call: Callable[[], object]) -> float:
    """The 99th percentile."""
    return statistics.quantiles([_once(call) for _ in range(CALLS)], n=100)[-1]


def _pipelined(session: Any, rival: Rival) -> list[Row]:
    nop, count = session.get_function("bench.nop"), 100_000
    nothing = [()] * count

    def ours() -> float:
        with session.pipeline() as p:
            return _once(lambda: p.map(nop, nothing)) / count

    [row] = _in_turn("pipelined null call", {"farcall": ours, "tvm": lambda: rival("nop")}, {"tvm": 1 / 8}, 5)
    return [Row(row.work, row.ours, row.spread, reach_seconds=2e-6), row]


def _copies(session: Any, rival: Rival, limit: Limit) -> list[Row]:
    here = np.zeros(BULK, "uint8")
    there = session.tensor(here)
    up: Contenders = {
        "farcall": lambda: _once(lambda: session.copy(here, there)),
        "channel": lambda: limit("tcp", "send", 3, BULK),
        "tvm": lambda: rival("up"),
    }
    down: Contenders = {
        "farcall": lambda: _once(lambda: session.copy(there, here)),
        "channel": lambda: limit("tcp", "receive", 3, BULK),
        "tvm": lambda: rival("down"),
    }
    ratios = {"channel": 1 / 0.8, "tvm": 1 / 40}
    return [
        *_in_turn("copy 64 MiB up, TCP", up, ratios, 5),
        *_in_turn("copy 64 MiB down, TCP", down, ratios, 5),
    ]


def _small_copies(session: Any, rival: Rival) -> list[Row]:
    nop, here = session.get_function("bench.nop"), np.zeros(1024, "uint8")
    there = session.tensor(here)

    def row(work: str, source: Any, target: Any, theirs: str) -> list[Row]:
        contenders: Contenders = {
            "farcall": lambda: _median_call(lambda: session.copy(source, target)),
            "null call": lambda: _median_call(nop),
            "tvm": lambda: rival(theirs),
        }
        return _in_turn(work, contenders, {"null call": 1.3})

    return [*row("copy 1 KiB up", here, there, "up1k"), *row("copy 1 KiB down", there, here, "down1k")]


def _file(session: Any, rival: Rival, limit: Limit) -> list[Row]:
    data = os.urandom(FILE)
    numbers = iter(range(1 << 30))

    def ours() -> float:
        fresh = data[:-8] + next(numbers).to_bytes(8, "little")  # the server has none of this content
        return _once(lambda: session.upload(fresh, "bench.bin"))

    contenders: Contenders = {
        "farcall": ours,
        "channel": lambda: limit("tcp", "send", 3, FILE),
        "channel into a file": lambda: limit("tcp", "store", 3, FILE),
        "tvm": lambda: rival("file"),
    }
    return _in_turn("upload 32 MiB", contenders, {"channel": 1 / 0.6}, 5)


def _connect(server: Any, rival: Rival) -> list[Row]:
    def ours() -> float:
        start = time.perf_counter()
        session = fc.connect(server.url, key="k")
        took = time.perf_counter() - start
        session.close()
        time.sleep(0.3)  # a warm server has its next worker ready
        return took

    [row] = _in_turn("connect to a warm server", {"farcall": ours, "tvm": lambda: rival("connect")}, {})
    return [Row(row.work, row.ours, row.spread, reach_seconds=3e-3), row]
