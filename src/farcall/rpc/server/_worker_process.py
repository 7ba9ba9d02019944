"""A worker as the supervisor sees it: its control socket, its status page, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from farcall.rpc.server._output import Source
from farcall.rpc.server._raw_packets import SESSION_TIMEOUT
from farcall.rpc.server._status_page import StatusPage


class WorkerProcess:
    """One worker. The pool makes it, and sets :attr:`ended` to its exit status (negative: a signal).

    Args:
        number: the zygote's number of the worker.
        control: the supervisor's end of the worker's control socket.
        page: the status page that worker and supervisor share.
        workdir: its session's folder.
        kill: asks the zygote to end it.
        output: the copy of its output.
    """

    def __init__(
        self,
        number: int,
        control: socket.socket,
        page: StatusPage,
        workdir: Path,
        kill: Callable[[int], None],
        output: Source,
    ) -> None:
        self.number = number
        self.pid = 0  # until the zygote has confirmed the fork
        self.failure: str | None = None  # why the fork failed
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.page: StatusPage | None = page  # None when closed
        self.workdir = workdir
        self.output = output
        self._counted = {"calls": 0, "received": 0, "sent": 0}
        self._control = control
        self._kill = kill

    def give(self, connection: Sequence[int], facts: dict[str, object]) -> None:
        """Send the client's connection to the worker; the caller still owns its own descriptors.

        Args:
            connection: the connection's descriptors.
            facts: the facts about the client that the worker needs.
        """
        with self._control, contextlib.suppress(OSError):  # the worker died: `ended` will tell
            socket.send_fds(self._control, [json.dumps(facts).encode()], connection)

    async def kill(self) -> int:
        """End the process; return its exit status."""
        if not self.ended.done():
            self._kill(self.number)
        return await asyncio.shield(self.ended)

    @property
    def counters(self) -> dict[str, int]:
        """The numbers of calls, and of bytes received from the client and sent to it."""
        if self.page is None:
            return self._counted
        return {"calls": self.page.calls, "received": self.page.received, "sent": self.page.sent}

    @property
    def calling(self) -> str | None:
        """The name of the function that runs; None: none does."""
        return None if self.page is None else self.page.calling

    @property
    def may_add(self) -> bool:
        """Whether the supervisor may send a packet: the worker has not sent half a packet."""
        return self.page is None or not self.page.sending

    @property
    def broken(self) -> str | None:
        """How the client broke the protocol, if it did."""
        return None if self.page is None else self.page.broken

    def overdue(self, status: int) -> str | None:
        """The message for the client if the worker ended itself because the running call's deadline passed
        (native/session/server/deadline.c); else None."""
        if self.page is None or status != -signal.SIGKILL or (seconds := self.page.overdue) is None:
            return None
        return (
            f"{SESSION_TIMEOUT}: `{self.page.calling}` did not end within {seconds:.3g} s, as it had to; "
            "the session is over: connect again"
        )

    def obituary(self, status: int) -> str | None:
        """The message for the client about the worker's end; None when it ended in order."""
        name = None if self.page is None else self.page.calling
        if status == 0 and name is None:
            return None
        where = f" in `{name}`" if name is not None else ""
        how = self.failure or _cause(status)
        return (
            f"WorkerCrashedError: the server's worker process of this session {how}{where}; "
            "what the session held there is gone. The server lives on: connect again"
        )

    def close(self) -> None:
        """Release the supervisor's resources of this worker."""
        self._control.close()  # tells a spare that it is not needed
        if self.page is not None:
            self._counted = self.counters
            self.page.close()
            self.page = None


def _cause(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name} ({signal.strsignal(-status)})"
    except ValueError:
        return f"was ended by signal {-status}"
