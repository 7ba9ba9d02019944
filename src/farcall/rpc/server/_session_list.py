"""The list of a server's sessions: the supervisor tells it to its workers, whose clients may ask for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import struct
from collections.abc import Callable, Iterable

from farcall.errors import RemoteError

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_SECONDS = 1.0  # that a worker has to read the list; a worker that reads nothing delays the next one
_PAUSE = 0.05  # before the next accept, when no file descriptor is left
_BYTES = 16 << 20


class SessionList:
    """The supervisor's end: a socket that answers each process of this user with the list, one at a time.

    The socket has a name outside of the file system (unix(7)), which ends with the supervisor.

    Args:
        sessions: returns the facts of each open session.
    """

    def __init__(self, sessions: Callable[[], Iterable[dict[str, object]]]) -> None:
        self.address = f"farcall-sessions-{secrets.token_hex(16)}"
        self._sessions = sessions
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.bind(f"\0{self.address}")
        self._socket.listen()

    async def run(self) -> None:
        """Answer until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(self._socket)
            except OSError:
                await asyncio.sleep(_PAUSE)
                continue
            with peer, contextlib.suppress(OSError, TimeoutError):
                if _user(peer) == os.geteuid():
                    async with asyncio.timeout(_SECONDS):
                        await loop.sock_sendall(peer, json.dumps([*self._sessions()]).encode())

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _user(peer: socket.socket) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def ask(address: str | None) -> str:
    """The list, as JSON. For workers.

    Raises:
        RemoteError: this process has no supervisor, or it does not answer.
    """
    if address is None:
        raise RemoteError("this server has one session, and keeps no list of them")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(2 * _SECONDS)
            line.connect(f"\0{address}")
            with line.makefile("rb") as file:
                return file.read(_BYTES).decode()
    except OSError as error:
        raise RemoteError(f"the server does not list its sessions: {error}") from None
