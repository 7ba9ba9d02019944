"""Raw clients: they build packets byte by byte, and send some that no honest client would."""

from __future__ import annotations

import select
import socket
import struct
from types import TracebackType
from typing import Protocol

from farcall.rpc import Server

from ..waiting import SECONDS

INT, POINTER = 1, 4


def packet(code: int, body: bytes = b"") -> bytes:
    return struct.pack("<qi", len(body) + 4, code) + body


def sequence(*values: bytes) -> bytes:
    return struct.pack("<i", len(values)) + b"".join(values)


def text(value: str) -> bytes:
    return struct.pack("<iQ", 8, len(value.encode())) + value.encode()


def integer(value: int) -> bytes:
    return struct.pack("<iq", INT, value)


def pointer(value: int) -> bytes:
    return struct.pack("<iQ", POINTER, value)


def device(kind: int = 1, index: int = 0) -> bytes:
    return struct.pack("<iii", 6, kind, index)


def dl_tensor(data: int, shape: tuple[int, ...], byte_offset: int = 0, kind: int = 1) -> bytes:
    """The bytes of a DLTensor of uint8."""
    return struct.pack(f"<QiiiBBH{len(shape)}qQ", data, kind, 0, len(shape), 1, 8, 1, *shape, byte_offset)


class Place(Protocol):
    """The address that a peer connects to."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class Peer:
    """A raw client, which can send bytes that no honest client would."""

    def __init__(self, server: Place) -> None:
        self.socket = socket.create_connection((server.host, server.port), timeout=SECONDS)

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += piece
        return data

    def is_answered(self) -> bool:
        """Whether the server has sent bytes, or has closed the connection."""
        return bool(select.select([self.socket], [], [], 0.01)[0])

    def rest(self) -> bytes:
        """Everything until the server closes."""
        data = b""
        try:
            while piece := self.socket.recv(65536):
                data += piece
        except ConnectionResetError:
            pass
        return data

    def hello(self, key: bytes) -> None:
        self.send(struct.pack("<ii", 0xFF271, len(key)) + key)

    def shake(self, key: bytes = b"client:k") -> bytes:
        """Perform the handshake, and return the server's key."""
        self.hello(key)
        code, size = struct.unpack("<ii", self.receive(8))
        assert code == 0xFF271
        return self.receive(size)

    def reply(self) -> tuple[int, bytes]:
        """The code and the body of the next packet."""
        size, code = struct.unpack("<Qi", self.receive(12))
        return code, self.receive(size - 4)

    def ask(self, code: int, body: bytes = b"") -> tuple[int, bytes]:
        self.send(packet(code, body))
        return self.reply()

    def start(self, *values: bytes, version: str = "0.8.0") -> tuple[int, bytes]:
        return self.ask(2, struct.pack("<Q", len(version)) + version.encode() + sequence(*values))

    def handle(self, code: int, *values: bytes) -> int:
        """The result of a syscall that returns a handle."""
        kind, body = self.ask(code, sequence(*values))
        assert (kind, struct.unpack_from("<ii", body)) == (4, (1, POINTER)), body
        return int(struct.unpack_from("<Q", body, 8)[0])

    def function(self, name: str) -> int:
        return self.handle(9, text(name))

    def alloc(self, size: int) -> int:
        dtype = struct.pack("<iBBHi", 5, 1, 8, 1, 0)
        return self.handle(13, device(), integer(size), integer(64), dtype)

    def call(self, function: int, *values: bytes) -> tuple[int, bytes]:
        return self.ask(3, struct.pack("<Q", function) + sequence(*values))

    def copy_in(self, tensor: bytes, payload: bytes) -> tuple[int, bytes]:
        return self.ask(7, tensor + struct.pack("<Q", len(payload)) + payload)

    def copy_out(self, tensor: bytes, nbytes: int) -> tuple[int, bytes]:
        return self.ask(6, tensor + struct.pack("<Q", nbytes))


def message(reply: tuple[int, bytes]) -> str:
    """The text of a kException."""
    code, body = reply
    assert code == 5, reply
    return body[16:].decode()


def constructor(server: Server, key: str) -> bytes:
    logging = struct.pack("<iq", 2, 0)
    return text("rpc.Connect") + text("127.0.0.1") + integer(server.port) + text(key) + logging


def go_on(raw: Peer, *hops: tuple[Server, str]) -> tuple[int, bytes]:
    """Begin a session that continues to further servers."""
    raw.shake()
    values = b"".join(constructor(*hop) for hop in hops)
    return raw.ask(2, struct.pack("<Q", 5) + b"0.8.0" + struct.pack("<i", 5 * len(hops)) + values)
