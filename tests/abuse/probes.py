"""Probes: one abuse each, then an honest client. True if the server survived it."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..rpc.peers import Peer, packet
from .drivers import LEASE, Driver, lives, reserved, within

CLAIM = 1 << 30  # bytes that a lie claims; the packet never comes
MOST_GROWTH = CLAIM * 15 // 16  # a spare worker that is still starting reserves memory for its threads, too

Probe = Callable[[Driver], bool]


@contextmanager
def session_of_bytes(server: Driver) -> Iterator[Peer]:
    with Peer(server.address) as peer:
        peer.shake()
        peer.start()
        yield peer


def silent(server: Driver) -> bool:
    """A peer connects and sends nothing."""
    with Peer(server.address):
        return server.honest()


def frozen(server: Driver) -> bool:
    """A client with a session is frozen (SIGSTOP): others are served, and its resources are released."""
    client, worker = server.client()
    with client:
        try:
            client.send_signal(signal.SIGSTOP)
            served = server.honest()
            return served and within(LEASE + 4, lambda: not lives(worker))
        finally:
            client.kill()


def lie(server: Driver) -> bool:
    """8 bytes claim a packet of 1 GiB: the server allocates for the bytes that arrive, not for the claim."""
    with session_of_bytes(server) as peer:
        peer.alloc(1)  # the session has read a packet before
        before = {pid: reserved(pid) for pid in server.pids()}
        peer.send(struct.pack("<Q", CLAIM))
        peer.send(struct.pack("<i", 3))  # so that the length was read when the next look is taken

        def grown() -> bool:
            now = {pid: reserved(pid) for pid in before if lives(pid)}
            return any(size - before[pid] > MOST_GROWTH for pid, size in now.items())

        return not within(0.5, grown)


def worker_killed(server: Driver) -> bool:
    """The process of a session dies, as if a kernel crashed."""
    client, worker = server.client()
    with client:
        os.kill(worker, signal.SIGSEGV)
        stood = within(2, lambda: not lives(worker)) and server.honest()
        client.kill()
        return stood


def vanishes(server: Driver) -> bool:
    """A client vanishes in the middle of a packet of 100 bytes."""
    with session_of_bytes(server) as peer:
        peer.send(struct.pack("<Qi", 100, 3) + bytes(20))
    return server.honest()


def unknown_code(server: Driver) -> bool:
    """A packet has a code that does not exist."""
    with session_of_bytes(server) as peer:
        peer.send(packet(99))
        peer.rest()
        return server.honest()


def empty_key(server: Driver) -> bool:
    """8 bytes arrive before any session: the handshake's magic number, and a key of length 0."""
    with Peer(server.address) as peer:
        peer.hello(b"")
        peer.rest()
    return server.honest()


def terminated(server: Driver) -> bool:
    """The server's first process gets SIGTERM: no process of the server stays."""
    pids = server.pids()
    server.process.terminate()
    return within(5, lambda: not any(lives(pid) for pid in pids))


PROBES: dict[str, Probe] = {
    "A": silent,
    "B": frozen,
    "C": lie,
    "D1": worker_killed,
    "D2": vanishes,
    "D3": unknown_code,
    "D4": empty_key,
    "F": terminated,
}
