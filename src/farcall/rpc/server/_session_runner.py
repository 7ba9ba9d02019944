"""One session as the supervisor sees it: a connection, a worker, their limits, and why the session ended."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import shutil
import socket
import struct
import sys
import termios
from dataclasses import dataclass
from typing import NamedTuple

from farcall.errors import UsageError
from farcall.rpc.channels import Accepted
from farcall.rpc.server._hangup import HangupWatch
from farcall.rpc.server._pool import WorkerPool
from farcall.rpc.server._raw_packets import SESSION_TIMEOUT, exception_packet
from farcall.rpc.server._worker_process import WorkerProcess
from farcall.rpc.shared._limits import Limits
from farcall.rpc.tokens import Grant

_LOOK_SECONDS = 0.01  # between two looks at a connection that gives an end though its peer has not finished
_TCP_OPEN = (1, 4, 5)  # tcpi_state: established, and the two states in which only this side has finished
_RESET = struct.pack("ii", 1, 0)  # struct linger: on, no seconds
_LINGER_SECONDS = 1.0  # for the peer to read the last message: a close could discard it unread


class Verdict(NamedTuple):
    """Why a session ends."""

    reason: str  # one word for the log
    words: str | None = None  # for the client: ``Kind: message``
    told: bool = False  # whether the worker has sent them to the client
    quote: str = ""  # further words for the client: the end of the output, which the log has already


@dataclass
class _Progress:
    """The status page's fields when they last changed."""

    state: tuple[int, int, str | None]
    since: float  # on the loop's clock


class SessionRunner:
    """Serves one connection after its handshake.

    Args:
        number: the session's number in the log.
        line: the connection to the client.
        grant: what the client's token allows; None on a server without tokens.
        limits: of the session.
        source: the client's source, as :class:`farcall.rpc.channels.Arrival` has it.
        supervisor_at: the address at which the worker can ask the supervisor.
    """

    def __init__(
        self,
        number: int,
        line: Accepted,
        grant: Grant | None,
        limits: Limits,
        source: str,
        supervisor_at: str,
    ) -> None:
        self.number = number
        self.grant = grant
        self.source = source
        self.worker: WorkerProcess | None = None
        self._clock = asyncio.get_running_loop().time
        self._started = self._clock()
        self._line = line
        self._supervisor_at = supervisor_at
        self._limits = limits
        self._verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._progress = _Progress((0, 0, None), self._started)
        self._timers: list[asyncio.TimerHandle] = []
        self._given = 0.0  # when the worker got the connection
        # The status page's activity when end_idle() last read it.
        self._seen: tuple[int, int, int] | None = (-1, -1, -1)

    @property
    def token(self) -> str | None:
        """The name of the client's token; None without one."""
        return None if self.grant is None or self.grant.token is None else self.grant.token.name

    def facts(self) -> dict[str, object]:
        """The session's facts for the log."""
        facts: dict[str, object] = {
            "session": self.number,
            "peer": self._line.peer,
            "channel": self._line.address.scheme,
            "token": self.token,
            "seconds": round(self._clock() - self._started, 3),
        }
        if self.worker is not None:
            facts.update(pid=self.worker.pid, **self.worker.counters)
        return facts

    def status(self) -> dict[str, object]:
        """The session's facts, and the function that runs."""
        page = self.worker.page if self.worker is not None else None
        return self.facts() | ({} if page is None else {"calling": page.calling})

    def _session_facts(self) -> dict[str, object]:
        facts: dict[str, object] = {"peer": self._line.peer, "supervisor_at": self._supervisor_at}
        if self.grant is not None and self.token is not None:
            facts.update(token=self.token, scopes=sorted(self.grant.scopes))
        return facts

    @property
    def ending(self) -> bool:
        """Whether the session has a reason to end."""
        return self._verdict.done()

    @property
    def silent(self) -> bool:
        """Whether the worker is ready, but its client has sent nothing since the handshake."""
        page = self.worker.page if self.worker is not None else None
        return not self.ending and page is not None and page.listens and not page.begun

    def end_silent(self) -> None:
        """End the session because its client is :attr:`silent`."""
        waited = self._clock() - self._given
        self.end("silent", f"ProtocolError: the session was not begun within {waited:.3g} s")

    def end(self, reason: str, words: str) -> None:
        """End the session from outside. The first reason stays."""
        if not self._verdict.done():
            self._verdict.set_result(Verdict(reason, words))

    def end_idle(self, reason: str, words: str) -> None:
        """End the session if it is idle: no call runs, no bytes are in transit, and no counter has changed
        since the last call of this method. So no request is cut off after it was sent, and the client need
        not wonder whether its call ran.
        """
        page = self.worker.page if self.worker is not None else None
        seen = None if page is None else page.activity
        if seen == self._seen and (page is None or page.at_rest) and not _unread(self._line.socket):
            self.end(reason, words)
        self._seen = seen

    def check(self) -> None:
        """End the session when its call or its client's silence has lasted too long."""
        page = self.worker.page if self.worker is not None else None
        if page is None:
            return
        state = (page.received, page.calls, page.calling)
        if state != self._progress.state:
            self._progress = _Progress(state, self._clock())
            return
        lasted, limits = self._clock() - self._progress.since, self._limits
        if page.calling is not None and 0 < limits.call_seconds <= lasted:
            name, seconds = page.calling, limits.call_seconds
            self.end("call limit", f"{SESSION_TIMEOUT}: `{name}` ran for more than {seconds:g} s here")
        elif not page.busy and 0 < limits.lease_seconds <= lasted:
            self.end("lease", f"ConnectionLostError: nothing was heard for {limits.lease_seconds:g} s")

    async def run(
        self, pool: WorkerPool, hangups: HangupWatch, wish: float | None, patience: float
    ) -> Verdict:
        """Serve the session to its end.

        Args:
            pool: supplies the worker.
            hangups: tells that the client has hung up.
            wish: seconds after which the client wants the session to end.
            patience: seconds within which the client must begin the session.
        """
        try:
            self.worker = await pool.take()
        except (UsageError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            return Verdict("no worker", f"ConnectionLostError: the server cannot start a worker: {why}")
        worker = self.worker
        self._start_clock(wish)
        self._given = self._clock()
        self._await_beginning(patience)
        try:
            self._line.socket.setblocking(True)  # the worker shares this flag
            worker.output.begin(f"session {self.number}")
            worker.give(self._line.descriptors, self._session_facts())
            return await self._outcome(worker, hangups)
        finally:
            for timer in self._timers:
                timer.cancel()
            await worker.kill()
            worker.close()
            await asyncio.to_thread(shutil.rmtree, worker.workdir, ignore_errors=True)

    def _start_clock(self, wish: float | None) -> None:
        seconds = min(filter(None, (wish, self._limits.session_seconds)), default=None)
        if seconds is None:
            return
        words = f"{SESSION_TIMEOUT}: the session's {seconds:g} s are over"
        self._timers.append(asyncio.get_running_loop().call_later(seconds, self.end, "time", words))

    def _await_beginning(self, patience: float, was_silent: bool = False) -> None:
        """End the session if its client never begins it and so would hold a worker for ever. The time that
        the worker needs to get ready does not count.
        """
        page, loop = self.worker.page if self.worker is not None else None, asyncio.get_running_loop()
        if page is None or page.begun:
            return
        if was_silent:
            self.end_silent()
        elif self._clock() - self._given > self._limits.spawn_seconds:
            self.end("no worker", "WorkerCrashedError: the server's worker process of this session hangs")
        else:
            timer = loop.call_later(patience / 2, self._await_beginning, patience, self.silent)
            self._timers.append(timer)

    async def _outcome(self, worker: WorkerProcess, hangups: HangupWatch) -> Verdict:
        descriptor = self._line.socket.fileno()
        left = hangups.watch(descriptor)
        try:
            await asyncio.wait((worker.ended, self._verdict, left), return_when=asyncio.FIRST_COMPLETED)
            if left.done():  # the client has hung up: a kernel that never returns must not run on for long
                seconds = self._limits.abandoned_seconds
                await asyncio.wait(
                    (worker.ended, self._verdict), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            hangups.forget(descriptor)
        if worker.ended.done():
            verdict = await _verdict_on(worker, worker.ended.result())
        elif self._verdict.done():
            await worker.kill()
            verdict = self._verdict.result()
        else:
            return Verdict("abandoned")
        return verdict if verdict.told or worker.may_add else verdict._replace(words=None)


async def _verdict_on(worker: WorkerProcess, status: int) -> Verdict:
    """Why the worker has ended."""
    if (words := worker.overdue(status)) is not None:
        return Verdict("deadline", words)
    words = worker.obituary(status)
    if words is None and worker.broken is not None:
        return Verdict("protocol", f"ProtocolError: {worker.broken}", told=True)
    if words is None:
        return Verdict("closed")
    return Verdict("crashed", words, quote=await asyncio.to_thread(worker.output.last_lines))


def _unread(connection: socket.socket) -> int:
    """The number of received bytes that the worker has not read yet."""
    size = fcntl.ioctl(connection, termios.FIONREAD, bytes(4))
    return int.from_bytes(size, sys.byteorder)


async def last_words(connection: socket.socket, text: str | None, *, linger: bool = True) -> None:
    """Tell the peer why the session ended (as the reply to its request), and give it time to read that."""
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            if text is not None:
                await loop.sock_sendall(connection, exception_packet(text))
            connection.shutdown(socket.SHUT_WR)
            if linger:
                await _drain(connection)
            return
    # The peer still sends. An orderly close could leave it waiting for room in the connection, for minutes; a
    # reset ends its send at once, and it can still read what it has received.
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


async def _drain(connection: socket.socket) -> None:
    """Drop what the peer sends until it has closed its side."""
    loop = asyncio.get_running_loop()
    while True:
        if await loop.sock_recv(connection, 65536):
            continue
        if _peer_has_finished(connection):
            return
        await asyncio.sleep(_LOOK_SECONDS)


def _peer_has_finished(connection: socket.socket) -> bool:
    """Whether the peer has closed its side of a connection from which nothing more can be read.

    The worker may have shut the connection down, after which reading gives an end though the peer goes on.
    """
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:  # not TCP: what gives an end has ended
        return True
    return info[0] not in _TCP_OPEN
