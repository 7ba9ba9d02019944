"""A link with a delay, as a network has one: a proxy of a TCP address that holds back every byte."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator

PIECE = 1 << 16


@contextlib.contextmanager
def slow_link(port: int, seconds: float) -> Iterator[str]:
    """The URL of a proxy of a port of this machine, for one connection; each way takes ``seconds`` longer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, port, seconds), daemon=True).start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def _serve(listener: socket.socket, port: int, seconds: float) -> None:
    near, _ = listener.accept()
    with near, socket.create_connection(("127.0.0.1", port)) as far:
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_carry, args=(far, near, seconds), daemon=True)
        back.start()
        _carry(near, far, seconds)
        back.join()


def _carry(source: socket.socket, target: socket.socket, seconds: float) -> None:
    """Pass on what comes, each piece at its time, until the source ends."""
    pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
    writer = threading.Thread(target=_write, args=(pieces, target), daemon=True)
    writer.start()
    with contextlib.suppress(OSError):
        while data := source.recv(PIECE):
            pieces.put((time.monotonic() + seconds, data))
    pieces.put((0.0, b""))
    writer.join()


def _write(pieces: queue.SimpleQueue[tuple[float, bytes]], target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while (item := pieces.get())[1]:
            due, data = item
            time.sleep(max(0.0, due - time.monotonic()))
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
