"""The kernel's limits for a worker process, set before its session begins."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from farcall.rpc.shared._limits import Limits


def private_bytes() -> int:
    """Bytes of private, writable memory that this process has mapped (``RLIMIT_DATA`` counts these)."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


def machine_bytes() -> int:
    """Bytes of physical memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()


def _lower(what: int, value: int) -> None:
    soft, hard = resource.getrlimit(what)
    bounds = [bound for bound in (value, soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(what, (min(bounds), min(bounds)))


def confine(limits: Limits) -> None:
    """Apply ``limits`` to this process, irrevocably.

    Memory is limited by ``RLIMIT_DATA``, beyond what is mapped already. It counts private, writable memory,
    so neither libraries nor reserved address space use it up. A refused ``malloc`` is an error that a
    function can report, whereas the kernel would kill a process when memory runs out.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would put a client's memory on our disk
    Path("/proc/self/oom_score_adj").write_text("1000")  # the kernel kills this, not the server
    _lower(resource.RLIMIT_NOFILE, limits.open_files)
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    _lower(resource.RLIMIT_DATA, private_bytes() + (limits.memory_bytes or machine_bytes()))
