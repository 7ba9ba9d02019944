"""The event-driven server: bytes in, bytes out, for a program with its own event loop or without sockets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from farcall import _core
from farcall.errors import ConnectionLostError, ProtocolError, RemoteError
from farcall.rpc.server._dispatch import Policy, Rights
from farcall.rpc.shared._handshake import ServerHandshake, server_accept, server_refuse
from farcall.rpc.shared._limits import Limits


class EventServer:
    """One session without a connection: the host program moves the bytes.

    ::

        with EventServer() as server:
            while not server.closed:
                write(server.feed(read()))

    It runs the functions that are registered in this process in this process, so a function that crashes ends
    the host program. :meth:`feed` returns when all complete requests have been served. It never waits, so it
    cannot call functions of the client. Codec and dispatch are those of the full server.

    Args:
        key: the key that the client must send in the handshake, which opens a TCP connection. None: no
            handshake; the stream begins with packets, as on a pipe.
        workdir: the session's folder; None makes one, which is removed with the session.
        limits: of the session.
        rights: what the client may do.
        peer: the client's name in messages.
        entropy: returns as many random bytes as its argument says. Handles are drawn from them, so that no
            client can guess those of another session. None: the operating system's. With a seeded generator,
            two sessions answer alike: for tests, never for a server that strangers can reach.
    """

    def __init__(
        self,
        key: str | None = None,
        workdir: Path | None = None,
        limits: Limits | None = None,
        rights: Rights | None = None,
        peer: str = "the client",
        entropy: Callable[[int], bytes] | None = None,
    ) -> None:
        limits = limits or Limits()
        self.error: RemoteError | None = None  #: why the session ended, unless the client said goodbye
        self._closed = False
        self._key = key
        self._handshake = None if key is None else ServerHandshake(limits.key_bytes)
        self._early = b""  # bytes of a handshake that is not complete
        self._folder = tempfile.TemporaryDirectory(prefix="farcall-session-") if workdir is None else None
        folder = workdir or Path(self._folder.name)  # type: ignore[union-attr]
        self._channel = _core.MemoryChannel()
        self._endpoint = _core.Endpoint(self._channel, peer, limits, client=False)
        self._dispatcher = Policy(folder, limits, waits=False).dispatcher(self._endpoint, rights, entropy)

    @property
    def closed(self) -> bool:
        """Whether the session is over; the host then sends its last bytes and closes the connection."""
        return self._closed

    @property
    def handles(self) -> int:
        """The number of handles that the client holds."""
        return self._dispatcher.handles

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        """Take bytes from the client, in pieces of any size.

        Args:
            data: the bytes; empty when the client has closed the connection.

        Returns:
            The bytes to send to the client: all replies to the requests in ``data``. N requests for copies
            can return up to N times ``limits.tensor_bytes``. If the client broke the protocol, the last reply
            tells it so, and :attr:`closed` is set.

        Raises:
            RuntimeError: a function of this session calls it.
        """
        if isinstance(data, str):
            raise TypeError("feed() takes bytes, got str; text is data.encode()")
        if self._dispatcher.serving:
            raise RuntimeError("feed() is running: a function of this session cannot feed it")
        if self._closed:
            return b""
        answer = b""
        if self._handshake is not None:
            answer, data = self._shake(bytes(data))
        if data:
            self._channel.feed(data)
        elif self._handshake is None and not answer:
            self._channel.feed_end()
        return answer + (b"" if self._handshake or self._closed else self._serve())

    def close(self) -> None:
        """End the session and free the objects that the client held. Safe to call twice.

        Raises:
            RuntimeError: a function of this session calls it.
        """
        self._dispatcher.close()
        self._closed = True
        self._endpoint.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __repr__(self) -> str:
        return f"<farcall event server, {'closed' if self.closed else f'{self.handles} handles'}>"

    def __enter__(self) -> EventServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> bytes:
        try:
            self._closed = self._dispatcher.serve()
        except (ProtocolError, ConnectionLostError) as error:
            self.error = error
            self._closed = True
        return self._channel.take()

    def _shake(self, data: bytes) -> tuple[bytes, bytes]:
        """The answer to a handshake, and the bytes after it."""
        handshake = self._handshake
        assert handshake is not None  # noqa: S101
        self._early += data
        self._closed = not data
        try:
            while not self._closed and handshake.needed and len(self._early) >= handshake.needed:
                piece, self._early = self._early[: handshake.needed], self._early[handshake.needed :]
                handshake.feed(piece)
        except ProtocolError as error:
            self.error = error
            self._closed = True
        if self._closed or handshake.needed:
            return b"", b""
        self._handshake = None
        key = self._key or ""
        if handshake.hello is None or handshake.hello.key != key:
            self._closed = True
            return server_refuse(), b""
        return server_accept(key), self._early
