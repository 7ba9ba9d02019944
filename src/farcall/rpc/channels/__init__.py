"""Channels: how the bytes of a session travel. A URL names one; all above is the same on each."""

from __future__ import annotations

import os
from collections.abc import Sequence

from farcall._core import Channel, SharedChannel
from farcall.errors import UsageError
from farcall.rpc.channels._address import Address, check_exposure, is_loopback, parse_address
from farcall.rpc.channels._connection import Accepted, Connection
from farcall.rpc.channels._listener import Arrival, Listener, open_plain
from farcall.rpc.channels._sockets import open_socket
from farcall.rpc.channels._tls import Tls

__all__ = [
    "Accepted",
    "Address",
    "Arrival",
    "Channel",
    "Connection",
    "Listener",
    "Tls",
    "channel_of",
    "check_exposure",
    "dial",
    "is_loopback",
    "listen",
    "parse_address",
]


def dial(url: str, deadline: float, *, tls: Tls | None = None) -> Connection:
    """Make a line to a server.

    Args:
        url: of the server, see :class:`Address`.
        deadline: time of ``time.monotonic()`` by which the line must stand.
        tls: the files for ``tls://`` and ``wss://``; without them the system's trusted certificates count.

    Raises:
        UsageError: ``url`` names no server, or a file cannot be used.
        ConnectError: nobody listens there, or one side does not trust the other.
        MissingExtraError: what the channel needs is not installed.
    """
    address = parse_address(url)
    match address.scheme:
        case "pipe":
            from farcall.rpc.channels._pipe import dial_pipe

            return dial_pipe(address)
        case "shm":
            from farcall.rpc.channels._shm import dial_shared

            return dial_shared(address, deadline)
        case "tls" | "ws" | "wss":
            from farcall.rpc.channels._layered import dial_layered

            return dial_layered(address, deadline, tls or Tls())
    return Connection(address, Channel(open_socket(address, deadline).detach()))


def listen(url: str, *, tls: Tls | None = None, insecure: bool = False) -> Listener:
    """Listen for clients.

    Args:
        url: where; port 0 takes a free one, see :attr:`Listener.url`.
        tls: the files for ``tls://`` and ``wss://``.
        insecure: whether a public address may be served in plain text.

    Raises:
        UsageError: the address cannot be used, or would expose this machine.
        MissingExtraError: what the channel needs is not installed.
    """
    check_exposure(url, insecure=insecure)
    address = parse_address(url)
    match address.scheme:
        case "shm":
            from farcall.rpc.channels._shm import open_shared

            return Listener(address, open_shared)
        case "tls" | "ws" | "wss":
            from farcall.rpc.channels._layered import layered_listener

            return layered_listener(address, tls or Tls())
        case "pipe":
            raise UsageError(f"{url}: a pipe is not listened at; its client starts the server")
    return Listener(address, open_plain)


def channel_of(descriptors: Sequence[int]) -> Channel:
    """The channel of what a worker was given: see :attr:`Accepted.descriptors`. They move in.

    Raises:
        ProtocolError: the client's memory file is none.
    """
    line = Channel(descriptors[0])
    if len(descriptors) == 1:
        return line
    try:
        return SharedChannel(line, descriptors[1], accepting=True)
    finally:
        os.close(descriptors[1])
