"""Channels move the bytes of a session. A URL's scheme chooses one; all other code is the same for each."""

from __future__ import annotations

import os
from collections.abc import Sequence

from farcall._core import Channel, SharedChannel
from farcall.rpc.channels._address import Address, check_exposure, is_loopback, parse_address
from farcall.rpc.channels._connection import Accepted, Connection
from farcall.rpc.channels._listener import Arrival, Listener
from farcall.rpc.channels._plain import open_plain
from farcall.rpc.channels._schemes import Scheme
from farcall.rpc.channels._tls import Tls

__all__ = [
    "Accepted",
    "Address",
    "Arrival",
    "Channel",
    "Connection",
    "Listener",
    "Scheme",
    "Tls",
    "channel_of",
    "check_exposure",
    "dial",
    "is_loopback",
    "listen",
    "open_plain",
    "parse_address",
]
__dir__ = __all__.copy


def dial(url: str, deadline: float, *, tls: Tls | None = None) -> Connection:
    """Connect to a server.

    Args:
        url: of the server, see :class:`Address`.
        deadline: time of ``time.monotonic()`` by which the connection must be open.
        tls: the files for ``tls://`` and ``wss://``; without them the system's trusted certificates count.

    Raises:
        UsageError: ``url`` names no server, or a file cannot be used.
        ConnectError: no server listens at ``url``, or one peer does not trust the other.
        MissingExtraError: a package that the channel needs is not installed.
    """
    address = parse_address(url)
    return address.kind.dial(address, deadline, tls or Tls())


def listen(url: str, *, tls: Tls | None = None, insecure: bool = False) -> Listener:
    """Listen for clients.

    Args:
        url: to listen at; port 0 takes a free one, see :attr:`Listener.url`.
        tls: the files for ``tls://`` and ``wss://``.
        insecure: whether a public address may be served in plain text.

    Raises:
        UsageError: the address cannot be used, or would expose this machine.
        MissingExtraError: a package that the channel needs is not installed.
    """
    check_exposure(url, insecure=insecure)
    address = parse_address(url)
    return address.kind.listen(address, tls or Tls())


def channel_of(descriptors: Sequence[int]) -> Channel:
    """The channel on a worker's :attr:`Accepted.descriptors`. Takes ownership of them.

    Raises:
        ProtocolError: the client's memory file is not valid.
    """
    line = Channel(descriptors[0])
    if len(descriptors) == 1:
        return line
    try:
        return SharedChannel(line, descriptors[1], accepting=True)
    finally:
        os.close(descriptors[1])
