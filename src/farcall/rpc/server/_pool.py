"""Workers on demand: the supervisor's half of the zygote, and a few spares that wait for a session."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from farcall._logs import Log
from farcall.errors import UsageError
from farcall.rpc.server._output import OutputLog
from farcall.rpc.server._relay import Devices
from farcall.rpc.server._status_page import StatusPage, page_file
from farcall.rpc.server._worker_process import WorkerProcess
from farcall.rpc.shared._limits import Limits

_FILL_SECONDS = 0.02
_FORK_SECONDS = 5.0  # a zygote that has not confirmed a fork within this time hangs
_CLOSE_SECONDS = 2.0  # for the zygote to end its workers and remove their folders
_MESSAGE_BYTES = 65536


class WorkerPool:
    """Gives each session a worker.

    Args:
        init: ``PKG.MOD:FUNC``, which workers run before their session.
        limits: of the sessions; the pool itself reads ``spares`` and ``spawn_seconds``.
        devices: the devices of the server.
    """

    def __init__(self, init: str | None, limits: Limits, devices: Devices) -> None:
        self._init = init
        self._limits = limits
        self._devices = devices
        self._late = False  # whether --init starts threads, so that each worker has to run it itself
        self._zygote: _Zygote | None = None
        self._starting: asyncio.Task[_Zygote] | None = None
        self._spares: collections.deque[WorkerProcess] = collections.deque()
        self._output = OutputLog(limits.output_bytes)

    async def start(self) -> None:
        """Start the zygote, so that a broken ``init`` fails before any client connects.

        Raises:
            UsageError: the zygote could not be started.
        """
        await self._ready_zygote()
        self._fill()

    async def take(self) -> WorkerProcess:
        """Take a worker that waits for a session; the pool forks another soon.

        Raises:
            UsageError: the zygote has died and cannot be started again.
            OSError: no descriptors are left, or the disk has no room for a folder.
        """
        zygote = await self._ready_zygote()
        while self._spares:
            worker = self._spares.popleft()
            if not worker.ended.done() and worker.workdir.is_dir():
                break
            worker.close()
        else:
            worker = zygote.fork()
        # Later, because a fork now would take CPU time from the session that begins.
        asyncio.get_running_loop().call_later(_FILL_SECONDS, self._fill)
        return worker

    def _fill(self) -> None:
        zygote = self._zygote
        with contextlib.suppress(OSError):  # the next take() fails with the same error
            while zygote is not None and zygote.alive and len(self._spares) < self._limits.spares:
                self._spares.append(zygote.fork())

    async def _ready_zygote(self) -> _Zygote:
        if self._zygote is not None and self._zygote.alive:
            return self._zygote
        if self._starting is None:
            self._starting = asyncio.create_task(self._start_zygote())
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)

    def _started(self, task: asyncio.Task[_Zygote]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the callers that wait get it, too

    async def _start_zygote(self) -> _Zygote:
        if self._zygote is not None:
            self._zygote.close()
        zygote = _Zygote(self._init, self._limits, self._devices, self._output, late=self._late)
        try:
            answer = await zygote.answer(self._limits.spawn_seconds)
            if "threads" in answer and not self._late:
                zygote.close()
                self._late = True
                zygote = _Zygote(self._init, self._limits, self._devices, self._output, late=True)
                answer = await zygote.answer(self._limits.spawn_seconds)
            if "error" in answer:
                raise UsageError(answer["error"])
        except BaseException:
            zygote.close()
            raise
        zygote.listen()
        self._zygote = zygote
        Log("rpc.pool").debug("the process that makes workers is ready")
        return zygote

    def close(self) -> None:
        """End all workers."""
        if self._starting is not None:
            self._starting.cancel()
        for worker in self._spares:
            worker.close()
        self._spares.clear()
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None
        self._output.close()


class _Zygote:
    """The zygote process; :mod:`farcall.rpc.server._zygote` describes the messages of its control socket."""

    def __init__(
        self, init: str | None, limits: Limits, devices: Devices, output: OutputLog, *, late: bool
    ) -> None:
        self._output = output
        self._root = Path(tempfile.mkdtemp(prefix="farcall-server-"))
        self.alive = False
        self._numbers = itertools.count(1)
        self._workers: dict[int, WorkerProcess] = {}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        options = {
            "init": init,
            "late": late,
            "limits": asdict(limits),
            "devices": devices,
            "parent": os.getpid(),
            "root": str(self._root),
        }
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "farcall.rpc.server._zygote",
                    str(theirs.fileno()),
                    json.dumps(options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=2,  # printed text must not mix with the server's own standard output
                pass_fds=[theirs.fileno()],
                env=_environment(limits.sessions),
            )

    async def answer(self, seconds: float) -> dict[str, Any]:
        """The zygote's message on how its start went.

        Raises:
            UsageError: the zygote ended, or was not ready within ``seconds``.
        """
        try:
            async with asyncio.timeout(seconds):
                data = await asyncio.get_running_loop().sock_recv(self._control, _MESSAGE_BYTES)
        except TimeoutError:
            raise UsageError(f"no worker process was ready within {seconds:g} s") from None
        if not data:
            raise UsageError("the process that makes workers ended before it was ready; see stderr")
        return dict(json.loads(data))

    def listen(self) -> None:
        """Handle the zygote's messages from now on; :meth:`fork` may be called."""
        self.alive = True
        asyncio.get_running_loop().add_reader(self._control, self._on_message)

    def fork(self) -> WorkerProcess:
        """Order a new worker and return at once; its socket buffers messages until the fork is done."""
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        with theirs, page_file() as page_fd, self._output.pipe(f"worker {number}") as (output, output_fd):
            folder = self._new_folder(number)
            worker = WorkerProcess(number, ours, StatusPage(page_fd), folder, self._kill, output)
            self._workers[number] = worker
            self._say({"fork": number}, theirs.fileno(), page_fd, output_fd)
        asyncio.get_running_loop().call_later(_FORK_SECONDS, self._look_for, worker)
        return worker

    def _new_folder(self, number: int) -> Path:
        """Make a session's folder, which is removed with this zygote at the latest."""
        folder = self._root / str(number)
        try:
            folder.mkdir(mode=0o700)
        except FileNotFoundError:  # a cleaner of temporary files has removed the root
            self._root.mkdir(mode=0o700)
            folder.mkdir(mode=0o700)
        return folder

    def _look_for(self, worker: WorkerProcess) -> None:
        if worker.pid == 0 and not worker.ended.done():
            self._lost()

    def _kill(self, number: int) -> None:
        self._say({"kill": number})

    def _say(self, message: dict[str, int], *fds: int) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], fds)
        except OSError:  # the zygote is gone or hangs: all workers end with it
            self._lost()

    def _on_message(self) -> None:
        try:
            data = self._control.recv(_MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        message = json.loads(data)
        if "forked" in message:
            if worker := self._workers.get(message["forked"]):
                worker.pid = message["pid"]
                Log("rpc.pool").debug("worker %d is process %d", worker.number, worker.pid)
        elif worker := self._workers.pop(message["ended"], None):
            worker.failure = message.get("error")
            _end(worker, message["status"])

    def _lost(self) -> None:
        """The zygote is gone or hangs: end it, and with it all workers."""
        if not self.alive:
            return
        self.alive = False
        asyncio.get_running_loop().remove_reader(self._control)
        self._process.kill()
        while self._workers:
            _end(self._workers.popitem()[1], -signal.SIGKILL)

    def close(self) -> None:
        """End the zygote, which ends its workers and removes their folders."""
        if self.alive:
            self.alive = False
            asyncio.get_running_loop().remove_reader(self._control)
        else:  # --init may never return
            self._process.kill()
        self._control.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its workers die with it
            self._process.wait()
        while self._workers:
            _end(self._workers.popitem()[1], -signal.SIGKILL)
        with contextlib.suppress(OSError):
            shutil.rmtree(self._root)


def _end(worker: WorkerProcess, status: int) -> None:
    if not worker.ended.done():
        worker.ended.set_result(status)


def _environment(sessions: int) -> dict[str, str]:
    """This process's environment, with its import path: workers import the same modules.

    So many sessions share the CPUs: a model computes on no more than its part of them, unless the server's
    environment says otherwise.
    """
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109
    threads = max(1, min(len(os.sched_getaffinity(0)) // sessions, 256))
    return {"FARCALL_THREADS": str(threads), **os.environ, "PYTHONPATH": path}
