"""How long tests wait for an event that must happen."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = 120.0  # a test that hangs fails after this time; on a quiet machine no wait takes one second


def soon() -> float:
    """A deadline so late that only a test that hangs reaches it."""
    return time.monotonic() + SECONDS


def at_some_speed(attempt: Callable[[float], T], failures: type[Exception] = TimeoutError) -> T:
    """The result of ``attempt(scale)``, for tests that depend on real time in the kernel or another process.

    Its times are multiples of ``scale``, which grows until the machine keeps up.
    """
    for scale in (1.0, 4.0, 16.0):
        with contextlib.suppress(failures):
            return attempt(scale)
    return attempt(64.0)


def has_ended(pid: int) -> bool:
    """Wait until a process, a child or not, has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], SECONDS)[0])
    finally:
        os.close(descriptor)
