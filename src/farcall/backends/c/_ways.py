"""Which of several ways a kernel is computed: the one that usually is the fastest, or the one that was.

A *problem* is a text that says what is computed, with shapes and attributes: equal problems take equal times.
``Plan.build(tune=True)`` measures the ways of each problem, and passes the fastest ones to the backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from farcall.backends.base import Choice

_FASTEST: ContextVar[Mapping[str, str] | None] = ContextVar("ways", default=None)


@contextmanager
def fastest(ways: Mapping[str, str]) -> Iterator[None]:
    """Kernels that are written meanwhile take these ways, by problem."""
    token = _FASTEST.set(ways)
    try:
        yield
    finally:
        _FASTEST.reset(token)


def choose(problem: str, ways: Sequence[str]) -> Choice:
    """The way that was measured to be the fastest of ``ways``; without one, the first."""
    known = (_FASTEST.get() or {}).get(problem, "")
    return Choice(problem, known if known in ways else ways[0], tuple(ways))
