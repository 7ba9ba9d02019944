"""A client of the adb server, by its socket: no ``adb`` program is needed, only its server.

A request is four hexadecimal digits, the length, and text. The server answers ``OKAY``, or ``FAIL`` with a
message. After ``host:tport:serial:SERIAL`` the connection belongs to that device: it gets the next request.
Formats: SERVICES.TXT and SYNC.TXT of AOSP's packages/modules/adb; bytes as seen from adb 29.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from farcall.errors import AccessDeniedError, ConnectError, ConnectTimeoutError, ProtocolError, UsageError

DEFAULT_PORT = 5037
_PIECE = 64 << 10  # bytes, the most that a DATA packet of sync may hold
_REPLY_MAX = 1 << 20
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)  # kinds of packets of shell v2
_FILE = 0o100000  # S_IFREG: the type of a regular file in a mode
_CURES = {
    "unauthorized": "unlock the device, and accept this machine's key in the dialog that it shows",
    "offline": "unplug the device and plug it in again, or run: adb reconnect",
    "authorizing": "wait a moment, and try again",
    "no permissions": "add a udev rule for the device, or your user to the group plugdev",
    "recovery": "start Android on the device",
    "bootloader": "start Android on the device",
}


class Device(NamedTuple):
    """A line of ``adb devices``."""

    serial: str
    state: str


def server_address() -> tuple[str, int]:
    """Where the adb server listens: as the ``adb`` program finds it.

    Raises:
        UsageError: a variable is not valid.
    """
    place = os.environ.get("ADB_SERVER_SOCKET", "")
    host, _, port = place.removeprefix("tcp:").rpartition(":")
    port = port or os.environ.get("ANDROID_ADB_SERVER_PORT", str(DEFAULT_PORT))
    if not port.isdigit() or not 0 < int(port) < 1 << 16 or (place and not place.startswith("tcp:")):
        name = "ADB_SERVER_SOCKET" if place else "ANDROID_ADB_SERVER_PORT"
        raise UsageError(f"{name}={place or port!r}: expected {'tcp:HOST:PORT' if place else 'a port'}")
    return host or "127.0.0.1", int(port)


class Wire:
    """One connection with the adb server. Use it in a ``with`` statement."""

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url
        host, port = server_address()
        try:
            self.socket = socket.create_connection((host, port), timeout=timeout)
        except OSError as error:
            reason = error.strerror or "it does not answer"
            raise ConnectError(
                f"{url}: no adb server at {host}:{port} ({reason}); run: adb start-server "
                "(apt install adb, or Android's platform-tools)"
            ) from None

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def ask(self, request: str) -> None:
        """Send a request, and check that the server takes it."""
        data = request.encode()
        self.send(b"%04x%s" % (len(data), data))
        self.check(request)

    def check(self, request: str) -> None:
        """Read ``OKAY``, or raise the server's reason."""
        status = self.read(4)
        if status == b"FAIL":
            raise ConnectError(f"{self.url}: {self.text()}")
        if status != b"OKAY":
            raise ProtocolError(
                f"{self.url}: the adb server answered {status!r} to {request.partition(',')[0]!r}"
            )

    def text(self) -> str:
        """A text with its length in four hexadecimal digits before it."""
        digits = self.read(4)
        try:
            size = int(digits, 16)
        except ValueError:
            raise ProtocolError(f"{self.url}: the adb server sent the length {digits!r}") from None
        return self.read(size).decode("utf-8", "replace")

    def send(self, data: bytes) -> None:
        with self._faults():
            self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes."""
        if size > _REPLY_MAX:
            raise ProtocolError(
                f"{self.url}: the adb server announced {size} bytes, expected at most {_REPLY_MAX}"
            )
        data = b""
        while len(data) < size:
            piece = self.some(size - len(data))
            if not piece:
                raise ConnectError(
                    f"{self.url}: the adb server closed the connection; is the device still there?"
                )
            data += piece
        return data

    def some(self, size: int) -> bytes:
        """At most ``size`` bytes; empty at the end."""
        with self._faults():
            return self.socket.recv(size)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            seconds = self.socket.gettimeout() or 0
            raise ConnectTimeoutError(f"{self.url}: the device did not answer within {seconds:g} s") from None
        except OSError as error:
            raise ConnectError(f"{self.url}: the adb server is gone: {error.strerror}") from None


class Adb:
    """The requests that a launcher makes, for one device.

    Args:
        url: of the device, for messages.
        serial: its name in ``adb devices``; empty: the only one.
        timeout: seconds for each reply.
    """

    def __init__(self, url: str, serial: str, timeout: float = 30.0) -> None:
        self.url = url
        self._timeout = timeout
        self.serial = self._choose(serial)

    @staticmethod
    def known(url: str, timeout: float = 5.0) -> list[Device]:
        """All devices that the server knows; ``url`` is for messages."""
        with Wire(url, timeout) as wire:
            wire.ask("host:devices")
            rows = [line.partition("\t") for line in wire.text().splitlines()]
        return [Device(serial, state) for serial, _, state in rows if state]

    def version(self) -> int:
        """The version of the server's protocol."""
        with Wire(self.url, self._timeout) as wire:
            wire.ask("host:version")
            return int(wire.text(), 16)

    def features(self) -> frozenset[str]:
        """What the device's daemon can do."""
        with Wire(self.url, self._timeout) as wire:
            wire.ask(f"host-serial:{self.serial}:features")
            return frozenset(wire.text().split(","))

    def shell(self, command: str, timeout: float) -> Wire:
        """Start a command of the device's shell; :func:`shell_packet` reads its output."""
        wire = self._device(timeout)
        try:
            wire.ask(f"shell,v2,raw:{command}")
        except BaseException:
            wire.socket.close()
            raise
        return wire

    def forward(self, there: str) -> int:
        """Forward a free port of this machine to ``there`` (``tcp:9090``). Returns the port."""
        with self._device(self._timeout) as wire:
            wire.ask(f"host:forward:tcp:0;{there}")
            wire.check("forward")
            return int(wire.text())

    def forwards(self) -> list[tuple[str, str, str]]:
        """All forwards: serial, the end here, the end there."""
        with Wire(self.url, self._timeout) as wire:
            wire.ask(f"host-serial:{self.serial}:list-forward")
            rows = [line.split() for line in wire.text().splitlines()]
        return [(row[0], row[1], row[2]) for row in rows if len(row) == 3]

    def remove_forward(self, port: int) -> None:
        """Remove one forward, by its port here."""
        with self._device(self._timeout) as wire:
            wire.ask(f"host:killforward:tcp:{port}")

    def push(self, source: Path, path: str, timeout: float) -> None:
        """Send a file, with its permission bits."""
        with self._device(timeout) as wire, source.open("rb") as file:
            info = os.fstat(file.fileno())
            wire.ask("sync:")
            where = f"{path},{_FILE | info.st_mode & 0o777}".encode()
            wire.send(struct.pack("<4sI", b"SEND", len(where)) + where)
            while piece := file.read(_PIECE):
                wire.send(struct.pack("<4sI", b"DATA", len(piece)) + piece)
            wire.send(struct.pack("<4sI", b"DONE", int(info.st_mtime) & 0xFFFFFFFF))
            kind, size = struct.unpack("<4sI", wire.read(8))
            if kind != b"OKAY":
                raise ConnectError(wire.read(size).decode("utf-8", "replace"))
            wire.send(struct.pack("<4sI", b"QUIT", 0))

    def pull(self, path: str, target: Path, timeout: float) -> None:
        """Receive a file."""
        with self._device(timeout) as wire, target.open("wb") as file:
            wire.ask("sync:")
            name = path.encode()
            wire.send(struct.pack("<4sI", b"RECV", len(name)) + name)
            while True:
                kind, size = struct.unpack("<4sI", wire.read(8))
                if kind == b"DONE":
                    break
                data = wire.read(size)
                if kind != b"DATA":
                    raise ConnectError(data.decode("utf-8", "replace"))
                file.write(data)
            wire.send(struct.pack("<4sI", b"QUIT", 0))

    def _device(self, timeout: float) -> Wire:
        wire = Wire(self.url, timeout)
        try:
            wire.ask(f"host:tport:serial:{self.serial}")
            wire.read(8)  # the number of this connection to the device
        except BaseException:
            wire.socket.close()
            raise
        return wire

    def _choose(self, serial: str) -> str:
        known = self.known(self.url, self._timeout)
        found = [device for device in known if serial in ("", device.serial)]
        listed = ", ".join(f"{device.serial} ({device.state})" for device in known) or "none"
        if not found:
            raise ConnectError(
                f"{self.url}: adb knows no such device; it knows: {listed}. Plug it in, and allow USB "
                "debugging in its developer options"
            )
        if len(found) > 1:
            raise UsageError(f"{self.url}: adb knows several devices: {listed}; name one: adb://SERIAL")
        if (state := found[0].state) != "device":
            cures = (cure for word, cure in _CURES.items() if state.startswith(word))
            kind = AccessDeniedError if state == "unauthorized" else ConnectError
            raise kind(f"{self.url}: the device is {state}; {next(cures, 'see: adb devices -l')}")
        return found[0].serial


def shell_packet(wire: Wire) -> tuple[int, bytes]:
    """The next packet of a shell: its kind and bytes; kind EXIT with no bytes if the connection has ended."""
    head = b""
    while len(head) < 5:
        piece = wire.some(5 - len(head))
        if not piece:
            return EXIT, b""
        head += piece
    kind, size = struct.unpack("<BI", head)
    return kind, wire.read(size)


def write_shell(wire: Wire, data: bytes) -> None:
    """Write to the command's standard input, and end it."""
    if data:
        wire.send(struct.pack("<BI", STDIN, len(data)) + data)
    wire.send(struct.pack("<BI", CLOSE_STDIN, 0))


def seconds_left(deadline: float) -> float:
    """Seconds until a deadline of ``time.monotonic``, for a socket: never 0, which would not wait at all."""
    return max(deadline - time.monotonic(), 0.001)
