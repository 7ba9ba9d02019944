"""A proxy between two servers: it counts round trips, and can hold what comes or end the far one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple


class Ends(NamedTuple):
    """The two connections of a session."""

    near: socket.socket
    far: socket.socket


class Between:
    """Passes on what comes, in both directions.

    Attributes:
        url: of the proxy.
        trips: how often bytes came from the near side after bytes from the far side, or first.
        tap: called before bytes of the near side are passed on; False drops them.
        ended: set when a session has ended, on both sides.
    """

    def __init__(self, listener: socket.socket, target: str) -> None:
        self.url = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        self.trips = 0
        self.tap: Callable[[], bool] = lambda: True
        self.ended = threading.Event()
        self._listener, self._target = listener, target

    def run(self) -> None:
        """Serve sessions, one after the other, until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                with near, _connected(self._target) as far:
                    self._serve(Ends(near, far))
                self.ended.set()

    def _serve(self, ends: Ends) -> None:
        last = ends.far
        with contextlib.suppress(OSError):
            while True:
                for source in select.select(ends, [], [])[0]:
                    if not (data := source.recv(1 << 16)):
                        return
                    self.trips += source is ends.near and last is not source
                    last = source
                    if source is ends.far:
                        ends.near.sendall(data)
                    elif self.tap():
                        ends.far.sendall(data)


def _connected(url: str) -> socket.socket:
    if url.startswith("unix:"):
        far = socket.socket(socket.AF_UNIX)
        far.connect(url.removeprefix("unix:"))
        return far
    host, _, port = url.removeprefix("tcp://").partition(":")
    return socket.create_connection((host, int(port)))


@contextlib.contextmanager
def between(target: str) -> Iterator[Between]:
    """A proxy of a server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Between(listener, target)
        thread = threading.Thread(target=proxy.run, daemon=True)
        thread.start()
        yield proxy
        listener.shutdown(socket.SHUT_RDWR)


def kill(server: int) -> bool:
    """Kill a small server with its workers, between a request's arrival and the reply to it. A tap."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    for pid in (*map(int, children), server):
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
    return True
