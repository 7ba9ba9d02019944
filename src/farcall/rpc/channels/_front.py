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
        status, data = self._exchange(0, scalars(OPEN, 2, 0, 0, 1), ins, [], [])
        return status, 0 if status else int.from_bytes(data, "little")

    def invoke(self, handle: int, call: Call) -> int:
        """Make ``call`` on an open ``handle``, and fill ``call.outs``. Returns a status."""
        handles = [descriptor | offset << 32 for descriptor, offset in call.handles]
        status, data = self._exchange(
            handle, call.scalars, call.ins, [len(out) for out in call.outs], handles
        )
        at = 0
        for out in call.outs if status == 0 else ():
            out[:] = data[at : at + len(out)]
            at += _padded(len(out))
        return status

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
        outs: list[int],
        handles: list[int],
    ) -> tuple[int, memoryview]:
        sizes = [*(len(data) for data in ins), *outs]
        table = struct.pack(f"<{len(sizes)}I", *sizes)
        body: list[bytes | memoryview] = [
            table,
            bytes(_padded(len(table)) - len(table)),
            struct.pack(f"<{len(handles)}Q", *handles),
        ]
        for data in ins:
            body += [data, bytes(_padded(len(data)) - len(data))]
        whole = b"".join(body)
        deadline = time.monotonic() + _TIMEOUT
        with self._lock:
            self._channel.send(struct.pack("<IIQ", word, len(whole), handle) + whole, deadline)
            status, size = struct.unpack("<iI", self._receive(8, deadline))
            expected = sum(_padded(out) for out in outs) + 8 * (word & 15) if status == 0 else 0
            if size != expected:
                self._channel.close()
                raise ProtocolError(f"a call's reply has {size} bytes, expected {expected}")
            return status, self._receive(size, deadline)

    def _receive(self, size: int, deadline: float) -> memoryview:
        data, at = memoryview(bytearray(size)), 0
        while at < size:
            got = self._channel.receive_into(data[at:], deadline)
            if got == 0:
                raise ProtocolError(f"the other side has finished behind {at} of {size} bytes of a reply")
            at += got
        return data


def _padded(size: int) -> int:
    return -(-size // 8) * 8
