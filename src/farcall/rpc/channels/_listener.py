"""Accepts clients: a listening socket, and the function that opens a connection for each arrival."""

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
    """A client that has connected, and sent nothing yet.

    Attributes:
        socket: a non-blocking socket to the client.
        source: the IP address, or the user of this machine, to which penalties are charged.
        peer: the client's name in messages.
    """

    socket: socket.socket
    source: str
    peer: str


Opener = Callable[["Address", Arrival], Awaitable[Accepted]]


class Listener:
    """One address at which a server listens. Made by the ``listen`` of a scheme.

    The accepting loop calls :meth:`accept`, which is quick. The client's own task calls :meth:`open` under a
    deadline, because it waits for the client (for a TLS handshake, say).

    Args:
        address: to listen at; port 0 takes a free one.
        opener: opens the connection of an arrival. If it raises ProtocolError or OSError, it need not close.
        on_end: ends the connections' tasks when the server ends.
        listening: a listening stream socket; None makes one for the host or path of ``address``.
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
        """The URL at which clients connect, with the actual port."""
        return str(self.address)

    async def accept(self) -> Arrival:
        """Wait for the next client.

        Raises:
            OSError: out of descriptors, or the client has closed; both are temporary.
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
        """Open the connection for the client's handshake. Closes the arrival's socket on failure.

        Raises:
            ProtocolError: the client speaks another protocol.
            OSError: the client has closed.
        """
        try:
            return await self._opener(self.address, arrival)
        except BaseException:
            arrival.socket.close()
            raise

    def close(self) -> None:
        """Stop listening; open connections go on. Safe to call twice."""
        close_listener(self._listener)

    async def end(self) -> None:
        """Stop listening, and end the tasks of open connections."""
        self.close()
        if self._on_end is not None:
            await self._on_end()


def _arrival(connection: socket.socket, name: tuple[object, ...]) -> Arrival:
    if connection.family != socket.AF_UNIX:
        return Arrival(connection, str(name[0]), ":".join(map(str, name[:2])))
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid, uid, _ = _PEER_CREDENTIALS.unpack(data)
    return Arrival(connection, f"user {uid}", f"process {pid} of user {uid}")
