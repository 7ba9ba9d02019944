"""How long tests wait for what must happen."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = 120.0  # a test that would hang fails after this; on a quiet machine nothing takes one


def soon() -> float:
    """A deadline that nothing reaches which does not hang."""
    return time.monotonic() + SECONDS


def at_some_speed(attempt: Callable[[float], T], failures: type[Exception] = TimeoutError) -> T:
    """What ``attempt(scale)`` gives, where real time decides: in the kernel, or in another process.

    Its times are multiples of ``scale``, which grows until the machine keeps up.
    """
    for scale in (1.0, 4.0, 16.0):
        with contextlib.suppress(failures):
            return attempt(scale)
    return attempt(64.0)


def has_ended(pid: int) -> bool:
    """Wait until a process has ended (ours or not)."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], SECONDS)[0])
    finally:
        os.close(descriptor)
