"""Calls in the form of FastRPC over a channel, where there is no driver: see native/server/dsp/front.h."""

from __future__ import annotations

import struct
import threading
import time

from farcall._core import Channel
from farcall.errors import ProtocolError
from farcall.idl._packing import OPEN, scalars
from farcall.idl.runtime import Call

_TIMEOUT = 60.0  # seconds without an answer; no method of the bridge waits for as long as one


class FrontTransport:
    """Carries calls over a channel, one at a time. Takes ownership of the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()

    def open(self, uri: str) -> tuple[int, int]:
        """Open the interface that ``uri`` names. Returns a status and a handle."""
        name = uri.encode() + b"\0"
        ins = [struct.pack("<I", len(name)), name]
        status, opened = self._exchange(0, scalars(OPEN, 2, 0, 0, 1), ins, [], [])
        return status, 0 if status else int.from_bytes(opened, "little")

    def invoke(self, handle: int, call: Call) -> int:
        """Make ``call`` on an open ``handle``, and fill ``call.outs``. Returns a status."""
        handles = [descriptor | offset << 32 for descriptor, offset in call.handles]
        return self._exchange(handle, call.scalars, call.ins, call.outs, handles)[0]

    def close(self, handle: int) -> int:
        """Close ``handle``. Returns a status."""
        return self._exchange(handle, scalars(1, 0, 0, 1), [], [], [handle])[0]

    def hang_up(self) -> None:
        """Close the channel. The other side closes nothing by itself."""
        self._channel.close()

    def _exchange(
        self,
        handle: int,
        word: int,
        ins: list[bytes | memoryview] | list[bytes],
        outs: list[bytearray],
        handles: list[int],
    ) -> tuple[int, memoryview]:
        """Send a request, and receive its reply: the buffers ``outs``, if the status is 0. Returns the status
        and the bytes of the handles that came back.
        """
        sizes = [*map(len, ins), *map(len, outs)]
        table = struct.pack(f"<{len(sizes)}I", *sizes)
        body: list[bytes | memoryview] = [_filled(table), struct.pack(f"<{len(handles)}Q", *handles)]
        for data in ins:
            body += [data, _FILLING[len(data) % 8]]
        request = struct.pack("<IIQ", word, sum(map(len, body)), handle)
        deadline = time.monotonic() + _TIMEOUT
        with self._lock:
            self._channel.send(b"".join([request, *body]), deadline)
            status, size = struct.unpack("<iI", self._receive(8, deadline))
            back = 8 * (word & 15)
            expected = (
                sum(len(out) + len(_FILLING[len(out) % 8]) for out in outs) + back if status == 0 else 0
            )
            if size != expected:
                self._channel.close()
                raise ProtocolError(f"a call's reply has {size} bytes, expected {expected}")
            if status != 0:
                return status, memoryview(b"")
            for out in outs:
                self._fill(memoryview(out), deadline)
                self._receive(len(_FILLING[len(out) % 8]), deadline)
            return status, self._receive(back, deadline)

    def _receive(self, size: int, deadline: float) -> memoryview:
        data = memoryview(bytearray(size))
        self._fill(data, deadline)
        return data

    def _fill(self, data: memoryview, deadline: float) -> None:
        at = 0
        while at < len(data):
            got = self._channel.receive_into(data[at:], deadline)
            if got == 0:
                raise ProtocolError(
                    f"the other side has finished behind {at} of {len(data)} bytes of a reply"
                )
            at += got


_FILLING = [bytes(-size % 8) for size in range(8)]  # up to a multiple of 8, by the size's remainder


def _filled(data: bytes) -> bytes:
    return data + _FILLING[len(data) % 8]
