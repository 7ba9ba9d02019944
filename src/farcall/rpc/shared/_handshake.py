"""The handshake that opens a TCP connection, as a state machine without I/O (facts: A.2 of TVM's protocol).

::

    connector -> acceptor   i32 magic, i32 n, n bytes of key
    acceptor -> connector   i32 code; when it is the magic: i32 m, m bytes of the acceptor's key

A driver asks :attr:`needed` how many bytes to read next (no more: what follows belongs to the packets), gives
them to :meth:`feed`, and finds the result when :attr:`needed` is 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from farcall.errors import ConnectError, ProtocolError, UsageError

MAGIC = 0xFF271
DUPLICATE_KEY = 0xFF272
KEY_MISMATCH = 0xFF273
_I32 = struct.Struct("<i")
_CLIENT, _SERVER = "client:", "server:"


@dataclass(frozen=True)
class Hello:
    """What a connector asks for."""

    key: str
    timeout: float | None = None  # seconds that it wants the session to last at most
    token: str | None = None  # NAME.SECRET


def _field(value: bytes) -> bytes:
    return _I32.pack(len(value)) + value


def check_key(key: str) -> None:
    """Refuse a key that no client could name.

    Raises:
        UsageError: it is no text, or has a blank or a NUL.
    """
    if not isinstance(key, str):
        raise UsageError(f"key: expected a word, got {key!r:.80}; a port belongs into the URL, as HOST:PORT")
    if _ends_early(key):
        raise UsageError(f"key {key!r}: a key has no blanks and no NUL")


def _ends_early(word: str) -> bool:
    return any(c.isspace() or c == "\0" for c in word)


def client_hello(key: str, token: str | None = None, timeout: float | None = None) -> bytes:
    """The connector's opening.

    Args:
        key: that the acceptor has.
        token: that it may want.
        timeout: seconds after which it is to end the session.

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
    """The acceptor's answer to a hello that it takes."""
    return _I32.pack(MAGIC) + _field((_SERVER + key).encode())


def server_refuse() -> bytes:
    """The acceptor's answer to a wrong key; the connection is closed after it."""
    return _I32.pack(KEY_MISMATCH)


def parse_hello(text: str) -> Hello:
    """Read the key field of a connector: ``client:KEY -option=value ...``.

    Options that are not known are passed over: a later client may offer more.

    Raises:
        ProtocolError: no ``client:`` in front, or a ``-timeout`` that is no positive number.
    """
    words = text.split()
    if not words or not words[0].startswith(_CLIENT):
        raise ProtocolError(f"the handshake's key field begins with {_CLIENT!r}, got {text[:80]!r}")
    timeout: float | None = None
    token: str | None = None
    for word in words[1:]:
        name, _, value = word.partition("=")
        if name == "-timeout":
            timeout = _seconds(value)
        elif name == "-token":
            token = value
    return Hello(words[0].removeprefix(_CLIENT), timeout, token)


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        raise ProtocolError(f"-timeout={text[:40]}: expected seconds") from None
    if not 0 <= seconds < 1e9:  # also refuses nan
        raise ProtocolError(f"-timeout={text[:40]}: expected a number of seconds that is not negative")
    return seconds or None


class ServerHandshake:
    """The acceptor's side. After ``needed == 0`` the answer is in :attr:`hello`."""

    def __init__(self, max_key_bytes: int = 1024) -> None:
        self.needed = 4
        self.hello: Hello | None = None
        self._max = max_key_bytes
        self._step = self._magic

    def feed(self, data: bytes) -> None:
        """Take exactly :attr:`needed` bytes.

        Raises:
            ProtocolError: the peer speaks something else.
        """
        if len(data) != self.needed:
            raise ValueError(f"feed takes {self.needed} bytes, got {len(data)}")
        self._step(data)

    def _magic(self, data: bytes) -> None:
        if _I32.unpack(data)[0] != MAGIC:
            raise ProtocolError(f"the first four bytes are {data.hex()}, no RPC client's")
        self._step = self._size

    def _size(self, data: bytes) -> None:
        size = _I32.unpack(data)[0]
        if not len(_CLIENT) <= size <= self._max:
            raise ProtocolError(f"a key field of {size} bytes; allowed are {len(_CLIENT)} to {self._max}")
        self.needed = size
        self._step = self._key

    def _key(self, data: bytes) -> None:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise ProtocolError("the key field is not UTF-8") from None
        self.hello = parse_hello(text)
        self.needed = 0


class ClientHandshake:
    """The connector's side, behind :func:`client_hello`. After ``needed == 0`` the server's key is there."""

    def __init__(self, key: str, max_key_bytes: int = 65536) -> None:
        self.needed = 4
        self.server_key = ""
        self._key = key
        self._max = max_key_bytes
        self._step = self._code

    def feed(self, data: bytes) -> None:
        """Take exactly :attr:`needed` bytes.

        Raises:
            ConnectError: the server refused, or is none.
        """
        if len(data) != self.needed:
            raise ValueError(f"feed takes {self.needed} bytes, got {len(data)}")
        self._step(data)

    def _code(self, data: bytes) -> None:
        code = _I32.unpack(data)[0]
        if code == KEY_MISMATCH:
            raise ConnectError(
                f"the server refused the key {self._key!r}; pass the one that it was started with (key=...)"
            )
        if code == DUPLICATE_KEY:
            raise ConnectError(f"the key {self._key!r} is in use at the proxy already; choose another")
        if code != MAGIC:
            raise ConnectError(f"not an RPC server: it answered {data!r}; is the port right?")
        self._step = self._size

    def _size(self, data: bytes) -> None:
        size = _I32.unpack(data)[0]
        if not 0 <= size <= self._max:
            raise ConnectError(f"not an RPC server: it announced a key of {size} bytes; is the port right?")
        self.needed = size
        self._step = self._name

    def _name(self, data: bytes) -> None:
        self.server_key = data.decode(errors="replace").removeprefix(_SERVER)
        self.needed = 0
