"""The supervisor: accepts connections, reads handshakes, and gives each session its own worker process.

It never loads user code, and nothing that a peer or a worker does can end it. The supervisor is one asyncio
loop; each connection is a task with a deadline until its session begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import resource
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from farcall._texts import count
from farcall.errors import AccessDeniedError, CertificateError, ProtocolError, UsageError
from farcall.rpc.channels import Accepted, Arrival, Listener
from farcall.rpc.server._admission import Admission
from farcall.rpc.server._event_texts import log_event, log_sessions
from farcall.rpc.server._hangup import HangupWatch
from farcall.rpc.server._metrics import Counters, Snapshot
from farcall.rpc.server._pool import WorkerPool
from farcall.rpc.server._questions import QuestionSocket
from farcall.rpc.server._relay import Devices
from farcall.rpc.server._session_runner import SessionRunner, Verdict, last_words
from farcall.rpc.shared._handshake import Hello, ServerHandshake, server_accept, server_refuse
from farcall.rpc.shared._limits import Limits
from farcall.rpc.tokens import Grant, TokenFile, check_carrier

_ACCEPT_PAUSE = 0.05  # before the next accept, when no file descriptor is left
# At most 1/8 of the file descriptors may belong to peers in a handshake; sessions need the rest.
_PENDING_SHARE = 8
# The time that sessions get to end; a process blocked in a driver may never end. With drain_seconds and the
# pool's _CLOSE_SECONDS, the sum stays below the 10 s that containers get to stop.
_END_SECONDS = 2.0
_IDLE_SECONDS = 0.05  # between two checks of a session; it is idle when nothing changed between them
_WRONG_KEY = "wrong key"
_SHUTDOWN = "ConnectionLostError: the server is shutting down"
_DENIED = 5.0  # penalty points for a wrong key or token: as many as for five silent peers

Log = Callable[[dict[str, object]], object]


class Supervisor:
    """Listeners and their sessions. The clock of the running loop decides about all limits of time.

    Args:
        listeners: the places where clients connect.
        key: the key that every client must send.
        init: ``PKG.MOD:FUNC``, run for every worker.
        limits: of the server and its sessions.
        tokens: the tokens that the server accepts; None: every client may do everything.
        log: called with every event: a dictionary with ``event`` and its facts.
        devices: the devices of the server, to which a session may go on.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        key: str,
        init: str | None,
        limits: Limits,
        tokens: TokenFile | None = None,
        log: Log | None = None,
        devices: Devices | None = None,
    ) -> None:
        self._listeners = listeners
        self._key = key
        self._limits = limits
        self._tokens = tokens
        self._problem: str | None = None  # the last logged problem with the token file
        self._log = log
        self._counters = Counters()
        self._loop = asyncio.get_running_loop()
        clock = asyncio.get_running_loop().time
        self._admission = Admission(_room(limits.pending_peers), limits.handshake_seconds, clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sessions: dict[int, SessionRunner] = {}
        self._numbers = itertools.count(1)
        self._pool = WorkerPool(init, limits, devices or {})
        self._drain = asyncio.Event()
        self._halt = asyncio.Event()

    async def prepare(self) -> None:
        """Start the zygote, so that a broken ``init`` fails before any client connects.

        Raises:
            UsageError: the zygote could not be started.
        """
        try:
            await self._pool.start()
        except BaseException:
            self._pool.close()
            raise

    def stop(self, *, drain: bool = False) -> None:
        """Make :meth:`run` return. Call it in the loop's thread.

        Args:
            drain: give running calls ``drain_seconds`` to finish; a second call ends them at once.
        """
        if drain and not self._drain.is_set():
            self.drain()
        else:
            self._halt.set()
            self._drain.set()

    def drain(self) -> None:
        """Make :meth:`run` return once running calls have finished, or ``drain_seconds`` are over.

        A second call does nothing: when a terminal closes, the server may get more than one SIGHUP.
        """
        if not self._drain.is_set():
            self._tell("draining", sessions=len(self._sessions))
            self._drain.set()

    def report(self) -> None:
        """Log every open session, with its counters."""
        rows = [session.status() for session in self._sessions.values()]
        for row in rows:
            self._tell("session", **row)
        log_sessions(rows)

    def metrics(self) -> Future[tuple[str, tuple[int, ...]]]:
        """The page of metrics without the workers' memory, and their process ids. Call it in any thread.

        Raises:
            RuntimeError: the loop has ended.
        """
        answer: Future[tuple[str, tuple[int, ...]]] = Future()
        self._loop.call_soon_threadsafe(lambda: answer.set_result(self._metrics()))
        return answer

    def _metrics(self) -> tuple[str, tuple[int, ...]]:
        workers = [session.worker for session in self._sessions.values() if session.worker is not None]
        counted = Counter({"calls": 0, "received": 0, "sent": 0})
        for worker in workers:
            counted.update(worker.counters)
        calling = sum(worker.calling is not None for worker in workers)
        pids = tuple(worker.pid for worker in workers)
        return self._counters.page(Snapshot(len(self._sessions), calling, counted, pids)), pids

    def _output(self, pid: int, start: int) -> tuple[int, bytes] | None:
        for session in self._sessions.values():
            if session.worker is not None and session.worker.pid == pid:
                return session.worker.output.tail.since(start)
        return None

    async def run(self) -> None:
        """Serve until :meth:`stop`, then end every session."""
        self._hangups = HangupWatch()
        self._questions = QuestionSocket(
            lambda: [session.status() for session in self._sessions.values()], self._output
        )
        accepting = [asyncio.create_task(self._accept(listener)) for listener in self._listeners]
        looking_after = asyncio.create_task(self._look_after())
        answering = asyncio.create_task(self._questions.run())
        try:
            await self._drain.wait()
            await _cancel(*accepting)
            for listener in self._listeners:
                listener.close()  # refuse new clients at once, instead of letting them wait in the backlog
            await self._finish()
        finally:
            self._pool.close()  # remaining sessions wait for their workers to end
            await _cancel(*accepting, looking_after, answering, *self._tasks)
            self._questions.close()
            for listener in self._listeners:
                await listener.end()
            self._hangups.close()
            self._tell("stopped")

    async def _finish(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.drain_seconds):
                while self._sessions and not self._halt.is_set():
                    for session in self._sessions.values():
                        session.end_idle("shutdown", _SHUTDOWN)
                    halted = asyncio.create_task(self._halt.wait())
                    await asyncio.wait(
                        (halted, *self._tasks), timeout=_IDLE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                    )
                    halted.cancel()
        self._halt.set()
        for session in self._sessions.values():
            session.end("shutdown", _SHUTDOWN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                while self._sessions:
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def _look_after(self) -> None:
        """End sessions whose call or silence lasts too long, and those whose token no longer holds."""
        waits = [seconds for seconds in (self._limits.call_seconds, self._limits.lease_seconds) if seconds]
        while waits or self._tokens is not None:
            await asyncio.sleep(min([0.5, *(seconds / 4 for seconds in waits)]))
            for session in self._sessions.values():
                try:
                    self._check(session)
                except Exception as error:  # an error in one session must not stop the checks of the others
                    self._tell("fault", error=repr(error))

    def _check(self, session: SessionRunner) -> None:
        session.check()
        if self._tokens is None or session.grant is None:
            return
        if (objection := self._tokens.objection(session.grant)) is not None:
            session.end("token", f"AccessDeniedError: {objection}")
        if self._tokens.problem is not None and self._tokens.problem != self._problem:
            self._tell("fault", error=f"tokens: {self._tokens.problem}; sessions go on for a moment")
        self._problem = self._tokens.problem

    def _tell(self, event: str, **facts: object) -> None:
        told: dict[str, object] = {"event": event, "time": round(time.time(), 3), **facts}
        self._counters.count(told)
        with contextlib.suppress(Exception):  # a broken log (a closed pipe, say) must not stop the server
            log_event(told)
        if self._log is not None:
            with contextlib.suppress(Exception):
                self._log(told)

    # ---- connections

    async def _accept(self, listener: Listener) -> None:
        while True:
            try:
                arrival = await listener.accept()
            except Exception as error:  # out of descriptors, or the peer has closed: both are temporary
                if not isinstance(error, OSError):
                    self._tell("fault", error=repr(error))
                elif error.errno in (errno.EMFILE, errno.ENFILE):
                    self._admission.make_room()
                await asyncio.sleep(_ACCEPT_PAUSE)
                continue
            task = asyncio.create_task(self._connection(listener, arrival))
            self._tasks.add(task)
            task.add_done_callback(self._forget)
            self._admission.enter(task, arrival.source)
            await asyncio.sleep(0)  # accept() does not yield while peers wait: let the other tasks run

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._admission.leave(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell("fault", error=repr(error))

    async def _connection(self, listener: Listener, arrival: Arrival) -> None:
        try:
            async with asyncio.timeout(self._admission.seconds(arrival.source)):
                line = await listener.open(arrival)
                with contextlib.ExitStack() as stack:
                    stack.callback(line.close)
                    hello = await self._handshake(line.socket)
                    grant = await self._admit(line, hello)
                    stack.pop_all()
        except (TimeoutError, ProtocolError, AccessDeniedError, CertificateError, OSError) as error:
            self._admission.penalise(arrival.source, _DENIED if isinstance(error, AccessDeniedError) else 1.0)
            reason = str(error) or type(error).__name__
            self._tell("refused", peer=arrival.peer, kind=_refusal(error), reason=reason)
            return
        self._admission.leave(asyncio.current_task())
        with contextlib.closing(line):
            await self._session(line, hello, grant, arrival.source)

    async def _handshake(self, connection: socket.socket) -> Hello:
        loop = asyncio.get_running_loop()
        handshake = ServerHandshake(self._limits.key_bytes)
        while handshake.needed:
            data = b""
            while len(data) < handshake.needed:
                piece = await loop.sock_recv(connection, handshake.needed - len(data))
                if not piece:
                    raise ProtocolError("the peer closed the connection during the handshake")
                data += piece
            handshake.feed(data)
        assert handshake.hello is not None  # noqa: S101
        return handshake.hello

    async def _admit(self, line: Accepted, hello: Hello) -> Grant | None:
        """Answer the peer's handshake; returns what the peer may do.

        Raises:
            AccessDeniedError: the key or the token is wrong; the peer has been told.
        """
        loop, connection = asyncio.get_running_loop(), line.socket
        if not secrets.compare_digest(hello.key.encode(), self._key.encode()):
            await loop.sock_sendall(connection, server_refuse())
            raise AccessDeniedError(_WRONG_KEY)
        await loop.sock_sendall(connection, server_accept(self._key))
        try:
            check_carrier(hello.token, line.address)
            return None if self._tokens is None else self._tokens.admit(hello.token)
        except (AccessDeniedError, UsageError) as error:
            told = "the server cannot read its tokens" if isinstance(error, UsageError) else str(error)
            await last_words(connection, f"AccessDeniedError: {told}")
            raise AccessDeniedError(str(error)) from None

    # ---- sessions

    def _full(self, token: str | None, source: str) -> str | None:
        """Why there is no room for one more session; None: there is. A silent session ends to make room."""
        limits = self._limits
        for who, most, counts in (
            (source, limits.sessions_per_peer, lambda session: session.source == source),
            (
                f"the token {token!r}",
                token and limits.sessions_per_token,
                lambda session: session.token == token,
            ),
            ("the server", limits.sessions, lambda session: True),
        ):
            if most and not self._room_among(counts, most):
                return f"{who} has {count(most, 'session')} open, which is its limit; retry later"
        return None

    def _room_among(self, counts: Callable[[SessionRunner], bool], most: int) -> bool:
        served = [one for one in self._sessions.values() if not one.ending and counts(one)]
        silent = next((session for session in served if session.silent), None)
        if len(served) < most:
            return True
        if silent is not None:
            silent.end_silent()
        return silent is not None

    async def _session(self, line: Accepted, hello: Hello, grant: Grant | None, source: str) -> None:
        token = None if grant is None or grant.token is None else grant.token.name
        if (full := self._full(token, source)) is not None:
            self._tell("refused", peer=line.peer, kind="full", reason=full)
            await last_words(line.socket, f"ServerBusyError: {full}")
            return
        number, address = next(self._numbers), self._questions.address
        session = SessionRunner(number, line, grant, self._limits, source, address)
        self._sessions[session.number] = session
        self._tell("session start", **session.facts())
        verdict = Verdict("fault")
        try:
            patience = self._admission.seconds(source)
            verdict = await session.run(self._pool, self._hangups, hello.timeout, patience)
            if verdict.reason == "silent":
                self._admission.penalise(source)
            words = None if verdict.told or verdict.words is None else verdict.words + verdict.quote
            await last_words(line.socket, words, linger=not self._drain.is_set())
        finally:
            del self._sessions[session.number]
            self._tell("session end", reason=verdict.reason, words=verdict.words, **session.facts())


def _refusal(error: Exception) -> str:
    """The reason of a refusal in one word, for the metrics."""
    match error:
        case TimeoutError():
            return "late"
        case AccessDeniedError():
            return "key" if str(error) == _WRONG_KEY else "token"
        case ProtocolError():
            return "protocol"
        case _:
            return "connection"


def _room(wanted: int) -> int:
    """The number of peers that may be in a handshake: ``wanted``, or fewer where descriptors are scarce."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if descriptors == resource.RLIM_INFINITY else min(wanted, descriptors // _PENDING_SHARE)


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
