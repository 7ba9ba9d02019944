"""A clock that stands still until a test advances it."""

from __future__ import annotations

import asyncio
import threading
import time

from .waiting import SECONDS

_ROUNDS = 8  # of the loop: enough to finish everything that a timer starts and that does not wait


class ManualClock:
    """The clock of one event loop. ``Server(loop_factory=clock.loop)`` measures its time limits with it."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._running_since: float | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop; call it once."""
        self._loop = asyncio.SelectorEventLoop()
        self._loop.time = self.time  # type: ignore[method-assign]
        return self._loop

    def time(self) -> float:
        """The time of the clock, in seconds."""
        passed = 0.0 if self._running_since is None else time.monotonic() - self._running_since
        return self._now + passed

    def advance(self, seconds: float) -> None:
        """Advance the clock, and return when the loop has run the timers that were due."""
        self._now += seconds
        self._settle()

    def run(self) -> None:
        """From now on the clock follows real time."""
        self._running_since = time.monotonic()
        self._settle()

    def _settle(self) -> None:
        settled = threading.Event()

        def again(rounds: int) -> None:
            if rounds == 0:
                settled.set()
            else:
                self._loop.call_soon(again, rounds - 1)

        self._loop.call_soon_threadsafe(again, _ROUNDS)
        assert settled.wait(SECONDS), "the loop hangs"
