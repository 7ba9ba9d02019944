"""Addresses for memory that this process cannot address, such as another machine's."""

from __future__ import annotations

import bisect
import threading
from typing import Generic, TypeVar

T = TypeVar("T")

_FIRST = 1 << 40  # far from all mapped memory: code that dereferences such an address crashes in its test
_ALIGNMENT = 64


class Addresses(Generic[T]):
    """Gives each block of memory a range of addresses of its own, which is never given again.

    Many threads may use it. ``T`` is what the owner keeps for a block.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = _FIRST
        self._starts: list[int] = []  # sorted; both lists in step
        self._blocks: list[tuple[int, T]] = []  # (size in bytes, the owner's)

    def add(self, nbytes: int, block: T) -> int:
        """Returns the address, a multiple of 64, of a block of ``nbytes`` bytes."""
        with self._lock:
            address = self._next
            # A gap after each block, so that an access beyond its end hits no other block.
            self._next += (nbytes // _ALIGNMENT + 2) * _ALIGNMENT
            self._starts.append(address)
            self._blocks.append((nbytes, block))
            return address

    def find(self, address: int, nbytes: int) -> tuple[T, int] | None:
        """The block that holds ``nbytes`` bytes at ``address``, and their offset in it; None: no block."""
        with self._lock:
            at = bisect.bisect_right(self._starts, address) - 1
            if at < 0 or address - self._starts[at] + nbytes > self._blocks[at][0]:
                return None
            return self._blocks[at][1], address - self._starts[at]

    def remove(self, address: int) -> T | None:
        """The block that begins at ``address``, which is forgotten; None: there is none."""
        with self._lock:
            at = bisect.bisect_left(self._starts, address)
            if at == len(self._starts) or self._starts[at] != address:
                return None
            del self._starts[at]
            return self._blocks.pop(at)[1]

    def all(self) -> list[tuple[int, T]]:
        """The address of each block, and the block."""
        with self._lock:
            return [(start, block) for start, (_, block) in zip(self._starts, self._blocks, strict=True)]
