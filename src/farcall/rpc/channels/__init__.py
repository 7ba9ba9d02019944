"""Channels: how the bytes of a session travel. A URL names one; all above is the same on each."""

from __future__ import annotations

from farcall._core import Channel
from farcall.errors import UsageError
from farcall.rpc.channels._address import Address, check_exposure, is_loopback, parse_address
from farcall.rpc.channels._connection import Accepted, Connection
from farcall.rpc.channels._listener import Arrival, Listener, open_plain
from farcall.rpc.channels._sockets import open_socket

__all__ = [
    "Accepted",
    "Address",
    "Arrival",
    "Channel",
    "Connection",
    "Listener",
    "check_exposure",
    "dial",
    "is_loopback",
    "listen",
    "parse_address",
]


def dial(url: str, deadline: float) -> Connection:
    """Make a line to a server.

    Args:
        url: of the server, see :class:`Address`.
        deadline: time of ``time.monotonic()`` by which the line must stand.

    Raises:
        UsageError: ``url`` names no server.
        ConnectError: nobody listens there.
    """
    address = parse_address(url)
    if address.scheme in ("tcp", "unix"):
        return Connection(address, Channel(open_socket(address, deadline).detach()))
    raise UsageError(f"{url}: {address.scheme} is not served yet")


def listen(url: str, *, insecure: bool = False) -> Listener:
    """Listen for clients.

    Args:
        url: where; port 0 takes a free one, see :attr:`Listener.url`.
        insecure: whether a public address may be served in plain text.

    Raises:
        UsageError: the address cannot be used, or would expose this machine.
    """
    check_exposure(url, insecure=insecure)
    address = parse_address(url)
    if address.scheme in ("tcp", "unix"):
        return Listener(address, open_plain)
    raise UsageError(f"{url}: {address.scheme} is not served yet")
