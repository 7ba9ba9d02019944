"""Deadlines for the remote calls of a thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from farcall import _core


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Within the block, all remote calls and copies of this thread together may take ``seconds``.

    ::

        with fc.deadline(0.5):
            y = far["main"](x)

    A call that takes longer ends its session with :class:`~farcall.errors.DeadlineExceededError`, because a
    kernel can only be stopped by ending its process. Each farcall server of a chain is told how much time is
    left; the server that runs the call ends its worker at the deadline, and tells the client. A call that
    would be sent, or would start on a farcall server, after the deadline is refused with the same error; then
    the session goes on. Blocks nest; the nearest deadline counts. In asyncio code use
    ``connect(call_timeout=...)``, since tasks share their thread.

    To stop waiting while the call goes on, use ``Call.result(timeout)`` or ``call_async(timeout=...)``.

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
