"""The few packets that Python code encodes itself: the codec proper is include/farcall/wire.h."""

from __future__ import annotations

import struct

PROTOCOL_VERSION = "0.8.0"
_INIT_SERVER, _EXCEPTION, _GET_GLOBAL_FUNC = 2, 5, 9
_TEXT = 8  # type index


def _packet(body: bytes) -> bytes:
    return struct.pack("<Q", len(body)) + body


def _string(text: str) -> bytes:
    data = text.encode(errors="replace")
    return struct.pack("<Q", len(data)) + data


FIRST_REQUESTS = _packet(struct.pack("<i", _INIT_SERVER) + _string(PROTOCOL_VERSION) + bytes(4)) + _packet(
    struct.pack("<iii", _GET_GLOBAL_FUNC, 1, _TEXT) + _string("farcall.rpc.hello")
)
"""What a farcall client says first: kInitServer without a constructor, and the lookup of the greeting."""


SESSION_TIMEOUT = "RPCSessionTimeoutError"
"""How a kException begins whose session ran out of time: TVM's clients know it by that."""


def exception_packet(text: str) -> bytes:
    """A kException with ``text``, as the supervisor sends it when a worker is gone."""
    return _packet(struct.pack("<iii", _EXCEPTION, 1, _TEXT) + _string(text))
