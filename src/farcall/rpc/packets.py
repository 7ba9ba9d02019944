"""The few packets that Python code encodes itself: the codec proper is include/farcall/wire.h."""

from __future__ import annotations

import struct

_EXCEPTION, _TEXT = 5, 8


def exception_packet(text: str) -> bytes:
    """A kException with ``text``, as the supervisor sends it when a worker is gone."""
    data = text.encode(errors="replace")
    body = struct.pack("<iiiQ", _EXCEPTION, 1, _TEXT, len(data)) + data
    return struct.pack("<Q", len(body)) + body
