"""Peers that have connected and not yet said who they are: how many may wait, for how long, and who must go.

Sources (addresses) that sent nothing useful before have a score. It halves with time, shortens the time that
the source's peers have for their handshake, and decides who goes when too many wait. An honest peer of the
same address still gets in: it needs milliseconds. (The idea is that of OpenSSH's per-source penalties.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_HALF_LIFE = 10.0  # seconds
_SOURCES = 1024  # that are remembered
_SHORTEST = 0.05  # of the handshake's seconds, for the worst source


class Admission:
    """The peers in a handshake.

    Args:
        room: how many may be in it at the same time.
        seconds: for a handshake, from a source without a score.
        clock: seconds that never go back.
    """

    def __init__(self, room: int, seconds: float, clock: Callable[[], float]) -> None:
        self._room = room
        self._seconds = seconds
        self._clock = clock
        self._inside: dict[asyncio.Task[None], str] = {}  # oldest first
        self._scores: dict[str, tuple[float, float]] = {}  # when, and how much then; latest last

    def enter(self, task: asyncio.Task[None], source: str) -> None:
        """``task`` begins a handshake. When too many are inside, one is cancelled."""
        self._inside[task] = source
        if len(self._inside) > self._room:
            self.make_room()

    def make_room(self) -> None:
        """Cancel the handshake that is worth the least, unless it is the only one."""
        if len(self._inside) > 1:
            worst = max(self._inside, key=lambda inside: self.score(self._inside[inside]))
            self.leave(worst)
            worst.cancel()

    def leave(self, task: asyncio.Task[None] | None) -> None:
        """The handshake of ``task`` is over."""
        if task is not None:
            self._inside.pop(task, None)

    def score(self, source: str) -> float:
        """How much trouble ``source`` made lately; 0 for none."""
        when, score = self._scores.get(source, (0.0, 0.0))
        return score * 0.5 ** ((self._clock() - when) / _HALF_LIFE) if score else 0.0

    def penalise(self, source: str, points: float = 1.0) -> None:
        """``source`` wasted a handshake."""
        score = min(self.score(source) + points, 1000.0)
        self._scores.pop(source, None)
        self._scores[source] = (self._clock(), score)
        if len(self._scores) > _SOURCES:
            del self._scores[next(iter(self._scores))]

    def seconds(self, source: str) -> float:
        """That a peer of ``source`` has for its handshake."""
        return self._seconds * max(_SHORTEST, 1 / (1 + 0.1 * self.score(source)))
