"""Sessions on a DSP, by the interface farcall_dsp (native/server/dsp/farcall_dsp.idl).

``fastrpc:cdsp`` reaches the DSP of this name by the driver; ``fastrpc:/PATH`` reaches an emulated one by a
mailbox. The DSP never calls by itself, so a thread moves the bytes. What the session sends goes out at once;
then the thread asks for what has come, at growing intervals while nothing happens.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import TYPE_CHECKING

from farcall._core import Channel, Mailbox
from farcall.errors import ConnectError, ConnectTimeoutError, DeadlineExceededError, FarcallError, UsageError
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
        self._stub, self._inner = stub, inner
        self._trouble: Exception | None = None
        self._closing = False
        self._room = _SMALL_PIECE
        self._thread = threading.Thread(target=self._run, name="farcall-fastrpc", daemon=True)
        self._thread.start()

    def trouble(self) -> Exception | None:
        """The error that ended the session, if there was one."""
        return self._trouble

    def close(self) -> None:
        """Wait for the thread, which ends soon after the session has closed its socket."""
        self._closing = True
        self._thread.join()

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
        finished = False
        pause = 0.0  # before the next question, unless the session sends
        while True:
            if not finished and _is_readable(self._inner, pause):
                data = self._inner.recv(_PIECE)
                finished = not data
                self._send(data, last=finished)
                pause = 0.0
            came, ended = self._receive(0 if pause else _WAIT_MS)
            if ended or (finished and self._closing):
                return
            # An answer is often followed by the next request, and rarely by more.
            pause = _FIRST_PAUSE if came else min(2 * pause, _LONGEST_PAUSE)

    def _send(self, data: bytes, *, last: bool) -> None:
        """Send all. Between the parts that the session takes, take what it sends: neither side is stuck."""
        view = memoryview(data)
        while True:
            taken = self._stub.send(view.tobytes(), last)
            if taken >= len(view):
                return
            view = view[taken:]
            if self._receive(0)[1]:
                return

    def _receive(self, wait_ms: int) -> tuple[bool, bool]:
        """Pass on what has come. Returns whether something came, and whether it was all."""
        data, written, ended = self._stub.receive(wait_ms, self._room)
        self._room = min(8 * self._room, _PIECE) if written == self._room else _SMALL_PIECE
        if written:
            self._inner.sendall(data[:written])
        return bool(written), bool(ended)


def _is_readable(connection: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
