"""Progress of long work: events for the caller's callable. The library prints nothing by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One event of long work, for the callable that the caller passes as ``progress=``.

    Each phase begins with an event whose ``done`` is 0. It ends with an event that is :attr:`finished`,
    unless the work fails. The events of one call come one after another, in the thread that made the call. If
    the callable raises, the work stops with that exception.

    ::

        plan = fc.partition("model.onnx", progress=lambda event: print(event.message))

    Attributes:
        phase: one word, such as ``"compile"`` or ``"upload"``.
        done: units of the phase that are finished.
        total: units of the phase in all; None while that is unknown.
        unit: what is counted: ``"files"``, ``"regions"``, ``"nodes"``, ``"bytes"`` or ``"repeats"``.
        seconds: since the phase began.
        message: a text for people, such as ``"compiling 3 of 9"``.
    """

    phase: str
    done: int
    total: int | None
    unit: str
    seconds: float
    message: str

    @property
    def finished(self) -> bool:
        """Whether this is the last event of its phase."""
        return self.done == self.total


Report = Callable[[Progress], object]


class Phase:
    """One phase of long work, which reports its steps.

    Args:
        report: the caller's callable; None: nobody wants to know.
        name: the phase, in one word.
        total: units in all; None: unknown.
        unit: what is counted.
        message: the text of the first event.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        report: Report | None,
        name: str,
        total: int | None,
        unit: str,
        message: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.done = 0
        self.total = total
        self._report = report
        self._name = name
        self._unit = unit
        self._clock = clock
        self._begin = clock()
        self.say(message)

    def step(self, message: str, count: int = 1) -> None:
        """Report that ``count`` more units are done."""
        self.done += count
        self.say(message)

    def end(self, message: str) -> None:
        """Report that the phase is over, with all its units done."""
        self.done = self.total = self.done if self.total is None else self.total
        self.say(message)

    def say(self, message: str) -> None:
        """Report without a step."""
        if self._report is not None:
            seconds = self._clock() - self._begin
            self._report(Progress(self._name, self.done, self.total, self._unit, seconds, message))
