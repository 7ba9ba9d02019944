"""Mailboxes: a file that a server and its clients, one after another, map. See docs/spec/mailbox.md.

A client uses the file's rings directly (native/session/posix/channel_mailbox.c), and so does the small
server. This server is a supervisor with workers, which expect sockets: a thread moves the bytes between the
rings and a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from farcall._core import Channel, Mailbox
from farcall.errors import ConnectError, ConnectionLostError, ConnectTimeoutError, DeadlineExceededError
from farcall.rpc.channels._connection import Connection
from farcall.rpc.channels._listener import Arrival, Listener
from farcall.rpc.channels._plain import open_plain
from farcall.rpc.channels._sockets import CURE

if TYPE_CHECKING:
    from farcall.rpc.channels._address import Address

_PIECE_BYTES = 1 << 18
_LINGER_SECONDS = 1.0


def dial_mailbox(address: Address, deadline: float) -> Connection:
    """Connect through the file at the address's path.

    Raises:
        ConnectError: there is no such file, or no server has it open.
        UsageError: the file is no mailbox of this version, or other users can open it.
    """
    box = Mailbox(address.path)
    try:
        return Connection(address, box.meet(deadline))
    except ConnectTimeoutError as error:
        raise ConnectTimeoutError(
            f"{address}: {error}; it serves one at a time: close that session, or use a second mailbox"
        ) from None
    except DeadlineExceededError:
        raise ConnectTimeoutError(
            f"{address}: its server did not take the client in time; a session may just have ended: try again"
        ) from None
    except ConnectError as error:
        raise ConnectError(f"{address}: {error}; {CURE}") from None


def listen_mailbox(address: Address) -> Listener:
    """Serve the mailbox at the address's path; makes the file if there is none.

    Raises:
        UsageError: the path cannot be used, or another server has it open.
    """
    return MailboxListener(address)


class MailboxListener(Listener):
    """Serves the clients of one mailbox, one after another."""

    def __init__(self, address: Address) -> None:  # no socket listens, so there is nothing to begin above
        self.address = address
        self._opener = open_plain
        self._box = Mailbox(address.path, serving=True)
        self._arrivals: asyncio.Queue[Arrival] = asyncio.Queue()
        self._thread: threading.Thread | None = None

    async def accept(self) -> Arrival:
        """Wait for the next client."""
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(
                target=self._serve, args=(loop,), name="farcall-mailbox", daemon=True
            )
            self._thread.start()
        return await self._arrivals.get()

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        user = f"user {os.geteuid()}"  # nobody else can open the file
        with contextlib.suppress(ConnectionLostError):  # the listener was closed
            while True:
                channel = self._box.meet()
                ours, theirs = socket.socketpair()
                ours.setblocking(False)
                arrival = Arrival(ours, user, f"the mailbox's client, of {user}")
                with contextlib.closing(channel), theirs:
                    loop.call_soon_threadsafe(self._arrivals.put_nowait, arrival)
                    _move(channel, theirs)

    def close(self) -> None:
        """Stop listening, and remove the file; an open session goes on. Safe to call twice."""
        self._box.interrupt()
        self._box.remove(self.address.path)

    async def end(self) -> None:
        """Stop listening, and wait for the end of the session, whose socket has been closed."""
        self.close()
        while not self._arrivals.empty():
            self._arrivals.get_nowait().socket.close()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _LINGER_SECONDS)


def _move(channel: Channel, line: socket.socket) -> None:
    """Move bytes both ways until both sides have finished, or one is gone."""

    def outward() -> None:
        data = memoryview(bytearray(_PIECE_BYTES))
        with _ending(channel, line):
            while size := line.recv_into(data):
                channel.send(data[:size])
            channel.finish()

    thread = threading.Thread(target=outward, name="farcall-mailbox-out", daemon=True)
    thread.start()
    data = memoryview(bytearray(_PIECE_BYTES))
    with _ending(channel, line):
        while size := channel.receive_into(data):
            line.sendall(data[:size])
        line.shutdown(socket.SHUT_WR)
    thread.join()


@contextlib.contextmanager
def _ending(channel: Channel, line: socket.socket) -> Iterator[None]:
    """One direction: when it breaks, the other one ends, too."""
    try:
        yield
    except (ConnectionLostError, OSError):
        channel.close()
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
