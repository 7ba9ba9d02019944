"""The few packets that Python code encodes itself; include/farcall/wire.h is the full codec."""

from __future__ import annotations

import struct

from farcall._core import PACKETS, PROTOCOL_VERSION, TYPE_INDICES

_TEXT = TYPE_INDICES["raw_str"]


def _packet(body: bytes) -> bytes:
    return struct.pack("<Q", len(body)) + body


def _string(text: str) -> bytes:
    data = text.encode(errors="replace")
    return struct.pack("<Q", len(data)) + data


_INIT = struct.pack("<i", PACKETS["init_server"]) + _string(PROTOCOL_VERSION) + bytes(4)
_LOOKUP = struct.pack("<iii", PACKETS["get_global_func"], 1, _TEXT) + _string("farcall.rpc.hello")

FIRST_REQUESTS = _packet(_INIT) + _packet(_LOOKUP)
"""A farcall client's first requests: kInitServer without a constructor, and the lookup of the greeting."""


SESSION_TIMEOUT = "RPCSessionTimeoutError"
"""The first word of a kException whose session ran out of time: TVM's clients recognise the error by it."""


def exception_packet(text: str) -> bytes:
    """A kException with ``text``, as the supervisor sends it when a worker is gone."""
    return _packet(struct.pack("<iii", PACKETS["exception"], 1, _TEXT) + _string(text))
