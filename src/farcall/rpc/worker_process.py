"""A worker as the supervisor sees it: a process, its control socket, and the page that says what it does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path

from farcall.errors import UsageError
from farcall.rpc.limits import Limits
from farcall.rpc.page import PAGE_BYTES, Page


class WorkerProcess:
    """One worker. Made by :meth:`start`; :meth:`close` when its process has ended."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._page: Page | None = None

    @classmethod
    async def start(cls, init: str | None, limits: Limits) -> WorkerProcess:
        """Start a process and wait until it is ready for a session.

        Raises:
            UsageError: it ended before, or took too long; the message has its reason.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            options = json.dumps({"init": init, "limits": asdict(limits)})
            command = [sys.executable, "-m", "farcall.rpc.worker", str(theirs.fileno()), options]
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=2,  # what functions print must not mix with what the server says
                pass_fds=[theirs.fileno()],
                env=_environment(),
            )
        worker = cls(process, ours)
        try:
            await worker._await_ready(limits.spawn_seconds)
        except BaseException:
            await worker.kill("")
            worker.close()
            raise
        return worker

    async def _await_ready(self, seconds: float) -> None:
        self._control.setblocking(False)
        line = b""
        try:
            async with asyncio.timeout(seconds):
                while not line.endswith(b"\n"):
                    piece = await asyncio.get_running_loop().sock_recv(self._control, 65536)
                    if not piece:
                        raise UsageError("a worker process ended before it was ready; see stderr")
                    line += piece
        except TimeoutError:
            raise UsageError(f"a worker process was not ready within {seconds:g} s") from None
        message = json.loads(line)
        if "error" in message:
            raise UsageError(message["error"])

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def give(self, connection: socket.socket, workdir: Path, peer: str) -> None:
        """Hand the client's connection over; the caller keeps its own descriptor of it."""
        fd = _page_file()
        try:
            self._page = Page(fd)
            message = json.dumps({"workdir": str(workdir), "peer": peer}).encode()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died: wait() will tell
                socket.send_fds(self._control, [message], [connection.fileno(), fd])
        finally:
            os.close(fd)

    async def wait(self) -> int:
        """The exit status; negative for a signal."""
        if (status := self._process.poll()) is not None:
            return status
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def tell() -> None:
            if not ended.done():
                ended.set_result(None)

        try:
            pidfd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):
            threading.Thread(
                target=lambda: (self._process.wait(), loop.call_soon_threadsafe(tell)), daemon=True
            ).start()
            await ended
            return self._process.wait()
        try:
            loop.add_reader(pidfd, tell)
            await ended
            return self._process.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)

    async def kill(self, words: str) -> str | None:
        """End the process; answers ``words`` when they can still be said to the client."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await asyncio.shield(self.wait())
        return None if self._page is not None and self._page.sending else words

    def obituary(self, status: int) -> str | None:
        """What the client must be told; None when all was in order, or half a packet is out."""
        if self._page is None or self._page.sending:
            return None
        name = self._page.calling
        if status == 0 and name is None:
            return None
        where = f" in `{name}`" if name is not None else ""
        return (
            f"WorkerCrashedError: the server's worker process of this session {_cause(status)}{where}; "
            "what the session held there is gone. The server lives on: connect again"
        )

    def close(self) -> None:
        """Release what the supervisor holds of it. The process has ended, or was killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        self._control.close()
        if self._page is not None:
            self._page.close()


def _cause(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name} ({signal.strsignal(-status)})"
    except ValueError:
        return f"was ended by signal {-status}"


def _page_file() -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("farcall-page", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, PAGE_BYTES)
    return fd


def _environment() -> dict[str, str]:
    """Workers find what this process finds."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109
    return {**os.environ, "PYTHONPATH": path}
