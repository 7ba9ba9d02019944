"""The event-driven server: bytes in, bytes out, for a host that has its own loop (or no sockets at all)."""

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
    """One session, without a line: the host moves the bytes.

    ::

        with EventServer() as server:
            while not server.closed:
                write(server.feed(read()))

    It serves what is registered in this process, in this process: a function that crashes takes the host
    along. :meth:`feed` returns when the requests that are complete have been served. It never waits, so
    functions of the client cannot be called. Codec and dispatch are those of the full server.

    Args:
        key: what the client must name in the handshake that opens a TCP connection. None: no handshake, the
            stream begins with packets, as on a pipe.
        workdir: the session's folder; None makes one, which goes with the session.
        limits: what the client may ask for.
        rights: what it may do.
        peer: how messages call it.
        entropy: gives as many random bytes as it is asked for. Handles are drawn from them, so that no client
            can guess those of another session. None: the operating system's. With a seeded generator, two
            sessions answer alike: for tests, never for a server that strangers can reach.
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
        """Whether the session is over; the host sends what it still has, and closes the line."""
        return self._closed

    @property
    def handles(self) -> int:
        """How many handles the client holds."""
        return self._dispatcher.handles

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        """Take bytes of the client, in any pieces.

        Args:
            data: empty when the client has closed the line.

        Returns:
            What is to be sent to it: all that the piece asked for, so a piece of many requests for copies may
            be answered by as many times ``limits.tensor_bytes``. When it broke the protocol, these are its
            last words, and :attr:`closed` is set.

        Raises:
            RuntimeError: a function that is served calls it.
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
        """End the session, and free what the client held. Safe to call twice.

        Raises:
            RuntimeError: a function that is served calls it.
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
        """The answer to a handshake, and the bytes behind it."""
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
