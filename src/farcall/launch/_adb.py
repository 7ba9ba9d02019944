"""The launcher ``adb://SERIAL``: Android devices, by the adb server of this machine."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from farcall.errors import ConnectError, ConnectTimeoutError, RemoteError, UsageError
from farcall.launch import _adb_client as client
from farcall.launch._launcher import Completed, Launcher, Stream

_GRACE_SECONDS = 5.0


class AdbLauncher(Launcher):
    """Runs commands on an Android device. ``adb://`` alone means the only device."""

    folder = "/data/local/tmp/farcall"  # the one place where the shell may execute what it writes

    def __init__(self, url: str) -> None:
        super().__init__(url)
        serial = url.removeprefix("adb://")
        if serial == url or any(c in serial for c in "/ ;") or not serial.isprintable():
            raise UsageError(f"{url!r}: expected adb://SERIAL, with a serial of `adb devices`")
        self._adb = client.Adb(url, serial)
        if "shell_v2" not in self._adb.features():
            raise UsageError(
                f"{url}: the device's adb daemon reports no exit codes; it needs Android 7 or later"
            )

    def run(self, script: str, *, timeout: float) -> Completed:
        deadline = time.monotonic() + timeout
        output: dict[int, bytearray] = {client.STDOUT: bytearray(), client.STDERR: bytearray()}
        with self._adb.shell(script, timeout) as wire:
            client.write_shell(wire, b"")
            while True:
                wire.socket.settimeout(client.seconds_left(deadline))
                kind, data = client.shell_packet(wire)
                if kind == client.EXIT:
                    break
                output.setdefault(kind, bytearray()).extend(data)
        if not data:
            raise ConnectError(
                f"{self.url}: the connection ended before the command did; is it still plugged in?"
            )
        texts = (bytes(output[kind]).decode("utf-8", "replace") for kind in (client.STDOUT, client.STDERR))
        return Completed(data[0], *texts)

    def open(self, script: str) -> Stream:
        return _AdbStream(self._adb.shell(script, _GRACE_SECONDS))

    def put(self, source: Path, path: str, *, timeout: float) -> None:
        self._adb.push(source, path, timeout)

    def get(self, path: str, target: Path, *, timeout: float) -> None:
        self._adb.pull(path, target, timeout)

    @property
    def listens_at(self) -> str:
        return "tcp://127.0.0.1:0"

    def forward(self, url: str) -> str:
        port = url.rpartition(":")[2]
        return f"tcp://127.0.0.1:{self._adb.forward(f'tcp:{port}')}"

    def unforward(self, url: str) -> None:
        with contextlib.suppress(RemoteError):  # the device, or adb's server, is gone: so is the forward
            self._adb.remove_forward(int(url.rpartition(":")[2]))


class _AdbStream:
    def __init__(self, wire: client.Wire) -> None:
        self._wire = wire
        self._output = b""
        self._complaint = b""
        self._ended = False

    def read_line(self, deadline: float) -> str:
        while b"\n" not in self._output and not self._ended:
            self._read(deadline)
        line, newline, self._output = self._output.partition(b"\n")
        return line.decode("utf-8", "replace") if newline else ""

    def complaint(self) -> str:
        deadline = time.monotonic() + _GRACE_SECONDS
        with contextlib.suppress(RemoteError):
            while not self._ended and not self._complaint:
                self._read(deadline)
        return self._complaint.decode("utf-8", "replace")

    def close(self, last_words: bytes = b"") -> None:
        with self._wire, contextlib.suppress(RemoteError):
            client.write_shell(self._wire, last_words)
            deadline = time.monotonic() + _GRACE_SECONDS
            while not self._ended and not (last_words and b"kept\n" in self._output):
                self._read(deadline)

    def _read(self, deadline: float) -> None:
        self._wire.socket.settimeout(client.seconds_left(deadline))
        try:
            kind, data = client.shell_packet(self._wire)
        except ConnectTimeoutError:
            raise ConnectTimeoutError(f"{self._wire.url}: the server did not start in time") from None
        if kind == client.STDOUT:
            self._output += data
        elif kind == client.STDERR:
            self._complaint += data
        elif kind == client.EXIT:
            self._ended = True
