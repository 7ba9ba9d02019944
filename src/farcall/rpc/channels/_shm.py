"""Shared memory on one host: two rings in a memory file, handed over a Unix socket.

The client makes the file and sends it with its first byte. The handshake goes over the socket; then the
packets go through the rings (native/session/posix/channel_shm.c), and the socket shows when a peer is gone.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from typing import TYPE_CHECKING

from farcall._core import Channel, SharedChannel
from farcall.errors import ConnectError, ProtocolError
from farcall.rpc.channels._connection import Accepted, Connection
from farcall.rpc.channels._listener import Arrival, Listener
from farcall.rpc.channels._sockets import CURE, open_socket

if TYPE_CHECKING:
    from farcall.rpc.channels._address import Address

_GREETING = b"\x5f"
_HEADER_BYTES = 4096
_RING_BYTES = 1 << 20  # fits into a cache, yet a peer rarely has to wait for the other


def make_rings() -> int:
    """A memory file with a ring for each direction; its pages are allocated on first use."""
    memory = os.memfd_create("farcall-rings", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, _HEADER_BYTES + 2 * _RING_BYTES)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return memory


def dial_shared(address: Address, deadline: float) -> Connection:
    """Connect over shared memory.

    Raises:
        ConnectError: no server listens there.
    """
    memory = make_rings()
    try:
        with open_socket(address, deadline) as connection:
            socket.send_fds(connection, [_GREETING], [memory])
            line = Channel(connection.detach())
        return Connection(address, line, packets=SharedChannel(line, memory))
    except OSError as error:
        raise ConnectError(f"{address}: {error.strerror}; {CURE}") from None
    finally:
        os.close(memory)


def listen_shared(address: Address) -> Listener:
    """Listen at the Unix socket over which clients send their memory files.

    Raises:
        UsageError: the address cannot be used.
    """
    return Listener(address, open_shared)


async def open_shared(address: Address, arrival: Arrival) -> Accepted:
    """Receive the client's memory file."""
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(arrival.socket, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(arrival.socket)
    data, descriptors, _, _ = socket.recv_fds(arrival.socket, len(_GREETING), 1)
    if data == _GREETING and descriptors:
        return Accepted(address, arrival.socket, arrival.peer, shared=descriptors[0])
    for descriptor in descriptors:
        os.close(descriptor)
    raise ProtocolError("the client sent no memory file; it dials shm:// only where the server does")
