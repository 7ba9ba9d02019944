"""The page of a server's metrics, over HTTP.

It has a listener and threads of its own, so that none of its clients can delay a session.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from farcall._logs import Log
from farcall._texts import escaped
from farcall.errors import UsageError
from farcall.rpc.server._metrics import single

_REQUEST_SECONDS = 5.0  # that a client has for its request, and to read the answer
_REQUESTS = 8  # at once; others are turned away
_POLL_SECONDS = 0.1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


Collect = Callable[[], "Future[tuple[str, tuple[int, ...]]]"]


class MetricsPage:
    """Serves ``/metrics`` over HTTP. It holds no secrets: counts without names.

    Args:
        place: ``HOST:PORT``, or a port on loopback; port 0 takes a free one.

    Attributes:
        url: of the page.

    Raises:
        UsageError: the place is not valid, or cannot be listened at.
    """

    def __init__(self, place: str) -> None:
        host, port = _parse(place)
        try:
            self._http = _Http((host, port), _Request)
        except OSError as error:
            raise UsageError(f"metrics: cannot listen at {place!r}: {error.strerror or error}") from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._http.server_address[1]}/metrics"
        self._thread: threading.Thread | None = None

    def start(self, collect: Collect) -> None:
        """Answer requests from now on.

        Args:
            collect: asks the supervisor for the page's text and the workers' process ids, from any thread.
        """
        self._http.collect = collect
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(_POLL_SECONDS,), name="farcall-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Safe to call twice."""
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
            self._thread = None
        self._http.server_close()


def _parse(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":") if isinstance(place, str) else ("", "", "")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"metrics: expected HOST:PORT, such as 127.0.0.1:9464, got {place!r:.80}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    collect: Collect

    def __init__(self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        self._room = threading.BoundedSemaphore(_REQUESTS)
        super().__init__(place, handler)

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)  # the base class would look up the host's name
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # The clock bounds the whole request: a timeout of the socket bounds only one read.
        clock = threading.Timer(_REQUEST_SECONDS, _cut, (request,))
        clock.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            clock.cancel()
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        Log("rpc.metrics").debug("a request failed", exc_info=True)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Request(BaseHTTPRequestHandler):
    server: _Http
    server_version, sys_version = "farcall", ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, explain="The metrics are at /metrics.")
            return
        try:
            text, pids = self.server.collect().result(_REQUEST_SECONDS)
        except Exception:  # the server stops, or is too busy
            self.send_error(503)
            return
        body = (text + _memory(pids)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        Log("rpc.metrics").debug("%s: %s", self.client_address[0], escaped(format % args))


def _memory(pids: Iterable[int]) -> str:
    """The family of the workers' memory: resident pages that belong to no file."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
            total += max(int(resident) - int(shared), 0) * _PAGE_BYTES
    return single("worker_memory_bytes", "gauge", "Memory of the sessions' workers.", total)
