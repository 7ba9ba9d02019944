"""What a worker process may take of the machine: the kernel's own limits, set before its session begins."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from farcall.rpc.shared._limits import Limits


def private_bytes() -> int:
    """Private, writable memory that this process has mapped (what ``RLIMIT_DATA`` counts)."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


def machine_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()


def _lower(what: int, value: int) -> None:
    soft, hard = resource.getrlimit(what)
    bounds = [bound for bound in (value, soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(what, (min(bounds), min(bounds)))


def confine(limits: Limits) -> None:
    """Apply ``limits`` to this process, for good.

    Memory is ``RLIMIT_DATA``, beyond what is mapped already: it counts what can be written and is not shared,
    so neither libraries nor reserved address space use it up, and a refused ``malloc`` is an error that a
    function can report, where the kernel's own remedy would be to kill a process.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # of memory that a client chose, on our disk
    Path("/proc/self/oom_score_adj").write_text("1000")  # without memory, not the server goes
    _lower(resource.RLIMIT_NOFILE, limits.open_files)
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    _lower(resource.RLIMIT_DATA, private_bytes() + (limits.memory_bytes or machine_bytes()))
