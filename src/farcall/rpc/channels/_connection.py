"""The two ends of a line that was just made: what a client speaks on, and what a server hands to a worker."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from farcall._core import Channel

if TYPE_CHECKING:
    from farcall.rpc.channels._address import Address


class Connection:
    """A client's line to a server, on which a session can begin. Made by :func:`farcall.rpc.channels.dial`.

    Attributes:
        address: of the server.
        channel: on which the handshake is spoken.
        shakes_hands: whether there is a handshake; on a pipe the packets begin at once, as TVM has it.
        trouble: what ended the line, where more is known than that it ended.
    """

    def __init__(
        self,
        address: Address,
        channel: Channel,
        *,
        shakes_hands: bool = True,
        packets: Channel | None = None,
        on_close: Callable[[], object] | None = None,
        trouble: Callable[[], str | None] = lambda: None,
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
        """Give everything back; a child process is given a moment to end. Safe to call twice."""
        self._packets.close()
        self.channel.close()
        if self._on_close is not None:
            on_close, self._on_close = self._on_close, None
            on_close()


class Accepted:
    """A server's line to a client. Made by :meth:`farcall.rpc.channels.Listener.open`.

    Attributes:
        address: that the client came to.
        socket: on which the handshake, last words and (but for shared memory) the packets go: a stream socket
            that does not block.
        shared: a memory file with the rings for the packets, or None.
        peer: who that is, in words.
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
        """What a worker needs to serve it: see :func:`farcall.rpc.channels.channel_of`."""
        return [self.socket.fileno(), *([] if self.shared is None else [self.shared])]

    def close(self) -> None:
        """Close what this process holds of it; a worker that was given it goes on. Safe to call twice."""
        self.socket.close()
        if self.shared is not None:
            os.close(self.shared)
            self.shared = None
