"""The two ends of a new connection: the client's, and the server's, which it passes to a worker."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from farcall._core import Channel

if TYPE_CHECKING:
    from farcall.rpc.channels._address import Address


class Connection:
    """A client's connection to a server, before its session. Made by :func:`farcall.rpc.channels.dial`.

    Attributes:
        address: of the server.
        channel: carries the handshake.
        shakes_hands: whether there is a handshake; on a pipe the packets begin at once, as in TVM.
        trouble: returns the error that ended the connection, if it is known, else None.
    """

    def __init__(
        self,
        address: Address,
        channel: Channel,
        *,
        shakes_hands: bool = True,
        packets: Channel | None = None,
        on_close: Callable[[], object] | None = None,
        trouble: Callable[[], Exception | None] = lambda: None,
    ) -> None:
        self.address = address
        self.channel = channel
        self.shakes_hands = shakes_hands
        self.trouble = trouble
        self._packets = packets or channel
        self._on_close = on_close

    def begin(self) -> Channel:
        """The channel of the packets, once the handshake is done."""
        return self._packets

    def close(self) -> None:
        """Release all resources; a child process gets a moment to end. Safe to call twice."""
        self._packets.close()
        self.channel.close()
        if self._on_close is not None:
            on_close, self._on_close = self._on_close, None
            on_close()


class Accepted:
    """A server's connection to a client. Made by :meth:`farcall.rpc.channels.Listener.open`.

    Attributes:
        address: the one at which the client connected.
        socket: a non-blocking stream socket for the handshake, the supervisor's last message and (except with
            shared memory) the packets.
        shared: descriptor of the memory file with the rings for the packets, or None.
        peer: the client's name in messages.
        shakes_hands: whether a handshake comes first.
    """

    def __init__(
        self,
        address: Address,
        connection: socket.socket,
        peer: str,
        *,
        shared: int | None = None,
        shakes_hands: bool = True,
    ) -> None:
        self.address = address
        self.socket = connection
        self.shared = shared
        self.peer = peer
        self.shakes_hands = shakes_hands

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that a worker needs: see :func:`farcall.rpc.channels.channel_of`. Borrowed."""
        return [self.socket.fileno(), *([] if self.shared is None else [self.shared])]

    def close(self) -> None:
        """Close this process's descriptors; a worker that has its own goes on. Safe to call twice."""
        self.socket.close()
        if self.shared is not None:
            os.close(self.shared)
            self.shared = None
