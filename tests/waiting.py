"""How long tests wait for what must happen."""

from __future__ import annotations

import os
import select
import time

SECONDS = 120.0  # a test that would hang fails after this; on a quiet machine nothing takes one


def soon() -> float:
    """A deadline that nothing reaches which does not hang."""
    return time.monotonic() + SECONDS


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
