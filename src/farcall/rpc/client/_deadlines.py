"""Limits of time for what a thread asks of other machines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from farcall import _core


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Within the block, remote calls and copies of this thread must have ended after so many seconds in all.

    ::

        with fc.deadline(0.5):
            y = far["main"](x)

    A call that takes longer ends its session with :class:`~farcall.errors.DeadlineExceededError`, since a
    kernel cannot be stopped but with its process. Servers of farcall are told how much time is left, each on
    the way: the one where the call runs ends its worker then, and says so. A call that such a server comes to
    too late is refused with the same error, and so is one that would be sent too late; then the session goes
    on. Blocks nest; the nearest deadline counts. In asyncio code use
    ``connect(call_timeout=...)``, since tasks share their thread.

    To stop waiting, and let a call go on, there are ``Call.result(timeout)`` and ``call_async(timeout=...)``.

    Raises:
        ValueError: ``seconds`` is not positive.
    """
    if not 0 < seconds < 1e9:
        raise ValueError(f"deadline: expected a positive number of seconds, got {seconds}")
    at = time.monotonic_ns() + int(seconds * 1e9)
    before = _core.set_deadline(at)
    if before and before < at:
        _core.set_deadline(before)
    try:
        yield
    finally:
        _core.set_deadline(before)
