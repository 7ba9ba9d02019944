"""The handshake that opens a TCP connection, without I/O (facts: A.2 of TVM's protocol).
include/farcall/handshake.h parses it.

::

    connector -> acceptor   i32 magic, i32 n, n bytes of key
    acceptor -> connector   i32 code; when it is the magic: i32 m, m bytes of the acceptor's key

The caller reads :attr:`needed` bytes (no more: the next bytes belong to packets) and passes them to
:meth:`feed`. When :attr:`needed` is 0, the result is known.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from farcall import _core
from farcall.errors import AccessDeniedError, ConnectError, ProtocolError, UsageError

MAGIC = _core.HANDSHAKE["magic"]
_I32 = struct.Struct("<i")
_CLIENT, _SERVER = "client:", "server:"


@dataclass(frozen=True)
class Hello:
    """The connector's request."""

    key: str
    timeout: float | None = None  # the maximum duration of the session that it wants, in seconds
    token: str | None = None  # NAME.SECRET


def _field(value: bytes) -> bytes:
    return _I32.pack(len(value)) + value


def check_key(key: str) -> None:
    """Refuse a key that no client could send.

    Raises:
        UsageError: the key is not a text, or has a blank or a NUL.
    """
    if not isinstance(key, str):
        raise UsageError(f"key: expected a word, got {key!r:.80}; put a port in the URL, as HOST:PORT")
    if _ends_early(key):
        raise UsageError(f"key {key!r}: a key has no blanks and no NUL")


def _ends_early(word: str) -> bool:
    return any(c.isspace() or c == "\0" for c in word)


def client_hello(key: str, token: str | None = None, timeout: float | None = None) -> bytes:
    """The connector's bytes.

    Args:
        key: the acceptor's key.
        token: the token, if the acceptor requires one.
        timeout: seconds after which the acceptor should end the session.

    Raises:
        UsageError: the key or the token has a blank or a NUL, which would end it early.
    """
    check_key(key)
    if _ends_early(token or ""):
        raise UsageError("the token: a token has no blanks and no NUL")
    options = f" -token={token}" if token is not None else ""
    if timeout is not None:  # whole seconds without a point: TVM's C++ server reads digits only
        options += f" -timeout={int(timeout) if timeout == int(timeout) else timeout}"
    return _I32.pack(MAGIC) + _field((_CLIENT + key + options).encode())


def server_accept(key: str) -> bytes:
    """The acceptor's answer to a hello that it accepts."""
    return _I32.pack(MAGIC) + _field((_SERVER + key).encode())


def server_refuse() -> bytes:
    """The acceptor's answer to a wrong key; the connection is closed after it."""
    return _I32.pack(_core.HANDSHAKE["mismatch"])


class _Handshake:
    """The bytes that have arrived, and the number of further bytes that belong to the handshake."""

    def __init__(self, max_key_bytes: int) -> None:
        self.needed = 4
        self._max = max_key_bytes
        self._bytes = b""

    def _take(self, data: bytes) -> bytes:
        if len(data) != self.needed:
            raise ValueError(f"feed takes {self.needed} bytes, got {len(data)}")
        self._bytes += data
        return self._bytes

    def _field_size(self) -> int:
        return int(_I32.unpack(self._bytes[4:8])[0])


class ServerHandshake(_Handshake):
    """The acceptor's side. When ``needed`` is 0, :attr:`hello` is the connector's request."""

    def __init__(self, max_key_bytes: int = 1024) -> None:
        super().__init__(max_key_bytes)
        self.hello: Hello | None = None

    def feed(self, data: bytes) -> None:
        """Take exactly :attr:`needed` bytes. Unknown options are ignored, since later clients may send more.

        Raises:
            ProtocolError: the peer speaks another protocol, or its ``-timeout`` is not a number of seconds.
        """
        outcome, need, key, token, timeout, nanoseconds = _core.read_hello(self._take(data), self._max)
        self.needed = need - len(self._bytes)
        if outcome == "more":
            return
        if outcome == "magic":
            raise ProtocolError(f"the first four bytes are {data.hex()}, which no RPC client sends")
        if outcome == "size":
            raise ProtocolError(
                f"a key field of {self._field_size()} bytes; allowed are {len(_CLIENT)} to {self._max}"
            )
        text = _text(data)
        if outcome == "prefix" or key is None:
            raise ProtocolError(f"the handshake's key field begins with {_CLIENT!r}, got {text[:80]!r}")
        if outcome == "timeout":
            raise ProtocolError(
                f"-timeout={_text(timeout or b'')[:40]}: expected a number of seconds that is not negative"
            )
        self.hello = Hello(
            _text(key), nanoseconds / 1e9 if nanoseconds else None, None if token is None else _text(token)
        )


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProtocolError("the key field is not UTF-8") from None


class ClientHandshake(_Handshake):
    """The connector's side, after :func:`client_hello`. When ``needed`` is 0, :attr:`server_key` is known."""

    def __init__(self, key: str, max_key_bytes: int = 65536) -> None:
        super().__init__(max_key_bytes)
        self.server_key = ""
        self._key = key

    def feed(self, data: bytes) -> None:
        """Take exactly :attr:`needed` bytes.

        Raises:
            ConnectError: the server refused, or is not an RPC server.
        """
        outcome, need, key = _core.read_welcome(self._take(data), self._max)
        self.needed = need - len(self._bytes)
        if outcome == "mismatch":
            raise AccessDeniedError(
                f"the server refused the key {self._key!r}; "
                "pass the one that it was started with (key=..., --key)"
            )
        if outcome == "duplicate":
            raise ConnectError(f"the key {self._key!r} is in use at the proxy already; choose another")
        if outcome == "magic":
            raise ConnectError(f"not an RPC server: it answered {data!r}; is the port right?")
        if outcome == "size":
            raise ConnectError(
                f"not an RPC server: it announced a key of {self._field_size()} bytes; is the port right?"
            )
        self.server_key = key.decode(errors="replace").removeprefix(_SERVER)
