"""The server behind the codec: it answers any packets in order, whatever they name, however they are split.

In an input, ``HANDLE_0`` to ``HANDLE_7`` stand for handles of its session: functions (0 to 4), memory (5),
a returned tensor's data and its owner (6, 7). Every session draws its handles from the same random numbers,
because a mutation may move a handle into the length of a packet, where its value changes the input.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

import farcall as fc
from farcall.rpc import EventServer, Limits
from farcall.rpc.server._dispatch import Rights
from farcall.rpc.server._scopes import Scope

from . import harness

_HERE = Path(__file__).parent  # not used: the token allows no access to files
_LIMITS = Limits(
    call_bytes=1 << 16, copy_bytes=1 << 16, string_bytes=1 << 16, tensor_bytes=1 << 16, handles=40
)
_RIGHTS = Rights("fuzz", Scope.CALL | Scope.COPY)
_INIT = struct.pack("<QiQ5si", 21, 2, 5, b"0.8.0", 0)
_CODES = {4, 5, 8}  # kReturn, kException, kCopyAck
_FUNCTIONS: dict[str, Callable[..., object]] = {
    "fuzz.echo": lambda x: x,
    "fuzz.add": lambda a, b: a + b,
    "fuzz.array": lambda n: np.zeros(min(abs(n), 64), dtype="float32"),
    "fuzz.make": lambda x: [fc.ffi.Function(lambda: x), {"a": x}],
}
for _name, _function in _FUNCTIONS.items():
    fc.register_global_func(_name, _function, override=True)


def _packet(code: int, body: bytes) -> bytes:
    return struct.pack("<Qi", len(body) + 4, code) + body


def _split(data: bytes) -> list[tuple[int, bytes]]:
    replies = []
    while data:
        size, code = struct.unpack_from("<Qi", data)
        assert 8 + size <= len(data), "half a reply"
        replies.append((code, data[12 : 8 + size]))
        data = data[8 + size :]
    return replies


def _open() -> tuple[EventServer, list[int]]:
    """A session, and the handles that an input can name."""
    entropy = random.Random(0).randbytes  # noqa: S311
    server = EventServer(workdir=_HERE, limits=_LIMITS, rights=_RIGHTS, entropy=entropy)
    server.feed(_INIT)

    def pointer(data: bytes) -> int:
        ((_, body),) = _split(server.feed(data))
        return int(struct.unpack_from("<Q", body, len(body) - 8)[0])

    def name(text: str) -> bytes:
        return _packet(9, struct.pack("<iiQ", 1, 8, len(text)) + text.encode())

    handles = [pointer(name(text)) for text in (*_FUNCTIONS, "farcall.rpc.keep")]
    dtype = struct.pack("<iBBHi", 5, 1, 8, 1, 0)
    handles.append(pointer(_packet(13, struct.pack("<iiiiiqiq", 4, 6, 1, 0, 1, 64, 1, 64) + dtype)))
    call = _packet(3, struct.pack("<Qiiq", handles[2], 1, 1, 4))
    ((_, body),) = _split(server.feed(call))
    handles += struct.unpack_from("<Q", body, 20) + struct.unpack_from("<Q", body, len(body) - 8)
    return server, handles


def _answers(data: bytes, piece: int) -> tuple[list[str], bool]:
    """The kinds of the replies, in order, and whether the session has ended."""
    server, handles = _open()
    with server:
        for i, handle in enumerate(handles):
            data = data.replace(b"HANDLE_%d" % i, struct.pack("<Q", handle))
        output = b"".join(server.feed(data[at : at + piece]) for at in range(0, len(data), piece))
        replies = _split(output)
        assert server.handles <= _LIMITS.handles
        over = server.closed
    return [_kind(code, body) for code, body in replies], over


def _kind(code: int, body: bytes) -> str:
    """The kind of a reply: its code, or the class of its error."""
    assert code in _CODES
    if code != 5:
        return str(code)
    kind, colon, _ = body[16:].decode(errors="replace").partition(": ")
    assert colon, body
    assert kind.isidentifier(), body
    return kind


def one_input(data: bytes) -> None:
    """Bytes in one piece and in several get the same kinds of replies; values (free memory) may differ."""
    assert _answers(data, max(len(data), 1)) == _answers(data, 7)


if __name__ == "__main__":
    harness.main("dispatch", one_input)
