"""Peers that lie, stay silent, forge or die: a bad session never ends the server, and costs little."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farcall.errors import ConnectError, WorkerCrashedError
from farcall.rpc import Limits, Server, Session, connect

from ..waiting import SECONDS, has_ended
from .peers import Peer, device, dl_tensor, integer, message, packet, pointer, sequence, text
from .servers import INIT, timeless_server, works


def handshake(key: bytes) -> bytes:
    return struct.pack("<ii", 0xFF271, len(key)) + key


# ---- before a session


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(4096),
        handshake(b""),
        handshake(b" "),
        struct.pack("<ii", 0xFF271, -1),
        struct.pack("<ii", 0xFF271, 0x7FFFFFFF),
        handshake(b"\xff\xfe\xfd client:k"),
        handshake(b"client:k -timeout=ab"),
        handshake(b"client:k -timeout=-1"),
        handshake(b"client:other"),
        handshake(b"client:k")[:5],
    ],
    ids=range(12),
)
def test_handshakes_that_are_none(server: Server, data: bytes) -> None:
    with Peer(server) as raw:
        with contextlib.suppress(OSError):  # refused before all of it was sent
            raw.send(data)
            raw.socket.shutdown(socket.SHUT_WR)
        assert len(raw.rest()) <= 4
    assert works(server)


def test_random_bytes(server: Server) -> None:
    chance = random.Random(7)  # noqa: S311
    for _ in range(30):
        with Peer(server) as raw, contextlib.suppress(OSError):
            raw.send(chance.randbytes(chance.randint(1, 300)))
    assert works(server)


def test_silent_peers_delay_nobody(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        for size in [0, 1, 4, 8, 10] * 10:
            raw = stack.enter_context(Peer(server))
            raw.send(handshake(b"client:k")[:size])
        assert works(server)


def test_a_handshake_has_a_deadline() -> None:
    with timeless_server(handshake_seconds=60) as (server, clock), Peer(server) as silent:
        while not silent.is_answered():  # its time begins when the server has accepted it
            clock.advance(60)
        assert silent.rest() == b""
        assert works(server, key="")


def test_the_oldest_silent_peer_makes_room() -> None:
    limits = Limits(pending_peers=2, handshake_seconds=60)
    with Server(init=INIT, limits=limits) as server, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server)) for _ in range(5)]
        assert [peer.rest() for peer in peers[:3]] == [b""] * 3
        assert works(server, key="")


def test_who_only_shakes_hands_is_sent_away() -> None:
    with timeless_server(handshake_seconds=60) as (server, clock), Peer(server) as raw:
        raw.shake(b"client:")
        while not raw.is_answered():  # its time begins when its worker listens
            clock.advance(30)
        assert "the session was not begun within" in message(raw.reply())
        assert raw.rest() == b""


def test_who_begins_slowly_but_in_time_is_served() -> None:
    with Server(init=INIT, limits=Limits(handshake_seconds=60)) as server, Peer(server) as raw:
        raw.shake(b"client:")
        begin = packet(2, struct.pack("<Q", 5) + b"0.8.0" + sequence())
        for byte in begin:
            raw.send(bytes([byte]))
        assert raw.reply()[0] == 4
        assert raw.function("test.add") != 0


def insistent(url: str) -> Session:
    """A session, as soon as there is room."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            return connect(url, timeout=SECONDS)
        except ConnectError as error:
            if "its limit" not in str(error) or time.monotonic() > until:
                raise


def test_those_who_only_shake_hands_do_not_fill_a_server() -> None:
    limits = Limits(sessions=3, handshake_seconds=60)
    with Server(init=INIT, limits=limits) as server, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(Peer(server)) for _ in range(3)]
        for peer in silent:
            peer.shake(b"client:")
        honest = [insistent(server.url) for _ in range(3)]  # the silent ones' workers must be ready first
        for peer in silent:
            assert "not begun" in message(peer.reply())
        with pytest.raises(Exception, match="3 sessions open, which is its limit"):
            connect(server.url, timeout=SECONDS)
        for session in honest:
            with session:
                assert session.get_function("test.add")(20, 22) == 42


def test_a_full_server_says_so() -> None:
    with (
        Server(init=INIT, limits=Limits(sessions=1)) as server,
        connect(server.url, timeout=SECONDS) as first,
    ):
        with pytest.raises(Exception, match="1 session open, which is its limit"):
            connect(server.url, timeout=SECONDS)
        assert first.get_function("test.add")(1, 2) == 3


def test_a_client_may_shorten_its_session() -> None:
    with timeless_server() as (server, clock):
        with Peer(server) as raw:
            raw.shake(b"client: -timeout=60")
            raw.start()
            clock.advance(59)
            assert raw.function("test.add") != 0
            clock.advance(1)
            assert message(raw.reply()).startswith("RPCSessionTimeoutError: ")
            assert raw.rest() == b""
        assert works(server, key="")


# ---- packets


@pytest.mark.parametrize(
    "data",
    [
        packet(99),
        packet(22),
        packet(0),
        packet(-5),
        struct.pack("<Q", 2) + b"xx",
        struct.pack("<Q", 2**40),
        struct.pack("<Q", 2**62),
        packet(9, sequence(struct.pack("<i", 1234))),
        packet(9, sequence(struct.pack("<iQ", 70, 1))),
        packet(9, sequence(struct.pack("<iQ", 8, 2**63))),
        packet(9, sequence(text("x")) + b"trailing"),
        packet(9, struct.pack("<i", -1)),
        packet(9, sequence(struct.pack("<iQiii", 7, 0, 1, 0, -1) + bytes(40))),
        packet(9, sequence(struct.pack("<iQiii", 7, 0, 1, 0, 2**30) + bytes(40))),
        packet(7, bytes(10)),
    ],
    ids=range(15),
)
@pytest.mark.parametrize("begun", [False, True])
def test_packets_that_cannot_be_read_end_their_session_with_a_reason(
    server: Server, data: bytes, begun: bool
) -> None:
    with Peer(server) as raw:
        raw.shake()
        if begun:
            raw.start()
        raw.send(data)
        assert message(raw.reply()).startswith("ProtocolError: ")
        assert raw.rest() == b""
    assert works(server)


def test_requests_that_can_be_read_but_not_done_leave_the_session_open(peer: Peer) -> None:
    refused = [
        (2, struct.pack("<Q", 5) + b"0.8.0" + sequence()),  # begun already
        (4, sequence()),
        (5, sequence(text("x"))),
        (9, sequence()),
        (9, sequence(integer(1), integer(2))),
        (9, sequence(integer(1))),
        (10, sequence(pointer(0))),
        (10, sequence(pointer(2**63))),
        (10, sequence(text("x"))),
        (3, struct.pack("<Q", 0) + sequence()),
        (3, struct.pack("<Q", 0xDEADBEEF) + sequence()),
        (13, sequence(device(), integer(2**60), integer(64), struct.pack("<iIi", 5, 0, 0))),
        (13, sequence(device(), integer(-1), integer(64), struct.pack("<iIi", 5, 0, 0))),
        (13, sequence(device(99), integer(8), integer(64), struct.pack("<iIi", 5, 0, 0))),
        (14, sequence(device(), pointer(12345))),
        (16, sequence(*[struct.pack("<i", 7) + dl_tensor(1, (4,))] * 2, pointer(0))),
        (17, sequence(struct.pack("<i", 7) + dl_tensor(0, (2**62, 2**62)), struct.pack("<i", 0))),
        (17, sequence(struct.pack("<i", 7) + dl_tensor(0, (4,)), text("texture"))),
    ]
    for code, body in refused:
        assert message(peer.ask(code, body)), code
    assert peer.call(peer.function("test.add"), integer(1), integer(2))[0] == 4


def test_nothing_is_done_before_the_session_begins(server: Server) -> None:
    with Peer(server) as raw:
        raw.shake()
        assert "kInitServer" in message(raw.ask(9, sequence(text("test.add"))))
        assert "kInitServer" in message(raw.ask(3, struct.pack("<Q", 1) + sequence()))
        assert "kInitServer" in message(raw.copy_in(dl_tensor(1, (4,)), b"abcd"))
        assert "kInitServer" in message(raw.copy_out(dl_tensor(1, (4,)), 4))
        assert "0.7.0" in message(raw.start(version="0.7.0"))
        constructor = struct.pack("<Q", 5) + b"0.8.0" + sequence(text("rpc.Connect"))
        assert "constructor" in message(raw.ask(2, constructor))
        assert raw.start()[0] == 4


def test_a_packet_that_breaks_off_at_any_byte(server: Server) -> None:
    whole = packet(7, dl_tensor(1, (4,)) + struct.pack("<Q", 4) + b"abcd")
    for end in (1, 7, 8, 11, 12, 20, len(whole) - 1):
        with Peer(server) as raw:
            raw.shake()
            raw.start()
            raw.send(whole[:end])
            raw.socket.shutdown(socket.SHUT_WR)
            assert raw.rest() == b""
    assert works(server)


def test_pipelined_requests_are_answered_in_order(peer: Peer) -> None:
    add = peer.function("test.add")
    peer.send(
        b"".join(packet(3, struct.pack("<Q", add) + sequence(integer(i), integer(0))) for i in range(100))
    )
    for i in range(100):
        code, body = peer.reply()
        assert (code, struct.unpack_from("<q", body, len(body) - 8)) == (4, (i,))


LIE = """
import resource, socket, struct, sys
from pathlib import Path

from farcall import _core
from farcall.rpc import Limits
from farcall.rpc.server._dispatch import Policy

def peak():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmPeak")).split()[1])

def serve(data):
    ours, theirs = socket.socketpair()
    endpoint = _core.Endpoint(ours.detach(), "test", Limits(), client=False)
    with theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        try:
            Policy(Path("."), Limits()).dispatcher(endpoint).serve()
        except Exception as error:
            return type(error).__name__
        finally:
            endpoint.close()

serve(struct.pack("<Qi", 4, 1))
before = peak()
for length, code in [(2**30, 3), (2**30, 4), (2**34, 7), (2**62, 3), (2**16, 9), (2**63, 0)]:
    print(serve(struct.pack("<Qi", length, code)))
    print(serve(struct.pack("<Qi", length, code) + bytes(40)))
print(peak() - before)
"""


def test_a_lie_about_a_length_costs_no_memory() -> None:
    plain = {**os.environ, "PYTHONMALLOC": "malloc"}  # Python's own arenas grow by a MiB, at any moment
    done = subprocess.run([sys.executable, "-c", LIE], capture_output=True, text=True, check=False, env=plain)
    assert done.returncode == 0, done.stderr
    *errors, growth = done.stdout.split()
    assert set(errors) <= {"ConnectionLostError", "ProtocolError"}
    assert int(growth) <= 512  # KiB of virtual memory: malloc's heap grows by 132 at a time


# ---- handles and bounds


@given(st.integers(0, 2**64 - 1))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_forged_handles(peer: Peer, guess: int) -> None:
    calls = [
        peer.call(guess),
        peer.ask(10, sequence(pointer(guess))),
        peer.ask(14, sequence(device(), pointer(guess))),
        peer.copy_in(dl_tensor(guess, (4,)), b"abcd"),
        peer.copy_out(dl_tensor(guess, (4,)), 4),
    ]
    for reply in calls:
        assert message(reply).startswith("InvalidHandleError: ")


def test_handles_are_checked_by_kind_and_die_once(peer: Peer) -> None:
    function, data = peer.function("test.add"), peer.alloc(4)
    echo = peer.function("test.echo")
    for reply in (
        peer.call(data),
        peer.ask(10, sequence(pointer(data))),
        peer.ask(14, sequence(device(), pointer(function))),
        peer.copy_out(dl_tensor(function, (4,)), 4),
        peer.call(echo, struct.pack("<iQ", 73, function)),
        peer.call(echo, struct.pack("<iQ", 68, data)),
        peer.call(echo, struct.pack("<iIQ", 115, 115, data)),
    ):
        assert message(reply).startswith("InvalidHandleError: ")
    assert "pointer has no meaning" in message(peer.call(echo, pointer(function)))
    assert peer.ask(10, sequence(pointer(function)))[0] == 4
    assert peer.ask(14, sequence(device(), pointer(data)))[0] == 4
    for reply in (
        peer.call(function),
        peer.ask(10, sequence(pointer(function))),
        peer.ask(14, sequence(device(), pointer(data))),
        peer.copy_out(dl_tensor(data, (4,)), 4),
    ):
        assert message(reply).startswith("InvalidHandleError: ")


def test_handles_of_another_session_name_nothing(peer: Peer, server: Server) -> None:
    theirs = peer.function("test.add"), peer.alloc(16)
    with Peer(server) as other:
        other.shake()
        other.start()
        assert message(other.call(theirs[0])).startswith("InvalidHandleError")
        assert message(other.copy_out(dl_tensor(theirs[1], (16,)), 16)).startswith("InvalidHandleError")


EDGES = [0, 1, 99, 100, 101, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 100, 2**64 - 1]


def test_new_memory_shows_nothing_of_the_process(peer: Peer) -> None:
    for size in (64, 1000, 100_000, 1 << 20):
        used = peer.alloc(size)
        peer.copy_in(dl_tensor(used, (size,)), b"\xaa" * size)
        peer.ask(14, sequence(device(), pointer(used)))
        for _ in range(10):
            handle = peer.alloc(size)
            assert peer.copy_out(dl_tensor(handle, (size,)), size) == (8, bytes(size))


@pytest.mark.parametrize("offset", EDGES)
def test_copies_out_stay_in_their_allocation(peer: Peer, offset: int) -> None:
    data = peer.alloc(100)
    assert peer.copy_in(dl_tensor(data, (100,)), bytes(range(100)))[0] == 4
    for nbytes in EDGES:
        code, body = peer.copy_out(dl_tensor(data, (100,), offset), nbytes)
        if offset + nbytes <= 100:
            assert (code, body) == (8, bytes(range(offset, offset + nbytes)))
        else:
            assert code == 5, (offset, nbytes)
    assert peer.copy_out(dl_tensor(data, (100,)), 100) == (8, bytes(range(100)))


@pytest.mark.parametrize("offset", EDGES)
def test_copies_in_stay_in_their_allocation(peer: Peer, offset: int) -> None:
    data, guard = peer.alloc(100), peer.alloc(100)
    for handle in (data, guard):
        assert peer.copy_in(dl_tensor(handle, (100,)), bytes(100))[0] == 4
    for nbytes in (0, 1, 99, 100, 101, 5000):
        code, _ = peer.copy_in(dl_tensor(data, (nbytes,), offset), b"\1" * nbytes)
        assert code == (4 if offset + nbytes <= 100 else 5), (offset, nbytes)
    assert peer.copy_out(dl_tensor(guard, (100,)), 100) == (8, bytes(100))


def test_tensor_arguments_stay_in_their_allocation(peer: Peer) -> None:
    total, data = peer.function("test.sum"), peer.alloc(100)
    peer.copy_in(dl_tensor(data, (100,)), b"\1" * 100)
    for shape, offset in [((100,), 0), ((10, 10), 0), ((1,), 99), ((0,), 100), ((2**40, 0), 0)]:
        assert peer.call(total, struct.pack("<i", 7) + dl_tensor(data, shape, offset))[0] == 4
    for shape, offset in [((101,), 0), ((1,), 100), ((2**62, 4), 0), ((2**62, 2**62), 0), ((1,), 2**64 - 1)]:
        assert message(peer.call(total, struct.pack("<i", 7) + dl_tensor(data, shape, offset)))


def test_copies_among(peer: Peer) -> None:
    source, target = peer.alloc(8), peer.alloc(8)
    peer.copy_in(dl_tensor(source, (8,)), b"abcdefgh")
    peer.copy_in(dl_tensor(target, (8,)), bytes(8))

    def among(size: int, start: int, to: int) -> int:
        views = (dl_tensor(source, (size,), start), dl_tensor(target, (size,), to))
        return peer.ask(16, sequence(*(struct.pack("<i", 7) + view for view in views), pointer(0)))[0]

    assert (among(4, 2, 1), among(8, 1, 0), among(8, 0, 1), among(2**62, 0, 0)) == (4, 5, 5, 5)
    assert peer.copy_out(dl_tensor(target, (8,)), 8) == (8, b"\0cdef\0\0\0")


def test_memory_has_a_limit() -> None:
    with Server(init=INIT, limits=Limits(tensor_bytes=1000)) as server, Peer(server) as raw:
        raw.shake(b"client:")
        raw.start()
        first = raw.alloc(600)
        assert "limit is 1000" in message(
            raw.ask(13, sequence(device(), integer(401), integer(1), struct.pack("<iIi", 5, 0, 0)))
        )
        assert raw.alloc(400)
        assert raw.ask(14, sequence(device(), pointer(first)))[0] == 4
        assert raw.alloc(600)


# ---- crashes


def crash(server: Server, how: str, *args: int) -> int:
    """Crash a session's worker; its process id."""
    with connect(server.url, key="k", timeout=SECONDS) as session:
        pid = session.get_function("test.pid")()
        with pytest.raises(WorkerCrashedError, match=rf"`test\.{how}`"):
            session.get_function(f"test.{how}")(*args)
        with pytest.raises(WorkerCrashedError):
            session.get_function("test.add")
    return int(pid)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_twenty_crashes_leave_the_server_whole(server: Server) -> None:
    assert works(server)
    deaths = [("segfault",), ("kill", signal.SIGABRT), ("kill", signal.SIGKILL), ("exit", 0), ("exit", 9)]
    pids = [crash(server, how, *map(int, args)) for how, *args in deaths]
    before = descriptors()
    for _ in range(3):
        pids += [crash(server, how, *map(int, args)) for how, *args in deaths]
    assert works(server)
    assert all(has_ended(pid) for pid in pids)
    assert len(set(pids)) == 20
    assert descriptors() <= before + 16  # those of the last sessions, which are being ended now


def test_a_worker_that_dies_while_idle(server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        pid = session.get_function("test.pid")()
        os.kill(pid, signal.SIGSEGV)
        assert has_ended(pid)
        with pytest.raises(WorkerCrashedError, match="SIGSEGV"):
            session.get_function("test.add")
    assert works(server)


def test_a_client_that_leaves_does_not_leave_a_worker_behind() -> None:
    with Server(init=INIT, limits=Limits(abandoned_seconds=0.1)) as server, Peer(server) as raw:
        raw.shake(b"client:")
        raw.start()
        code, body = raw.call(raw.function("test.pid"))
        pid = struct.unpack_from("<q", body, len(body) - 8)[0]
        raw.send(packet(3, struct.pack("<Q", raw.function("test.forever")) + sequence()))
        raw.socket.close()
        assert code == 4
        assert has_ended(pid)


@pytest.mark.parametrize(
    "name", ["ffi.ModuleLoadFromFile", "ffi.Module.load_from_file.so", "ffi.GetRegisteredTypeKeys"]
)
def test_functions_of_the_runtime_are_not_exported(server: Server, name: str) -> None:
    with connect(server.url, "k") as session:
        with pytest.raises(AttributeError, match="exports no function"):
            session.get_function(name)
        with pytest.raises(ValueError, match="exports no function"):
            session.benchmark(name, number=1)
        assert name not in session.get_function("farcall.rpc.functions")()
