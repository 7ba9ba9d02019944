"""Admission: how many connected peers may be in a handshake, for how long, and which one is dropped first.

A source (address) that wasted handshakes before has a score, which decays with time. The score shortens the
time that the source's peers get for a handshake, and decides which peer is dropped when there are too many.
An honest peer at the same address still gets in: it needs milliseconds. (The idea is that of OpenSSH's
per-source penalties.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_HALF_LIFE = 10.0  # seconds
_SOURCES = 1024  # remembered at most
_SHORTEST = 0.05  # the fraction of the handshake's seconds that the worst source still gets


class Admission:
    """The peers that are in a handshake.

    Args:
        room: maximum number of peers in a handshake at the same time.
        seconds: maximum duration of a handshake, for a source without a score.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, room: int, seconds: float, clock: Callable[[], float]) -> None:
        self._room = room
        self._seconds = seconds
        self._clock = clock
        self._inside: dict[asyncio.Task[None], str] = {}  # oldest first
        self._scores: dict[str, tuple[float, float]] = {}  # (when penalised, score then); latest last

    def enter(self, task: asyncio.Task[None], source: str) -> None:
        """``task`` begins a handshake. If there are too many, one is cancelled."""
        self._inside[task] = source
        if len(self._inside) > self._room:
            self.make_room()

    def make_room(self) -> None:
        """Cancel the handshake whose source has the highest score, unless it is the only one."""
        if len(self._inside) > 1:
            worst = max(self._inside, key=lambda inside: self.score(self._inside[inside]))
            self.leave(worst)
            worst.cancel()

    def leave(self, task: asyncio.Task[None] | None) -> None:
        """The handshake of ``task`` is over."""
        if task is not None:
            self._inside.pop(task, None)

    def score(self, source: str) -> float:
        """The penalty points of ``source``, decayed to now; 0: none."""
        when, score = self._scores.get(source, (0.0, 0.0))
        return score * 0.5 ** ((self._clock() - when) / _HALF_LIFE) if score else 0.0

    def penalise(self, source: str, points: float = 1.0) -> None:
        """Add points to the score of ``source``, which wasted a handshake."""
        score = min(self.score(source) + points, 1000.0)
        self._scores.pop(source, None)
        self._scores[source] = (self._clock(), score)
        if len(self._scores) > _SOURCES:
            del self._scores[next(iter(self._scores))]

    def seconds(self, source: str) -> float:
        """The time that a peer of ``source`` gets for its handshake, in seconds."""
        return self._seconds * max(_SHORTEST, 1 / (1 + 0.1 * self.score(source)))
