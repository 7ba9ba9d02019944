"""Measures what docs/guarantees.md promises, and writes it: ``make guarantees``, three minutes."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from farcall.errors import RemoteError
from farcall.rpc import Server, Session, connect

from ..rpc.peers import Peer
from ..rpc.servers import INIT
from ..waiting import SECONDS, has_ended
from .drivers import LEASE, ROOT, lives, ours, resident, within
from .probes import session_of_bytes
from .scoreboard import markdown, table

PAGE = ROOT / "docs" / "guarantees.md"


class Promise(NamedTuple):
    """One line of the page."""

    text: str
    bound: str
    test: str
    measure: Callable[[], str]


@contextlib.contextmanager
def opened(server: Server, count: int) -> Iterator[list[Session]]:
    """The given number of open sessions."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(server.url, timeout=SECONDS)) for _ in range(count)]


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def visit(server: Server) -> None:
    """An honest client."""
    with connect(server.url, timeout=SECONDS) as session:
        assert session.get_function("test.add")(20, 22) == 42


def connects() -> str:
    with Server(init=INIT) as server:
        times = []
        for _ in range(200):
            began = time.perf_counter()
            with connect(server.url, timeout=SECONDS):
                times.append(time.perf_counter() - began)
            time.sleep(0.1)  # a warm server has its next worker ready
    return f"{milliseconds(statistics.median(times))} (median of 200)"


def among_the_silent() -> str:
    with Server(init=INIT) as server, contextlib.ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(Peer(server))
        times = sorted(timed(lambda: visit(server)) for _ in range(100))
    return f"{milliseconds(times[98])} (p99 of 100 visits)"


def lie() -> str:
    growth = []
    with ours() as server, session_of_bytes(server) as peer:
        before = {pid: resident(pid) for pid in server.pids()}
        peer.send(struct.pack("<Q", 1 << 30))
        peer.send(struct.pack("<i", 3))
        within(0.5, lambda: False)
        growth = [resident(pid) - size for pid, size in before.items() if lives(pid)]
    return f"{max(growth) // 1024} KiB"


def recovery() -> str:
    times = []
    with Server(init=INIT) as server:
        for _ in range(100):
            with connect(server.url, timeout=SECONDS) as session:
                with contextlib.suppress(RemoteError):
                    session.get_function("test.segfault")()
                times.append(timed(lambda: visit(server)))
    return f"{milliseconds(sorted(times)[98])} (p99 of 100 crashes, to the end of the next visit)"


def frozen() -> str:
    with ours() as server:
        client, worker = server.client()
        with client:
            client.send_signal(signal.SIGSTOP)
            took = timed(lambda: within(SECONDS, lambda: not lives(worker)))
            client.kill()
    return f"{took:.1f} s with a lease of {LEASE:g} s"


def memory() -> str:
    with Server(init=INIT) as server, opened(server, 100) as sessions:
        sizes = []
        for session in sessions:
            pid = session.get_function("test.pid")()
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            sizes.append(next(int(line.split()[1]) for line in lines if line.startswith("Pss:")))
    return f"{statistics.median(sizes) / 1024:.1f} MiB (proportional share, median of 100 sessions)"


def _p99(call: Callable[[], object]) -> float:
    return sorted(timed(call) for _ in range(2000))[1979]


def idle_neighbours() -> str:
    with Server(init=INIT) as server, connect(server.url, timeout=SECONDS) as busy:
        nop = busy.get_function("test.nop")
        ratios = []
        for _ in range(5):
            alone = _p99(nop)
            with opened(server, 199):
                ratios.append(_p99(nop) / alone)
    return f"{statistics.median(ratios):.2f}x (median of 5 rounds)"


def stopped() -> str:
    with ours() as server:
        pids = server.pids()
        server.process.terminate()
        took = timed(lambda: [has_ended(pid) for pid in pids])
    return f"{milliseconds(took)}, {len(pids)} processes"


PROMISES = [
    Promise("Opening a session with a warm server takes", "3 ms", "tests/abuse/guarantees.py", connects),
    Promise(
        "1,000 silent peers delay an honest client by",
        "100 ms",
        "test_crowds.py::test_silent_peers_keep_nobody_out",
        among_the_silent,
    ),
    Promise(
        "8 bytes that claim a false length make the server allocate",
        "128 KiB",
        "test_probes.py::test_our_server_stands[C]",
        lie,
    ),
    Promise(
        "After a session crashes, the next one works within",
        "300 ms",
        "test_crowds.py::test_a_thousand_crashes_leave_the_server_whole",
        recovery,
    ),
    Promise(
        "The server releases the resources of a frozen client within",
        "the lease + 2 s",
        "test_probes.py::test_our_server_stands[B]",
        frozen,
    ),
    Promise(
        "Memory of one session",
        "5 MiB",
        "test_crowds.py::test_sessions_that_are_open_at_the_same_time",
        memory,
    ),
    Promise(
        "p99 of a null call beside 199 idle sessions",
        "1.5x alone",
        "test_crowds.py::test_sessions_that_are_open_at_the_same_time",
        idle_neighbours,
    ),
    Promise(
        "After SIGTERM, all processes of an idle server end within",
        "5 s",
        "test_probes.py::test_our_server_stands[F]",
        stopped,
    ),
]

# What has no figure but the count of tries in its test.
HELD = [
    (
        "After 1,000 crashes (SIGSEGV, SIGABRT, SIGKILL, exit, out of memory, endless loop), the 1,001st "
        "session works, and no descriptor or process has leaked",
        "test_crowds.py::test_a_thousand_crashes_leave_the_server_whole",
    ),
    (
        "When a connection ends at any byte, in either direction, the other side raises a typed error before "
        "its deadline",
        "test_cuts.py::test_a_line_that_ends_at_every_byte",
    ),
    (
        "200 concurrent sessions work",
        "test_crowds.py::test_sessions_that_are_open_at_the_same_time",
    ),
    (
        "The server refuses a forged, stale or foreign handle with InvalidHandleError",
        "../rpc/test_abuse.py::test_forged_handles",
    ),
    (
        "The server refuses a copy beyond its allocation, at every boundary value",
        "../rpc/test_abuse.py::test_copies_out_stay_in_their_allocation",
    ),
    (
        "Any bytes either parse or raise one typed error, in any chunking, on seven instruction sets",
        "../wire/test_wire.py::test_another_machine_says_the_same",
    ),
    ("The same holds for more than a million mutated packets", "../fuzz (make fuzz)"),
    (
        "When the supervisor is killed, its workers die, and their folders are removed",
        "../rpc/test_server.py::test_workers_go_when_their_supervisor_is_killed",
    ),
    (
        "Processes that a session started end with it, also those that left its process group",
        "../rpc/test_service.py::test_what_a_session_has_started_ends_with_it",
    ),
    (
        "A client that sends nothing after its handshake is disconnected when the handshake's time is over, "
        "so that such clients cannot fill a server",
        "../rpc/test_abuse.py::test_those_who_only_shake_hands_do_not_fill_a_server",
    ),
    (
        "New memory is zeroed, so that a client cannot read the process's earlier data",
        "../rpc/test_abuse.py::test_new_memory_shows_nothing_of_the_process",
    ),
    (
        "Silent peers cannot take all descriptors, and a server that ran out of descriptors recovers",
        "test_crowds.py::test_a_server_without_descriptors_recovers",
    ),
    (
        "The supervisor replaces a zygote that hangs",
        "../rpc/test_service.py::test_a_zygote_that_hangs_is_replaced",
    ),
    (
        "Revoking a token ends its sessions",
        "../rpc/test_service.py::test_a_token_that_is_revoked_ends_its_sessions",
    ),
    (
        "File names cannot lead out of the session's folder",
        "../rpc/test_files.py",
    ),
]


def page() -> str:
    """The whole page, measured now."""
    today = time.strftime("%Y-%m-%d", time.gmtime())
    load = os.getloadavg()[0]
    machine = f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores"
    parts = [
        "# Guarantees",
        "",
        "This page lists the promises of a farcall server. Each row names the test that holds the promise.",
        f"`make guarantees` measured the figures on {today} ({machine}, shared with other work)",
        f"and wrote this page. Times grow with the load of the machine, which was {load:.1f} at the start.",
        "Tests without a folder are in `tests/abuse`; the slow ones run in `make soak`.",
        "",
        "## Promises with a figure",
        "",
        "| promise | at most | measured | test |",
        "|---|---|---|---|",
        *(f"| {p.text} | {p.bound} | {p.measure()} | `{p.test}` |" for p in PROMISES),
        "",
        "## Promises that always hold",
        "",
        "| promise | test |",
        "|---|---|",
        *(f"| {text} | `{test}` |" for text, test in HELD),
        "",
        "## The scoreboard",
        "",
        "Each probe abuses a fresh server once. The server stands if an honest client can then connect and",
        "call within a second. The letters are those of the probes that were first run against TVM's server;",
        "E concerns a tracker, which farcall does not have yet.",
        "",
        markdown(table()),
        "",
    ]
    return "\n".join(parts)


def main() -> None:
    """Write it beside, then rename."""
    beside = PAGE.with_suffix(".new")
    beside.write_text(page())
    beside.replace(PAGE)


if __name__ == "__main__":
    main()
