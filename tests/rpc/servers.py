"""Servers for the tests: their exports, how to start them, and their logs."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from farcall.rpc import Call, Limits, Server, Session, connect
from farcall.rpc.server import _pool as pool
from farcall.rpc.server._supervisor import Log

from ..clock import ManualClock
from ..waiting import SECONDS
from . import exports

INIT = f"{exports.__name__}:register"
COMMAND = [sys.executable, "-c", "from farcall.cli import main; main()", "serve"]


class Served(Protocol):
    """A server that clients reach at its URL."""

    @property
    def url(self) -> str: ...


def works(server: Served, key: str = "k") -> bool:
    """Whether the server serves an honest client."""
    with connect(server.url, key=key, timeout=SECONDS) as honest:
        return honest.get_function("test.add")(20, 22) == 42


NEVER = 1e9  # seconds


@contextlib.contextmanager
def timeless_server(
    *, log: Log | None = None, fork_seconds: float = NEVER, **limits: Any
) -> Iterator[tuple[Server, ManualClock]]:
    """A server for whose limits time passes only by ``advance`` of the clock.

    Args:
        log: the log of the server.
        fork_seconds: the time after which the server treats its zygote as hung; unlimited by default, because
            processes start in real time, however far the test advances the clock meanwhile.
        limits: fields of Limits.
    """
    clock = ManualClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "_FORK_SECONDS", fork_seconds)
        allowed = Limits(**{"spawn_seconds": NEVER, **limits})
        with Server(init=INIT, limits=allowed, log=log, loop_factory=clock.loop) as server:
            try:
                yield server, clock
            finally:
                clock.run()


def stay(session: Session, server: Server) -> Call:
    """A call of `test.stay` that has begun and never returns."""
    call = session.get_function("test.stay").submit("begun")
    with connect(server.url, timeout=SECONDS) as other:
        other.get_function("test.wait_for")("begun")
    return call


class Events:
    """A log that lets a test wait for an event."""

    def __init__(self) -> None:
        self.seen: list[dict[str, object]] = []
        self._news = threading.Condition()

    def __call__(self, event: dict[str, object]) -> None:
        with self._news:
            self.seen.append(event)
            self._news.notify_all()

    def await_one(self, name: str, **facts: object) -> dict[str, object]:
        """The first event of that name with these facts."""
        wanted = {"event": name, **facts}

        def found() -> list[dict[str, object]]:
            return [event for event in self.seen if wanted.items() <= event.items()]

        with self._news:
            assert self._news.wait_for(found, SECONDS), (wanted, self.seen)
            return found()[0]
