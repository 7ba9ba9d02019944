"""Handles: what a session's peer holds of us, as numbers that mean something in this one table only.

A handle is 64 bits: the slot in the low half, the slot's generation in the high half. Freeing a handle
moves its slot on to the next generation, so a stale handle, a forged one or one of another session names
nothing and is refused. No handle is an address.
"""

from __future__ import annotations

import enum
import secrets
from typing import Any

from farcall.errors import InvalidHandleError

_LOW = (1 << 32) - 1


class Kind(enum.Flag):
    """What a handle may be used as."""

    FUNCTION = enum.auto()
    MODULE = enum.auto()
    OBJECT = enum.auto()  # anything else that was returned
    TENSOR = enum.auto()  # owner of a returned tensor; freed by kFreeHandle
    RETURNED = enum.auto()  # data of a returned tensor; lives as long as its owner
    ALLOCATED = enum.auto()  # data that the client allocated; freed by kDevFreeData
    DATA = RETURNED | ALLOCATED

    def words(self) -> str:
        """For messages."""
        return " or ".join((kind.name or "").lower() for kind in self)


class HandleTable:
    """All handles of one session."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self._limit = limit
        self._entries: list[tuple[Kind, Any] | None] = []
        # Random from the start: a guess of another session's numbers fails, too.
        self._generations: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._entries) - len(self._free)

    def add(self, kind: Kind, value: Any) -> int:
        """A new handle for ``value``.

        Raises:
            MemoryError: the session holds as many as it may.
        """
        if self._free:
            slot = self._free.pop()
            self._entries[slot] = (kind, value)
        elif len(self._entries) < self._limit:
            slot = len(self._entries)
            self._entries.append((kind, value))
            self._generations.append(1 + secrets.randbits(30))
        else:
            raise MemoryError(f"the session holds {self._limit} handles, which is the limit; free some")
        return self._generations[slot] << 32 | slot

    def get(self, handle: int, kind: Kind) -> Any:
        """What ``handle`` names.

        Raises:
            InvalidHandleError: nothing, or something of another kind.
        """
        slot = handle & _LOW
        if slot < len(self._entries) and self._generations[slot] == handle >> 32:
            entry = self._entries[slot]
            if entry is not None and (entry[0] is kind or entry[0] in kind):
                return entry[1]
        raise InvalidHandleError(
            f"{handle:#x} is no {kind.words()} of this session; it was freed, or never given out"
        )

    def remove(self, handle: int, kind: Kind) -> Any:
        """Free ``handle``; answers what it named.

        Raises:
            InvalidHandleError: as :meth:`get`.
        """
        value = self.get(handle, kind)
        slot = handle & _LOW
        self._entries[slot] = None
        # 31 bits, and never 0: a handle stays positive as an i64, and the null pointer never names anything.
        self._generations[slot] = self._generations[slot] % 0x7FFFFFFF + 1
        self._free.append(slot)
        return value

    def clear(self) -> None:
        """Free everything."""
        self._entries.clear()
        self._generations.clear()
        self._free.clear()
