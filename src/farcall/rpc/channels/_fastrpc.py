"""Sessions on a DSP, by the interface farcall_dsp (native/server/dsp/farcall_dsp.idl).

``fastrpc:cdsp`` reaches the DSP of this name by the driver; ``fastrpc:/PATH`` reaches an emulated one by a
mailbox. The DSP never calls by itself, so a thread moves the bytes. What the session sends goes out at once,
all of it; then the thread asks for what has come, at growing intervals while nothing happens.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from farcall._core import Channel, Mailbox
from farcall.errors import (
    ConnectError,
    ConnectTimeoutError,
    DeadlineExceededError,
    FarcallError,
    StatusError,
    UsageError,
)
from farcall.idl.runtime import LibraryTransport, Transport
from farcall.rpc.channels._connection import Connection
from farcall.rpc.channels._farcall_dsp import farcall_dsp
from farcall.rpc.channels._front import FrontTransport

if TYPE_CHECKING:
    from farcall.rpc.channels._address import Address

_PIECE = 1 << 18
_SMALL_PIECE = 1 << 12  # the room for an answer; all of it comes back, whatever is written there
_WAIT_MS = 5  # that `receive` waits for the answer to a request: for so long nothing can be sent
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05  # seconds between questions while no request is open
_LINGER_SECONDS = 1.0  # without progress, to send the last bytes of a session that has closed
_ENDED = 1  # the status of `send` to a session that has ended: FC_REMOTE_FAILED


def dial_fastrpc(address: Address, deadline: float) -> Connection:
    """Open a session's handle on a DSP.

    Raises:
        UsageError: this machine has no driver of FastRPC, or the file is no mailbox.
        ConnectError: nobody serves the mailbox, or the DSP refuses.
    """
    transport, uri = _reached(address, deadline)
    try:
        stub = farcall_dsp.open(transport, uri)
        stub.init(0)
    except FarcallError as error:
        _hang_up(transport)
        raise ConnectError(f"{address}: {error}; is the library of farcall_dsp's skel on the DSP?") from None
    ours, theirs = socket.socketpair()
    pump = DspPump(stub, theirs)
    return Connection(
        address, Channel(ours.detach()), shakes_hands=False, on_close=pump.close, trouble=pump.trouble
    )


def _reached(address: Address, deadline: float) -> tuple[Transport, str]:
    if not address.path.startswith("/"):
        try:
            return LibraryTransport(), f"{farcall_dsp.URI}&_dom={address.path}"
        except UsageError as error:
            raise UsageError(f"{address}: {error}") from None
    try:
        return FrontTransport(Mailbox(address.path).meet(deadline)), farcall_dsp.URI
    except (ConnectTimeoutError, DeadlineExceededError) as error:
        raise ConnectTimeoutError(f"{address}: {error}; its server may have another client") from None


def _hang_up(transport: Transport) -> None:
    if isinstance(transport, FrontTransport):
        transport.hang_up()


class DspPump:
    """Moves bytes between a session's socket and its handle on the DSP, in a thread. Owns both."""

    def __init__(self, stub: farcall_dsp, inner: socket.socket) -> None:
        inner.setblocking(False)
        self._stub, self._inner = stub, inner
        self._trouble: Exception | None = None
        self._buffer = memoryview(bytearray(_PIECE))
        self._up = self._buffer[:0]  # of the session, not yet taken by the DSP
        self._last = self._told = False  # the session sends no more; the DSP knows
        self._down = memoryview(b"")  # of the DSP, not yet taken by the session
        self._ended = False  # the DSP sends no more
        self._room = _SMALL_PIECE
        self._thread = threading.Thread(target=self._run, name="farcall-fastrpc", daemon=True)
        self._thread.start()

    def trouble(self) -> Exception | None:
        """The error that ended the session, if there was one."""
        return self._trouble

    def close(self) -> None:
        """Wait for the thread, which ends soon after the session has closed its socket."""
        self._thread.join(2 * _LINGER_SECONDS)

    def _run(self) -> None:
        try:
            self._move()
        except (FarcallError, OSError) as error:
            self._trouble = error
        finally:
            self._inner.close()
            with contextlib.suppress(FarcallError):
                self._stub.close()
            _hang_up(self._stub.transport)

    def _move(self) -> None:
        pause, asks = 0.0, False  # seconds before the next question; whether the last bytes may be a request
        stuck_at = time.monotonic()
        while True:
            ready = self._look(pause)
            gone = bool(ready & select.POLLHUP)
            if ready & select.POLLIN:
                self._read()
            if self._down:
                self._write(gone)
            if self._up or (self._last and not self._told):
                pause, asks = 0.0, True
                if self._send():
                    stuck_at = time.monotonic()
                if not self._up:
                    continue  # to what else the session sends; the DSP's answers have room meanwhile
            if (gone and (self._told or time.monotonic() > stuck_at + _LINGER_SECONDS)) or self._is_over():
                return
            if not self._down and not self._ended:
                size = self._receive(_WAIT_MS if asks and not self._up else 0)
                pause, asks = _next_pause(pause, size), False

    def _is_over(self) -> bool:
        return self._told and self._ended and not self._down

    def _look(self, pause: float) -> int:
        """Wait for the socket, for as long as there is nothing else to do; returns poll's flags."""
        poll = select.poll()
        reads = not self._up and not self._last
        poll.register(self._inner, select.POLLIN * reads | select.POLLOUT * bool(self._down))
        waits = 0 if self._up else None if self._down or self._ended else pause * 1000
        return next((flags for _, flags in poll.poll(waits)), 0)

    def _read(self) -> None:
        try:
            size = self._inner.recv_into(self._buffer)
        except ConnectionResetError:  # the session has closed, with bytes that it did not read
            size = 0
        self._up, self._last = self._buffer[:size], size == 0

    def _write(self, gone: bool) -> None:
        """Pass on what has come from the DSP, and then its end."""
        with contextlib.suppress(BlockingIOError):
            self._down = self._down[len(self._down) if gone else self._inner.send(self._down) :]
        self._pass_end()

    def _pass_end(self) -> None:
        if self._ended and not self._down:
            with contextlib.suppress(OSError):  # the session may have closed
                self._inner.shutdown(socket.SHUT_WR)

    def _send(self) -> bool:
        """Offer to the DSP what the session sends. Returns whether it took some."""
        try:
            taken = self._stub.send(self._up, self._last)
        except StatusError as error:
            if error.status != _ENDED:
                raise
            taken, self._last = len(self._up), True
            self._inner.shutdown(socket.SHUT_RD)  # the session learns it when it sends more
        self._up = self._up[taken:]
        self._told = self._last and not self._up
        return taken > 0 or self._told

    def _receive(self, wait_ms: int) -> int:
        """Take what has come from the DSP. Returns its size."""
        data, size, ended = self._stub.receive(wait_ms, self._room)
        self._room = min(max(_SMALL_PIECE, 8 * size if size == self._room else 2 * size), _PIECE)
        self._down, self._ended = memoryview(data)[:size], bool(ended)
        if size:
            self._write(gone=False)
        self._pass_end()
        return size


def _next_pause(pause: float, size: int) -> float:
    """Seconds until the next question, after one that had ``size`` bytes for an answer: an answer is often
    followed by the next request, and a large one by more of it.
    """
    if size:
        return _FIRST_PAUSE if size < _SMALL_PIECE else 0.0
    return min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
