"""Where clients arrive: a listening socket, and what turns an arrival into a line for a session."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from farcall.rpc.channels._connection import Accepted
from farcall.rpc.channels._sockets import close_listener, open_listener, tune

if TYPE_CHECKING:
    from farcall.rpc.channels._address import Address

_PEER_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


@dataclass(frozen=True)
class Arrival:
    """A client that has connected, and said nothing yet.

    Attributes:
        socket: to it; does not block.
        source: of whom penalties are remembered: an IP address, or a user of this machine.
        peer: who it is, in words.
    """

    socket: socket.socket
    source: str
    peer: str


Opener = Callable[["Address", Arrival], Awaitable[Accepted]]


class Listener:
    """One address at which a server listens. Made by the ``listen`` of a scheme.

    :meth:`accept` is quick, and for the loop that accepts; :meth:`open` is for the client's own task, under a
    deadline: what it waits for (a TLS handshake, say) is the client's business.

    Args:
        address: to listen at; port 0 takes a free one.
        opener: makes a line of an arrival. It raises ProtocolError or OSError, and then need not close.
        on_end: ends what the lines still need, when the server ends.
        listening: a stream socket that listens; without it one is made for the host or path of ``address``.
    """

    def __init__(
        self,
        address: Address,
        opener: Opener,
        on_end: Callable[[], Awaitable[None]] | None = None,
        *,
        listening: socket.socket | None = None,
    ) -> None:
        self._on_end = on_end
        self._listener = listening or open_listener(address)
        self._listener.setblocking(False)
        self._opener = opener
        if address.host:
            address = replace(
                address, host=self._listener.getsockname()[0], port=self._listener.getsockname()[1]
            )
        self.address = address

    @property
    def url(self) -> str:
        """Where clients connect, with the port that was taken."""
        return str(self.address)

    async def accept(self) -> Arrival:
        """The next client.

        Raises:
            OSError: out of descriptors, or the client left again; both pass.
        """
        connection, name = await asyncio.get_running_loop().sock_accept(self._listener)
        connection.setblocking(False)
        try:
            tune(connection)
            return _arrival(connection, name)
        except OSError:
            connection.close()
            raise

    async def open(self, arrival: Arrival) -> Accepted:
        """Make the line on which the client speaks its handshake. Closes the arrival's socket when it fails.

        Raises:
            ProtocolError: the client speaks something else.
            OSError: it left.
        """
        try:
            return await self._opener(self.address, arrival)
        except BaseException:
            arrival.socket.close()
            raise

    def close(self) -> None:
        """Listen no more; what was opened goes on. Safe to call twice."""
        close_listener(self._listener)

    async def end(self) -> None:
        """Close, and end what is left of the lines that were opened."""
        self.close()
        if self._on_end is not None:
            await self._on_end()


def _arrival(connection: socket.socket, name: tuple[object, ...]) -> Arrival:
    if connection.family != socket.AF_UNIX:
        return Arrival(connection, str(name[0]), ":".join(map(str, name[:2])))
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid, uid, _ = _PEER_CREDENTIALS.unpack(data)
    return Arrival(connection, f"user {uid}", f"process {pid} of user {uid}")
