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

    A call that waits for its answer when the time is up ends its session with
    :class:`~farcall.errors.DeadlineExceededError`: a server cannot be stopped in the middle of a kernel but
    by leaving it, which frees its device. A :class:`~farcall.Call` of a pipeline raises TimeoutError
    instead, and may be waited for again. Blocks nest; the nearest deadline counts. In asyncio code use
    ``timeout=`` of ``call_async``, since tasks share their thread.

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
