"""A fake adb server: a folder is the device's /data/local/tmp, its shell is this machine's.

Programs of the device run in an emulator: its shell begins with a function for each program that was pushed.
The real `adb` client is the judge of this fake; see test_adb.py.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import socket
import stat
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

TMP = "/data/local/tmp"
VERSION = 41  # of the protocol; another one makes the `adb` program start a server of its own
_PIECE = 65528


class AdbServer:
    """Serves in threads until its ``with`` statement ends.

    Args:
        folder: the device's /data/local/tmp.
        emulator: the words before a program of the device; None: it runs here.
    """

    def __init__(self, folder: Path, emulator: list[str] | None) -> None:
        folder.mkdir()
        self.folder = folder
        self.state = "device"
        self.features = "shell_v2,cmd,stat_v2"
        self.push_limit: int | None = None  # bytes, after which the disk is full
        self.lose: int | None = None  # bytes, after which the rest of a pushed file is lost without a word
        self.forwards: dict[int, tuple[socket.socket, int]] = {}
        self._emulator = shlex.join(emulator or [])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = {self._listener}

    def __enter__(self) -> AdbServer:
        threading.Thread(target=_accept, args=(self._listener, self._talk), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for listener, _ in list(self.forwards.values()):
            self._open.add(listener)
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    # ---- requests

    def _talk(self, client: socket.socket) -> None:
        self._open.add(client)
        with client, contextlib.suppress(OSError, EOFError):
            while True:
                request = _read(client, int(_read(client, 4), 16)).decode()
                if not self._answer(client, request):
                    break
            _part(client)
        self._open.discard(client)

    def _answer(self, client: socket.socket, request: str) -> bool:
        """Answer a request. Whether the connection goes on: it belongs to the device then."""
        name, _, rest = request.partition(":")
        if request == "host:version":
            client.sendall(b"OKAY" + _text(f"{VERSION:04x}"))
        elif request in ("host:devices", "host:devices-l"):
            client.sendall(b"OKAY" + _text(f"fake-1\t{self.state}\n"))
        elif request == "host:tport:any" or request.startswith("host:tport:serial:"):
            if request.rpartition(":")[2] not in ("any", "fake-1") or self.state != "device":
                client.sendall(b"FAIL" + _text(f"device {self.state}"))
                return False
            client.sendall(b"OKAY" + struct.pack("<Q", 1))
            return True
        elif request.startswith(("host-serial:fake-1:", "host:")):
            words = rest.removeprefix("fake-1:") if name == "host-serial" else rest
            self._host(client, words)
        elif name.startswith("shell"):
            self._shell(client, name, rest)
        elif name == "sync":
            client.sendall(b"OKAY")
            self._sync(client)
        else:
            client.sendall(b"FAIL" + _text(f"unknown request {request}"))
        return False

    def _host(self, client: socket.socket, words: str) -> None:
        if words in ("features", "host-features"):
            client.sendall(b"OKAY" + _text(self.features))
        elif words == "list-forward":
            rows = [f"fake-1 tcp:{port} tcp:{there}\n" for port, (_, there) in self.forwards.items()]
            client.sendall(b"OKAY" + _text("".join(rows)))
        elif words.startswith("forward:"):
            here, _, there = words.rpartition("forward:")[2].removeprefix("norebind:").partition(";")
            listener = socket.create_server(("127.0.0.1", int(here.removeprefix("tcp:"))))
            port = int(listener.getsockname()[1])
            self.forwards[port] = (listener, int(there.removeprefix("tcp:")))
            threading.Thread(target=_accept, args=(listener, self._relay(port)), daemon=True).start()
            client.sendall(b"OKAYOKAY" + (_text(str(port)) if here == "tcp:0" else b""))
        elif words.startswith("killforward:tcp:"):
            found = self.forwards.pop(int(words.rpartition(":")[2]), None)
            if found is None:
                client.sendall(b"FAIL" + _text("cannot remove listener"))
                return
            found[0].shutdown(socket.SHUT_RDWR)
            found[0].close()
            client.sendall(b"OKAYOKAY")
        else:
            client.sendall(b"FAIL" + _text(f"unknown host service {words}"))

    # ---- the shell

    def _shell(self, client: socket.socket, name: str, command: str) -> None:
        command = command.replace(TMP, str(self.folder))
        process = subprocess.Popen(
            ["sh", "-c", self._emulating(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        client.sendall(b"OKAY")
        streams = {process.stdout: 1, process.stderr: 2}
        listening, buffer = True, b""
        assert process.stdin is not None
        while streams:
            ready, _, _ = select.select([*streams, *([client] if listening else [])], [], [], 60)
            if client in ready:
                piece = client.recv(65536)
                buffer += piece
                while len(buffer) >= 5:
                    kind, size = struct.unpack("<BI", buffer[:5])
                    if len(buffer) < 5 + size:
                        break
                    data, buffer = buffer[5 : 5 + size], buffer[5 + size :]
                    with contextlib.suppress(OSError):
                        if kind == 0:
                            process.stdin.write(data)
                            process.stdin.flush()
                        elif kind == 3 or kind == 4:
                            process.stdin.close()
                if not piece:
                    listening = False
                    with contextlib.suppress(OSError):
                        process.stdin.close()
            for stream in [stream for stream in streams if stream in ready]:
                assert stream is not None
                data = os.read(stream.fileno(), 65536)
                if not data:
                    del streams[stream]
                elif listening:
                    packet = struct.pack("<BI", streams[stream], len(data)) if "v2" in name else b""
                    with contextlib.suppress(OSError):
                        client.sendall(packet + data)
        code = process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                pipe and pipe.close()
        if listening and "v2" in name:
            with contextlib.suppress(OSError):
                client.sendall(struct.pack("<BIB", 3, 1, code & 255))

    def _emulating(self, command: str) -> str:
        """A command, with `uname` of the device and its programs in an emulator."""
        words = command.replace("exec ./server-", f"exec {self._emulator} ./server-")
        return f'uname() {{ [ "$1" = -m ] && echo aarch64 || command uname "$@"; }}\n{words}'

    # ---- files

    def _sync(self, client: socket.socket) -> None:
        while True:
            kind, size = struct.unpack("<4sI", _read(client, 8))
            if kind == b"QUIT":
                return
            path = _read(client, size).decode()
            {b"SEND": self._receive, b"RECV": self._send, b"STAT": _stat, b"STA2": _stat2}[kind](
                client, Path(path.replace(TMP, str(self.folder), 1))
            )

    def _receive(self, client: socket.socket, path: Path) -> None:
        place, mode = str(path).rsplit(",", 1)
        data, failed = b"", ""
        while True:
            kind, size = struct.unpack("<4sI", _read(client, 8))
            if kind == b"DONE":
                break
            data += _read(client, size)
            if self.push_limit is not None and len(data) > self.push_limit:
                failed = "couldn't write file: No space left on device"
        if not failed and not Path(place).parent.is_dir():
            failed = "couldn't create file: No such file or directory"
        if failed:
            client.sendall(struct.pack("<4sI", b"FAIL", len(failed)) + failed.encode())
            return
        Path(place).write_bytes(data if self.lose is None else data[: self.lose])
        Path(place).chmod(stat.S_IMODE(int(mode)))
        client.sendall(struct.pack("<4sI", b"OKAY", 0))

    def _send(self, client: socket.socket, path: Path) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            text = f"{error.strerror}".encode()
            client.sendall(struct.pack("<4sI", b"FAIL", len(text)) + text)
            return
        for at in range(0, len(data), _PIECE):
            piece = data[at : at + _PIECE]
            client.sendall(struct.pack("<4sI", b"DATA", len(piece)) + piece)
        client.sendall(struct.pack("<4sI", b"DONE", 0))

    # ---- forwards

    def _relay(self, port: int) -> Callable[[socket.socket], None]:
        def relay(near: socket.socket) -> None:
            there = self.forwards[port][1]
            with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", there)) as far:
                self._open |= {near, far}
                for one in (near, far):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                other = {near: far, far: near}
                while True:
                    for one in select.select([near, far], [], [])[0]:
                        data = one.recv(1 << 16)
                        if not data:
                            return
                        other[one].sendall(data)

        return relay


def _accept(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=serve, args=(client,), daemon=True).start()


def _stat(client: socket.socket, path: Path) -> None:
    try:
        info = path.stat()
        numbers = (info.st_mode, info.st_size & 0xFFFFFFFF, int(info.st_mtime))
    except OSError:
        numbers = (0, 0, 0)
    client.sendall(struct.pack("<4sIII", b"STAT", *numbers))


def _stat2(client: socket.socket, path: Path) -> None:
    try:
        info = path.stat()
        times = (int(info.st_atime), int(info.st_mtime), int(info.st_ctime))
        numbers = (0, info.st_dev, info.st_ino, info.st_mode, info.st_nlink, info.st_uid, info.st_gid)
        client.sendall(struct.pack("<4sIQQIIIIQqqq", b"STA2", *numbers, info.st_size, *times))
    except OSError as error:
        client.sendall(struct.pack("<4sIQQIIIIQqqq", b"STA2", error.errno or 5, *[0] * 10))


def _part(client: socket.socket) -> None:
    """Read what the client still sends: a socket closed with it unread takes back the last of our answer."""
    client.settimeout(60)
    client.shutdown(socket.SHUT_WR)
    while client.recv(4096):
        pass


def _read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _text(text: str) -> bytes:
    return b"%04x%s" % (len(text.encode()), text.encode())
