"""The supervisor: accepts connections, reads handshakes, and gives each session a worker process of its own.

It never loads user code, and nothing that a peer or a worker does ends it. Everything here is one asyncio
loop; each connection is a task, with a deadline until its session begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from farcall.errors import ProtocolError, UsageError
from farcall.rpc.handshake import Hello, ServerHandshake, server_accept, server_refuse
from farcall.rpc.limits import Limits
from farcall.rpc.packets import exception_packet
from farcall.rpc.worker_process import WorkerProcess

_LINGER_SECONDS = 1.0  # for the peer to read the last words, before a close could destroy them
_ACCEPT_PAUSE = 0.05  # when no descriptor is left


class Supervisor:
    """One listening socket and its sessions.

    Args:
        listener: bound and listening.
        key: what a client must name.
        init: ``PKG.MOD:FUNC``, run in every worker.
        limits: of the server and its sessions.
    """

    def __init__(self, listener: socket.socket, key: str, init: str | None, limits: Limits) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._key = key
        self._init = init
        self._limits = limits
        self._pending: dict[asyncio.Task[None], None] = {}  # in a handshake, oldest first
        self._tasks: set[asyncio.Task[None]] = set()
        self._sessions = 0
        self._spare: asyncio.Task[WorkerProcess] | None = None
        self._stop = asyncio.Event()

    async def prepare(self) -> None:
        """Start the first worker, so that a broken ``init`` is known before anybody connects.

        Raises:
            UsageError: the worker could not be started.
        """
        self._order_spare()
        assert self._spare is not None  # noqa: S101
        await asyncio.shield(self._spare)

    def stop(self) -> None:
        """Make :meth:`run` return. For the loop's thread."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until :meth:`stop`, then end every session."""
        accepting = asyncio.create_task(self._accept())
        try:
            await self._stop.wait()
        finally:
            accepting.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(accepting, *self._tasks, return_exceptions=True)
            self._listener.close()
            await self._drop_spare()

    # ---- connections

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listener)
            except OSError:  # out of descriptors, or the peer left again: both pass
                await asyncio.sleep(_ACCEPT_PAUSE)
                continue
            task = asyncio.create_task(self._connection(connection, address))
            self._tasks.add(task)
            self._pending[task] = None
            task.add_done_callback(self._forget)
            if len(self._pending) > self._limits.pending_peers:
                oldest = next(iter(self._pending))
                del self._pending[oldest]
                oldest.cancel()
            await asyncio.sleep(0)  # sock_accept does not yield while peers wait; those here must get on

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._pending.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            print(f"farcall serve: a session failed: {error!r}", file=sys.stderr)

    async def _connection(self, connection: socket.socket, address: tuple[object, ...]) -> None:
        with connection:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            try:
                async with asyncio.timeout(self._limits.handshake_seconds):
                    hello = await self._handshake(connection)
            except (TimeoutError, ProtocolError, OSError):
                return
            self._pending.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
            if hello is not None:
                await self._session(connection, hello, ":".join(map(str, address[:2])))

    async def _handshake(self, connection: socket.socket) -> Hello | None:
        """What the peer asks for; None when it was refused."""
        loop = asyncio.get_running_loop()
        handshake = ServerHandshake(self._limits.key_bytes)
        while handshake.needed:
            data = b""
            while len(data) < handshake.needed:
                piece = await loop.sock_recv(connection, handshake.needed - len(data))
                if not piece:
                    raise ProtocolError("the peer left in the handshake")
                data += piece
            handshake.feed(data)
        hello = handshake.hello
        if hello is None or hello.key != self._key:
            await loop.sock_sendall(connection, server_refuse())
            return None
        return hello

    # ---- sessions

    async def _session(self, connection: socket.socket, hello: Hello, peer: str) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await loop.sock_sendall(connection, server_accept(self._key))
        if self._sessions >= self._limits.sessions:
            full = f"the server has {self._sessions} sessions open, which is its limit; try again later"
            await _last_words(connection, f"ConnectionLostError: {full}")
            return
        self._sessions += 1
        try:
            words = await self._serve(connection, hello.timeout, peer)
            await _last_words(connection, words)
        finally:
            self._sessions -= 1

    async def _serve(self, connection: socket.socket, timeout: float | None, peer: str) -> str | None:
        """Run the session; answers what is still to be said to the client."""
        try:
            worker = await self._take_worker()
        except UsageError as error:
            return f"ConnectionLostError: the server cannot start a worker: {error}"
        workdir = Path(tempfile.mkdtemp(prefix="farcall-session-"))
        try:
            connection.setblocking(True)  # the worker shares this flag
            worker.give(connection, workdir, peer)
            async with asyncio.timeout(timeout):
                status = await self._outcome(worker, connection)
            return worker.obituary(status) if status is not None else None
        except TimeoutError:
            # The prefix by which a TVM client knows it.
            return await worker.kill(f"RPCSessionTimeoutError: the session's {timeout:g} s are over")
        except asyncio.CancelledError:
            farewell = await worker.kill("ConnectionLostError: the server is shutting down")
            await _last_words(connection, farewell, linger=False)
            raise
        finally:
            try:
                await worker.kill("")
            finally:  # also when the server stops just now
                worker.close()
                shutil.rmtree(workdir, ignore_errors=True)

    async def _outcome(self, worker: WorkerProcess, connection: socket.socket) -> int | None:
        """The worker's exit status; None when the client left and the worker had to be ended."""
        ending = asyncio.create_task(worker.wait())
        leaving = asyncio.create_task(_hangup(connection))
        try:
            await asyncio.wait((ending, leaving), return_when=asyncio.FIRST_COMPLETED)
            # A kernel that never returns must not outlive its client for long.
            await asyncio.wait((ending,), timeout=self._limits.abandoned_seconds)
            return ending.result() if ending.done() else None
        finally:
            leaving.cancel()
            ending.cancel()

    # ---- workers

    def _order_spare(self) -> None:
        if self._spare is None:
            self._spare = asyncio.create_task(WorkerProcess.start(self._init, self._limits))
            self._spare.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _take_worker(self) -> WorkerProcess:
        """The spare, or a new one when that has died; another is ordered."""
        self._order_spare()
        spare, self._spare = self._spare, None
        assert spare is not None  # noqa: S101
        try:
            worker = await asyncio.shield(spare)
        except asyncio.CancelledError:
            self._spare = spare  # the server stops, and drops it
            raise
        finally:
            if not self._stop.is_set():
                self._order_spare()
        if worker.alive():
            return worker
        worker.close()
        return await WorkerProcess.start(self._init, self._limits)

    async def _drop_spare(self) -> None:
        if self._spare is None:
            return
        if not self._spare.done():
            self._spare.cancel()
        with contextlib.suppress(Exception, asyncio.CancelledError):
            worker = await self._spare
            await worker.kill("")
            worker.close()


async def _hangup(connection: socket.socket) -> None:
    """Until the peer has closed. Unlike a read, it takes no data away from the worker."""
    if not hasattr(select, "epoll"):
        await asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()
    with select.epoll() as poll:
        poll.register(connection.fileno(), select.EPOLLRDHUP)
        loop.add_reader(poll.fileno(), closed.set)
        try:
            await closed.wait()
        finally:
            loop.remove_reader(poll.fileno())


async def _last_words(connection: socket.socket, text: str | None, *, linger: bool = True) -> None:
    """Say why the session ended (as the reply to whatever was asked), and let the peer read it."""
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            if text is not None:
                await loop.sock_sendall(connection, exception_packet(text))
            connection.shutdown(socket.SHUT_WR)
            while linger and await loop.sock_recv(connection, 65536):
                pass
