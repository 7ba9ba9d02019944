"""Many peers at once, and many crashes in a row: one session does not disturb another."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from farcall.errors import DeadlineExceededError, RemoteError
from farcall.rpc import Limits, Server, Session, connect

from ..clock import ManualClock
from ..rpc.peers import Peer
from ..rpc.servers import INIT, stay, timeless_server
from ..waiting import SECONDS, has_ended
from .drivers import KEY, Driver, family, within


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(init=INIT, limits=Limits(memory_bytes=256 << 20)) as running:
        yield running


def works(server: Server) -> bool:
    with connect(server.url, timeout=SECONDS) as session:
        return bool(session.get_function("test.add")(20, 22) == 42)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


# ---- peers that say nothing, or nearly nothing


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_silent_peers_keep_nobody_out(server: Server, count: int) -> None:
    beginning = struct.pack("<ii", 0xFF271, 8)
    with contextlib.ExitStack() as stack:
        for i in range(count):
            peer = stack.enter_context(Peer(server))
            with contextlib.suppress(OSError):  # the server has closed it already, to make room
                peer.send(beginning[: i % 9])
        for _ in range(5):
            assert works(server)


def test_no_silent_peer_stays_behind(server: Server) -> None:
    assert works(server)
    before = descriptors()
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server)) for _ in range(100)]
        for peer in peers[:30]:  # the server closed the oldest: at most 64 may wait
            assert peer.rest() == b""
    assert within(SECONDS, lambda: descriptors() <= before + 2)


# ---- sessions


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_sessions_that_are_open_at_the_same_time(server: Server, count: int) -> None:
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(connect(server.url, timeout=SECONDS)) for _ in range(count)]
        adds = [session.get_function("test.add") for session in sessions]
        assert [add(i, 1) for i, add in enumerate(adds)] == list(range(1, count + 1))
    assert works(server)


# ---- descriptors

FEW = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
from farcall.rpc import serve_forever
serve_forever(init={INIT!r}, key={KEY!r}, on_listening=lambda url: print(url, flush=True))
"""


def test_silent_peers_do_not_take_all_descriptors() -> None:
    with Driver([sys.executable, "-c", FEW]) as server, contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(Peer(server.address))
        assert server.honest()


def test_a_server_without_descriptors_recovers() -> None:
    with Driver([sys.executable, "-c", FEW]) as server:
        refused = pytest.raises(RemoteError, match="cannot start a worker: Too many open files")
        with contextlib.ExitStack() as stack, refused:
            for _ in range(40):
                stack.enter_context(connect(server.url, key=KEY, timeout=SECONDS))
        assert within(SECONDS, server.honest)


# ---- crashes


def _crash(session: Session, how: str) -> None:
    name, _, arguments = how.partition(" ")
    with pytest.raises((RemoteError, MemoryError)):
        session.get_function(f"test.{name}")(*map(int, arguments.split()))


CRASHES = ["segfault", f"kill {signal.SIGABRT:d}", f"kill {signal.SIGKILL:d}", "exit 0", "exit 7", "grab 999"]


def _hang(session: Session, server: Server, clock: ManualClock) -> None:
    call = stay(session, server)
    clock.advance(1)
    clock.advance(60)
    assert isinstance(call.exception(SECONDS), DeadlineExceededError)


@pytest.mark.parametrize(("count", "hangs"), [(24, 12), pytest.param(1000, 50, marks=pytest.mark.slow)])
def test_crashes_leave_the_server_whole(count: int, hangs: int) -> None:
    """Each ``hangs``th session never returns, the others crash. Without spares, the zygote has children only
    while there are sessions.
    """
    chance = random.Random(count)  # noqa: S311
    with timeless_server(call_seconds=60, memory_bytes=256 << 20, spares=0) as (server, clock):
        with connect(server.url, timeout=SECONDS) as session:
            zygote = session.get_function("test.parent")()
        assert within(SECONDS, lambda: family(zygote) == {zygote})
        before = descriptors()
        for i in range(count):
            with connect(server.url, timeout=SECONDS) as session:
                pid = session.get_function("test.pid")()
                if i % hangs == hangs - 1:
                    _hang(session, server, clock)
                else:
                    _crash(session, chance.choice(CRASHES))
            assert has_ended(pid)
        assert works(server)
        assert within(SECONDS, lambda: family(zygote) == {zygote})
        assert within(SECONDS, lambda: descriptors() <= before + 2)


def test_a_crash_in_one_session_is_not_felt_in_another(server: Server) -> None:
    with connect(server.url, timeout=SECONDS) as steady:
        add = steady.get_function("test.add")
        for how, i in zip(CRASHES, itertools.count()):
            with connect(server.url, timeout=SECONDS) as session:
                _crash(session, how)
            assert add(i, 1) == i + 1
