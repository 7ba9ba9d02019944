"""On how many threads calls compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from farcall._core import set_threads


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Set on how many threads the calls of this thread compute, in the block.

    Results do not depend on the number. The calls of other threads are not affected. :attr:`Function.threads`
    and the keyword ``threads`` of a call override it.

    Args:
        count: the number of threads, this one included: 1 makes no other thread. None: as ``FARCALL_THREADS``
            says, or all CPUs that this process may run on.

    Raises:
        TypeError: ``count`` is no int.
        ValueError: it is not between 1 and 256.
    """
    before = set_threads(count)
    try:
        yield
    finally:
        set_threads(before)


__all__ = ["use_threads"]
