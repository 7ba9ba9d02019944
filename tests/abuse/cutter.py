"""A proxy that cuts a connection after a number of bytes, so that a peer dies at any byte of any packet."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from types import TracebackType

from .drivers import Address

_NEVER = 1 << 60


class Cutter:
    """Stands between one client and a server.

    Args:
        server: the address of the server.
        up: number of bytes from the client that pass before the proxy closes both connections.
        down: the same for bytes from the server.
    """

    def __init__(self, server: Address, up: int = _NEVER, down: int = _NEVER) -> None:
        self._server = server
        self._left = [up, down]
        self.passed = [0, 0]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            with client, socket.create_connection(self._server) as server:
                self._move(client, server)

    def _move(self, client: socket.socket, server: socket.socket) -> None:
        ways = {client: (0, server), server: (1, client)}
        while all(self._left):
            for source in select.select(list(ways), [], [])[0]:
                way, target = ways[source]
                data = source.recv(min(65536, self._left[way]))
                if not data:
                    return
                target.sendall(data)
                self._left[way] -= len(data)
                self.passed[way] += len(data)
                if not self._left[way]:
                    return

    def __enter__(self) -> Cutter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # no client came: wake the thread, so that it ends
            socket.create_connection(self._listener.getsockname(), timeout=1).close()
        self._thread.join()
