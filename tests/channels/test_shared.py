"""Shared memory: a peer that writes garbage into the file, dies, or passes another kind of file."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall._core import Channel, SharedChannel
from farcall.errors import ConnectionLostError, DeadlineExceededError, ProtocolError
from farcall.rpc.channels import Connection, dial
from farcall.rpc.channels._shm import make_rings

from ..waiting import SECONDS, soon
from .places import MakePlace, accept

WRITTEN, TAKEN, LANE = 0, 64, 128  # offsets in the first page; the second lane is the listening side's
END = 1 << 31
RING = 1 << 20


class Hostile:
    """A peer that has the file and the socket, and breaks every rule."""

    def __init__(self) -> None:
        ours, self.line = socket.socketpair()
        self.file = make_rings()
        self.memory = mmap.mmap(self.file, 0)
        self.victim = SharedChannel(Channel(ours.detach()), self.file)

    def poke(self, offset: int, value: int) -> None:
        struct.pack_into("=I", self.memory, offset, value)

    def close(self) -> None:
        self.victim.close()
        self.line.close()
        self.memory.close()
        os.close(self.file)


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    peer = Hostile()
    yield peer
    peer.close()


@pytest.mark.parametrize("written", [RING + 1, 2 * RING, END - 1, END | (RING + 1), 0xFFFFFFFF])
def test_a_position_beyond_the_ring_breaks_the_channel(hostile: Hostile, written: int) -> None:
    hostile.poke(LANE + WRITTEN, written)
    with pytest.raises(ConnectionLostError, match="Protocol error"):
        hostile.victim.receive(100, soon())


@pytest.mark.parametrize("taken", [1, RING, END - 1 - RING])
def test_a_receiver_that_took_more_than_there_was(hostile: Hostile, taken: int) -> None:
    hostile.poke(TAKEN, taken)
    with pytest.raises(ConnectionLostError, match="Protocol error"):
        hostile.victim.send(b"x" * 10, soon())


def test_a_receiver_that_has_left(hostile: Hostile) -> None:
    hostile.poke(TAKEN, END)
    with pytest.raises(ConnectionLostError, match="takes no more"):
        hostile.victim.send(b"x" * 10, soon())


@given(st.lists(st.tuples(st.sampled_from(range(0, 256, 4)), st.integers(0, 0xFFFFFFFF)), max_size=6))
def test_anything_in_the_header_is_bytes_or_an_error(pokes: list[tuple[int, int]]) -> None:
    peer = Hostile()
    try:
        for offset, value in pokes:
            peer.poke(offset, value)
            for work in (lambda: peer.victim.receive(100, 0.0), lambda: peer.victim.send(b"x" * 100, 0.0)):
                with contextlib.suppress(ConnectionLostError, DeadlineExceededError):
                    work()
        # What it may do is bounded: the victim's own positions are its own.
        assert len(peer.memory) == 4096 + 2 * RING
    finally:
        peer.close()


def file_of(size: int) -> int:
    import fcntl

    memory = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, size)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return memory


@pytest.mark.parametrize(
    "size", [0, 4096, 4096 + 2 * 4095, 4096 + 2 * 2048, 4096 + 2 * 12288, 4096 + (1 << 26), 1 << 40]
)
def test_a_file_of_another_size_is_refused(size: int) -> None:
    memory = file_of(size)
    ours, theirs = socket.socketpair()
    line = Channel(ours.detach())
    try:
        with (
            theirs,
            pytest.raises(ProtocolError, match=f"file of {size} bytes cannot hold two rings"),
        ):
            SharedChannel(line, memory)
    finally:
        line.close()
        os.close(memory)


def test_a_file_that_can_shrink_is_refused() -> None:
    """If the file could be truncated, accessing it would crash this process."""
    ours, theirs = socket.socketpair()
    line = Channel(ours.detach())
    memory = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 4096 + 2 * RING)
    try:
        with theirs, pytest.raises(ProtocolError, match="not sealed against shrinking"):
            SharedChannel(line, memory)
        with theirs, pytest.raises(ProtocolError, match="not sealed against shrinking"):
            SharedChannel(line, sys.__stdin__.fileno() if sys.__stdin__ else 0)
    finally:
        line.close()
        os.close(memory)


def test_last_words_come_over_the_socket_behind_the_ring(hostile: Hostile) -> None:
    """The supervisor sends over the socket the reason why a worker has ended."""
    hostile.memory[4096 + RING : 4096 + RING + 5] = b"reply"
    hostile.poke(LANE + WRITTEN, 5)
    hostile.line.sendall(b" and last words")
    hostile.line.shutdown(socket.SHUT_WR)
    data = b""
    while piece := hostile.victim.receive(100, soon()):
        data += piece
    assert data == b"reply and last words"
    assert hostile.victim.receive(1, soon()) == b""


CHILD = """
import sys, time
from farcall.rpc.channels import dial
connection = dial(sys.argv[1], time.monotonic() + 20)
channel = connection.begin()
channel.send(b"half a mess")
print("sent", flush=True)
channel.receive(1)
"""


@pytest.mark.parametrize("asleep", [False, True])
def test_a_peer_that_is_killed_is_noticed(place: MakePlace, asleep: bool) -> None:
    """The socket shows it: a dead process cannot write to shared memory."""
    at = place("shm")
    arriving = at.loop.start(accept(at.listener))
    child = subprocess.Popen([sys.executable, "-c", CHILD, at.listener.url], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child, child.stdout:
        accepted = arriving.result(SECONDS)
        assert child.stdout.readline() == b"sent\n"
        line = Channel(os.dup(accepted.socket.fileno()))
        assert accepted.shared is not None
        channel = SharedChannel(line, accepted.shared, accepting=True)
        accepted.close()
        assert channel.receive(100, soon()) == b"half a mess"
        if asleep:  # let the wait get as far as sleeping before the peer dies
            with pytest.raises(DeadlineExceededError):
                channel.receive(1, time.monotonic() + 0.01)
        child.kill()
        assert channel.receive(1, soon()) == b""
        channel.close()


def test_a_plain_client_at_a_shared_place(place: MakePlace) -> None:
    at = place("shm")
    arriving = at.loop.start(accept(at.listener))
    connection: Connection = dial(at.listener.url.replace("shm:", "unix:"), soon())
    connection.channel.send(b"\x71\xf2\x0f\x00", soon())
    with pytest.raises(ProtocolError, match="sent no memory file"):
        arriving.result(SECONDS)
    assert connection.channel.receive(1, soon()) == b""
    connection.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_more_descriptors_than_asked_for_do_not_stay(place: MakePlace) -> None:
    at = place("shm")
    arriving = at.loop.start(accept(at.listener))
    memory = make_rings()
    before = descriptors()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(at.listener.address.path)
        socket.send_fds(client, [b"\x5f"], [memory, *[client.fileno()] * 20])
        arriving.result(SECONDS).close()
    assert descriptors() == before
    os.close(memory)
