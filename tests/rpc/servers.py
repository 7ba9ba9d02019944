"""Servers of the tests: what they export, how they are started, and what they tell."""

from __future__ import annotations

import sys
import threading

from farcall.rpc import Server, connect

from ..waiting import SECONDS
from . import exports

INIT = f"{exports.__name__}:register"
COMMAND = [sys.executable, "-c", "from farcall.cli import main; main()", "serve"]


def works(server: Server, key: str = "k") -> bool:
    """Whether an honest client is served."""
    with connect(server.url, key=key, timeout=SECONDS) as honest:
        return honest.get_function("test.add")(20, 22) == 42


class Events:
    """A log that can be waited for."""

    def __init__(self) -> None:
        self.seen: list[dict[str, object]] = []
        self._news = threading.Condition()

    def __call__(self, event: dict[str, object]) -> None:
        with self._news:
            self.seen.append(event)
            self._news.notify_all()

    def await_one(self, name: str) -> dict[str, object]:
        """The first event of that name."""

        def found() -> list[dict[str, object]]:
            return [event for event in self.seen if event["event"] == name]

        with self._news:
            assert self._news.wait_for(found, SECONDS), (name, self.seen)
            return found()[0]
