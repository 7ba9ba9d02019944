"""What workers ask the supervisor for their clients: the list of sessions, and what their own has printed."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterable

from farcall.errors import RemoteError

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_SECONDS = 1.0  # that a worker has to ask and to read; a slow one delays the next one
_PAUSE = 0.05  # before the next accept, when no file descriptor is left
_QUESTION_BYTES = 64
_BYTES = 16 << 20
_BEGIN = struct.Struct("<Q")
_DRAIN_SECONDS = 1.0  # for the supervisor to read what this process has printed
_LOOK_SECONDS = 0.0005


class QuestionSocket:
    """The supervisor's end: a socket that answers the processes of this user, one at a time.

    The socket has a name outside of the file system (unix(7)), which ends with the supervisor.

    Args:
        sessions: returns the facts of each open session.
        output: returns what the session whose worker has this process id has printed, from a position on, and
            the position of its first byte; None: no session has such a worker.
    """

    def __init__(
        self,
        sessions: Callable[[], Iterable[dict[str, object]]],
        output: Callable[[int, int], tuple[int, bytes] | None],
    ) -> None:
        self.address = f"farcall-server-{secrets.token_hex(16)}"
        self._sessions = sessions
        self._output = output
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
                pid, user = _peer(peer)
                if user == os.geteuid():
                    async with asyncio.timeout(_SECONDS):
                        question = await loop.sock_recv(peer, _QUESTION_BYTES)
                        await loop.sock_sendall(peer, self._answer(pid, question))

    def _answer(self, pid: int, question: bytes) -> bytes:
        """The answer; empty for what is no question of :func:`sessions` or :func:`output`."""
        match question.split():
            case [b"sessions"]:
                return json.dumps([*self._sessions()]).encode()
            case [b"output", start] if start.isdigit():
                found = self._output(pid, int(start))
                return b"" if found is None else _BEGIN.pack(found[0]) + found[1]
            case _:
                return b""

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _peer(peer: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end."""
    pid, user, _ = _CREDENTIALS.unpack(
        peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return pid, user


# ---- for workers


def sessions(address: str | None) -> str:
    """The list of the server's sessions, as JSON.

    Raises:
        RemoteError: this process has no supervisor, or it does not answer.
    """
    if address is None:
        raise RemoteError("this server has one session, and keeps no list of them")
    return _ask(address, b"sessions").decode()


def output(address: str | None, start: int) -> tuple[int, bytes]:
    """What this process has printed since it serves its session, as far as the supervisor keeps it.

    Args:
        address: the supervisor's; None: there is none.
        start: the number of bytes that the client knows already.

    Returns:
        The position of the first byte, which is greater than ``start`` if the bytes between are lost; and the
        bytes from there on.

    Raises:
        RemoteError: this process has no supervisor, or it does not answer.
    """
    if address is None:
        raise RemoteError("this server keeps no output: what its functions print is on its own stdout")
    _flush()
    _wait_until_read()
    answer = _ask(address, b"output %d" % max(0, start))
    if len(answer) < _BEGIN.size:
        raise RemoteError("the server does not know this session's process, so it has no output of it")
    return _BEGIN.unpack_from(answer)[0], answer[_BEGIN.size :]


def _ask(address: str, question: bytes) -> bytes:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(2 * _SECONDS)
            line.connect(f"\0{address}")
            line.sendall(question)
            with line.makefile("rb") as file:
                return file.read(_BYTES)
    except OSError as error:
        raise RemoteError(f"the server does not answer its own session: {error}") from None


def _flush() -> None:
    """Write the begun lines. (Whole ones are never buffered: see the zygote.)"""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a function has closed it, or put another object there
            stream.flush()
    libc = ctypes.CDLL(None)
    libc.fflush(ctypes.c_void_p.in_dll(libc, "stdout"))


def _wait_until_read() -> None:
    """Wait until the supervisor has read all that this process has printed; not for ever, since it stops
    reading while nobody reads the server's log."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    with contextlib.suppress(OSError):  # a kernel has closed its standard output, or has put a file there
        while any(fcntl.ioctl(1, termios.FIONREAD, bytes(4))) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
