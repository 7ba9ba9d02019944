"""The supervisor: accepts connections, reads handshakes, and gives each session a worker process of its own.

It never loads user code, and nothing that a peer or a worker does ends it. Everything here is one asyncio
loop; each connection is a task, with a deadline until its session begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Callable

from farcall.errors import ProtocolError
from farcall.rpc.doorway import Doorway
from farcall.rpc.handshake import Hello, ServerHandshake, server_accept, server_refuse
from farcall.rpc.hangup import HangupWatch
from farcall.rpc.limits import Limits
from farcall.rpc.pool import WorkerPool
from farcall.rpc.served import ServedSession, Verdict, last_words

_ACCEPT_PAUSE = 0.05  # when no descriptor is left
_WRONG_KEY = 5.0  # points; as much as five silent peers

Log = Callable[[dict[str, object]], object]


class Supervisor:
    """One listening socket and its sessions.

    Args:
        listener: bound and listening.
        key: what a client must name.
        init: ``PKG.MOD:FUNC``, run for every worker.
        limits: of the server and its sessions.
        log: told of every event: a dictionary with ``event`` and its facts.
    """

    def __init__(
        self, listener: socket.socket, key: str, init: str | None, limits: Limits, log: Log | None = None
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._key = key
        self._limits = limits
        self._log = log
        self._doorway = Doorway(limits.pending_peers, limits.handshake_seconds)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sessions: dict[int, ServedSession] = {}
        self._numbers = itertools.count(1)
        self._pool = WorkerPool(init, limits)
        self._drain = asyncio.Event()
        self._halt = asyncio.Event()

    async def prepare(self) -> None:
        """Start what makes workers, so that a broken ``init`` is known before anybody connects.

        Raises:
            UsageError: it could not be started.
        """
        await self._pool.start()

    def stop(self, *, drain: bool = False) -> None:
        """Make :meth:`run` return. For the loop's thread.

        Args:
            drain: let the sessions that are open finish, for ``drain_seconds``; a second call ends them now.
        """
        if drain and not self._drain.is_set():
            self._tell("draining", sessions=len(self._sessions))
        else:
            self._halt.set()
        self._drain.set()

    def report(self) -> None:
        """Log every open session, with its counters."""
        for session in self._sessions.values():
            self._tell("session", **_facts(session))

    async def run(self) -> None:
        """Serve until :meth:`stop`, then end every session."""
        self._hangups = HangupWatch()
        helpers = [asyncio.create_task(self._accept()), asyncio.create_task(self._look_after())]
        try:
            await self._drain.wait()
            helpers[0].cancel()
            self._listener.close()  # nobody waits for a server that goes
            await self._finish()
        finally:
            for task in (*helpers, *self._tasks):
                task.cancel()
            await asyncio.gather(*helpers, *self._tasks, return_exceptions=True)
            self._listener.close()
            self._hangups.close()
            self._pool.close()
            self._tell("stopped")

    async def _finish(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.drain_seconds):
                while self._sessions and not self._halt.is_set():
                    halted = asyncio.create_task(self._halt.wait())
                    await asyncio.wait((halted, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
                    halted.cancel()
        self._halt.set()
        for session in self._sessions.values():
            session.end("shutdown", "ConnectionLostError: the server is shutting down")
        while self._sessions:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def _look_after(self) -> None:
        """Ends the sessions whose call or whose silence lasts too long."""
        waits = [value for value in (self._limits.call_seconds, self._limits.lease_seconds) if value]
        while waits:
            await asyncio.sleep(min(1.0, min(waits) / 4))
            now = time.monotonic()
            for session in self._sessions.values():
                session.check(now)

    def _tell(self, event: str, **facts: object) -> None:
        if self._log is not None:
            self._log({"event": event, "time": round(time.time(), 3), **facts})

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
            task.add_done_callback(self._forget)
            self._doorway.enter(task, str(address[0]))
            await asyncio.sleep(0)  # sock_accept does not yield while peers wait; those here must get on

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._doorway.leave(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell("fault", error=repr(error))

    async def _connection(self, connection: socket.socket, address: tuple[object, ...]) -> None:
        source, peer = str(address[0]), ":".join(map(str, address[:2]))
        with connection:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(connection)
            try:
                async with asyncio.timeout(self._doorway.seconds(source)):
                    hello = await self._handshake(connection)
            except (TimeoutError, ProtocolError, OSError) as error:
                self._doorway.penalise(source)
                self._tell("refused", peer=peer, reason=str(error) or type(error).__name__)
                return
            self._doorway.leave(asyncio.current_task())
            if hello is None:
                self._doorway.penalise(source, _WRONG_KEY)
                self._tell("refused", peer=peer, reason="wrong key")
                return
            await self._session(connection, hello, peer)

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
        if len(self._sessions) >= self._limits.sessions:
            self._tell("refused", peer=peer, reason="full")
            full = f"the server has {len(self._sessions)} sessions open, which is its limit; try again later"
            await last_words(connection, f"ConnectionLostError: {full}")
            return
        session = ServedSession(next(self._numbers), connection, peer, self._limits)
        self._sessions[session.number] = session
        self._tell("session start", session=session.number, peer=peer)
        verdict = Verdict("fault")
        try:
            verdict = await session.run(self._pool, self._hangups, hello.timeout)
            await last_words(connection, verdict.words, linger=not self._halt.is_set())
        finally:
            del self._sessions[session.number]
            self._tell("session end", reason=verdict.reason, words=verdict.words, **_facts(session))


def _facts(session: ServedSession) -> dict[str, object]:
    """For the log."""
    facts: dict[str, object] = {
        "session": session.number,
        "peer": session.peer,
        "seconds": round(time.monotonic() - session.started, 3),
    }
    if session.worker is not None:
        facts.update(pid=session.worker.pid, **session.worker.counters)
    return facts


def keep_alive(connection: socket.socket) -> None:
    """Let the kernel find out that a peer's machine is gone: in about a minute, not in two hours."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)
