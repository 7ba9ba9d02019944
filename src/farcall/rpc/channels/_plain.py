"""TCP and Unix sockets without layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farcall._core import Channel
from farcall.rpc.channels._connection import Accepted, Connection
from farcall.rpc.channels._listener import Arrival, Listener
from farcall.rpc.channels._sockets import open_socket

if TYPE_CHECKING:
    from farcall.rpc.channels._address import Address


def dial_plain(address: Address, deadline: float) -> Connection:
    """Connect over a plain socket.

    Raises:
        ConnectError: no server listens there.
    """
    return Connection(address, Channel(open_socket(address, deadline).detach()))


def listen_plain(address: Address) -> Listener:
    """Listen at a plain socket.

    Raises:
        UsageError: the address cannot be used.
    """
    return Listener(address, open_plain)


async def open_plain(address: Address, arrival: Arrival) -> Accepted:
    """The connection of an ``arrival`` at ``address`` that speaks farcall's protocol from its first byte."""
    return Accepted(address, arrival.socket, arrival.peer)
