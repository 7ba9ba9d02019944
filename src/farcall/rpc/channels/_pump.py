"""The pump moves bytes between a socket that speaks TLS or WebSocket and the plain socket of a session.

A session always uses a plain socket, whose other end the pump holds: neither a worker nor the native client
knows of the layers. On a server the pump is a task of the supervisor, on a client a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading

from farcall.errors import CertificateError, ProtocolError
from farcall.rpc.channels._layers import Layer
from farcall.rpc.channels._sockets import remaining

_PIECE = 262_144
_SMALL_PIECE = 4096  # the first read; also enough for most of a handshake
_TURN_SECONDS = 0.002  # the time that one peer's bytes may take before other peers have their turn
_STEP = 65_536  # bytes written at a time; fewer in _LINGER_SECONDS count as no progress
_UNSENT_MAX = 1 << 20  # bytes of replies to a peer that does not read them, such as pongs
_LINGER_SECONDS = 2.0  # without progress, to write the last bytes of a session that has closed
_LOOK_SECONDS = 0.25  # between checks whether the session has closed its socket


def shake(layer: Layer, connection: socket.socket, deadline: float) -> bytes:
    """A layer's handshake on a blocking socket, for a client; returns the plain bytes that came after it.

    Raises:
        ProtocolError: the server speaks another protocol; it is told so if the layer can.
        OSError: the connection was lost, or the deadline has passed.
    """
    plain = b""
    try:
        while not layer.ready:
            connection.settimeout(remaining(deadline))
            connection.sendall(layer.take())
            plain += _step(layer, connection.recv(_PIECE))
    finally:
        with contextlib.suppress(OSError):  # an earlier error matters more
            connection.sendall(layer.take())
    return plain


async def shake_async(layer: Layer, connection: socket.socket) -> bytes:
    """The same in an asyncio loop, for a server."""
    loop, plain = asyncio.get_running_loop(), b""
    try:
        while not layer.ready:
            await loop.sock_sendall(connection, layer.take())
            plain += _step(layer, await loop.sock_recv(connection, _SMALL_PIECE))
    finally:
        with contextlib.suppress(OSError):
            await loop.sock_sendall(connection, layer.take())
    return plain


def _step(layer: Layer, data: bytes) -> bytes:
    plain = layer.feed(data)
    if not data and not layer.ready:  # another read would return b"" at once, for ever
        raise ProtocolError("the peer closed the connection during the handshake")
    return plain


def _next_size(size: int, seconds: float) -> int:
    """The size of the next read, after one of ``size`` bytes took ``seconds``. Empty frames take a hundred
    times as long as full ones, and a peer that sends them must not keep others waiting.
    """
    return max(size // 4, 512) if seconds > _TURN_SECONDS else min(2 * size, _PIECE)


class Pump:
    """Moves bytes between ``outer``, which speaks ``layer``, and ``inner``, which is plain. Takes ownership
    of both.

    Args:
        early: plain bytes that came with the layer's handshake.
    """

    def __init__(self, layer: Layer, outer: socket.socket, inner: socket.socket, early: bytes = b"") -> None:
        self.trouble: Exception | None = None
        self._layer = layer
        self._outer = outer
        self._inner = inner
        self._early = early
        outer.setblocking(False)
        inner.setblocking(False)

    async def run(self) -> None:
        """Run until both sides have finished, or one is gone; then close both sockets."""
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._written = 0
        self._work, self._idle = asyncio.Event(), asyncio.Event()
        writing = asyncio.create_task(self._write())
        inward = asyncio.create_task(self._inward())
        outward = asyncio.create_task(self._outward())
        try:
            await self._until_done(inward, outward, writing)
        except (ProtocolError, CertificateError, OSError) as error:
            self.trouble = error
        finally:
            if not writing.done():
                with contextlib.suppress(TimeoutError, ProtocolError, CertificateError):
                    await asyncio.wait_for(self._flush(), _LINGER_SECONDS)
            await _cancel(inward, outward, writing)
            self.close()

    def close(self) -> None:
        """Close both sockets of a pump that has ended or never ran."""
        self._inner.close()
        self._outer.close()

    async def _until_done(
        self, inward: asyncio.Task[None], outward: asyncio.Task[None], writing: asyncio.Task[None]
    ) -> None:
        pending = {inward, outward}
        while pending:
            look = _LOOK_SECONDS if outward.done() else None
            done, _ = await asyncio.wait(
                {*pending, writing}, timeout=look, return_when=asyncio.FIRST_COMPLETED
            )
            for task in (inward, outward, writing):  # inward first: the peer's error is why the others failed
                if task in done:
                    task.result()
            pending -= done
            if outward.done() and _is_gone(self._inner):  # the session reads no more
                return

    async def _inward(self) -> None:
        await self._loop.sock_sendall(self._inner, self._early)
        size = _SMALL_PIECE
        while not self._layer.ended:
            data = await self._loop.sock_recv(self._outer, size)
            began = self._loop.time()
            plain = self._layer.feed(data)
            size = _next_size(size, self._loop.time() - began)
            self._collect()  # what it answers must not wait for the peer to read: it may wait for us
            if len(self._unsent) > 2 * _PIECE + _UNSENT_MAX:
                raise ProtocolError("the peer keeps sending requests, and does not read the answers")
            await self._loop.sock_sendall(self._inner, plain)
            if not data:
                break
            await asyncio.sleep(0)  # nothing above yields while there is something to read
        self._inner.shutdown(socket.SHUT_WR)

    async def _outward(self) -> None:
        while data := await self._loop.sock_recv(self._inner, _PIECE):
            self._layer.send(data)
            await self._flush()
        self._layer.finish()
        await self._flush()

    def _collect(self) -> None:
        if data := self._layer.take():
            self._unsent += data
            self._idle.clear()
            self._work.set()

    async def _flush(self) -> None:
        self._collect()
        while self._unsent or self._work.is_set():
            before = self._written
            try:
                async with asyncio.timeout(_LINGER_SECONDS):
                    await self._idle.wait()
            except TimeoutError:
                if self._written == before and _is_gone(self._inner):
                    raise ProtocolError("the peer does not read the answers to its requests") from None

    async def _write(self) -> None:
        while True:
            await self._work.wait()
            data, self._unsent = self._unsent, bytearray()
            with memoryview(data) as view:
                for at in range(0, len(data), _STEP):
                    await self._loop.sock_sendall(self._outer, view[at : at + _STEP])
                    self._written += 1
            if not self._unsent:
                self._work.clear()
                self._idle.set()


def _is_gone(inner: socket.socket) -> bool:
    """Whether the other end of a socket pair is closed."""
    poll = select.poll()
    poll.register(inner, 0)
    return bool(poll.poll(0))  # POLLHUP, which poll reports without being asked


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class PumpThread:
    """A client's pump, which runs in a thread."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._thread = threading.Thread(target=self._run, name="farcall-pump", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.run(self._pump.run())

    def close(self) -> None:
        """Wait until the last bytes are written; the session has closed its socket."""
        self._thread.join(_LINGER_SECONDS)

    def trouble(self) -> Exception | None:
        """The error that ended the connection, or None."""
        self._thread.join(_LOOK_SECONDS)
        return self._pump.trouble


class PumpTasks:
    """The pumps of a server."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, pump: Pump) -> None:
        """Run a pump in the loop."""
        task = asyncio.get_running_loop().create_task(pump.run())
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            pump.close()  # it may have been cancelled before it began

        task.add_done_callback(done)

    async def close(self) -> None:
        """End all remaining pumps."""
        await _cancel(*self._tasks)
