"""The memory plan of a region: the offset of each buffer in one workspace, computed at compile time.

Buffers whose lives do not overlap share memory. Sizes may be symbolic: a size is ``coefficient * key``,
where the key is an expression over symbols (1 for a static size). Two sizes with the same key compare by
their coefficients, whatever the symbols' values. So each key has an arena in which offsets are numbers, and
the workspace holds one arena after the other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import sympy

from farcall.backends.c_backend_kit import ALIGNMENT, align
from farcall.graph.dims import Dim, fold

T = TypeVar("T")


@dataclass(frozen=True)
class Life(Generic[T]):
    """A buffer that is first written in step ``start`` and last read in step ``end``."""

    buffer: T
    size: Dim  # bytes
    start: int
    end: int


@dataclass(frozen=True)
class MemoryPlan(Generic[T]):
    """``offsets`` (bytes, multiples of 64) of the buffers in a workspace of ``size`` bytes."""

    offsets: dict[T, Dim]
    size: Dim


_COARSE = 512  # from this coefficient on, rounding it up to 64 bytes wastes at most an eighth


def plan(lives: Sequence[Life[T]]) -> MemoryPlan[T]:
    """Give each buffer its offset, in linear time except for the search of the best fit."""
    arenas: dict[tuple[Dim, bool], list[tuple[Life[T], int]]] = {}
    for life in lives:
        key, coefficient = _split(life.size)
        coarse = key == 1 or coefficient >= _COARSE
        arenas.setdefault((key, coarse), []).append((life, coefficient))
    offsets: dict[T, Dim] = {}
    base: Dim = 0
    for (key, coarse), members in arenas.items():
        unit = key if coarse else align(key)  # the key's arena counts in bytes per unit
        step = ALIGNMENT if coarse else 1
        places, extent = _place([(life, -(-size // step) * step) for life, size in members])
        for life, _ in members:
            offsets[life.buffer] = fold(base + places[life.buffer] * unit)
        base = fold(base + extent * unit)
    return MemoryPlan(offsets, base)


def _split(size: Dim) -> tuple[Dim, int]:
    """Split ``size`` into key and integer coefficient."""
    if isinstance(size, int):
        return 1, size
    coefficient, key = sympy.expand(size).as_coeff_Mul() if size.is_Add else size.as_coeff_Mul()
    if not coefficient.is_Integer or coefficient <= 0:
        return size, 1
    return fold(key), int(coefficient)


def _place(members: Sequence[tuple[Life[T], int]]) -> tuple[dict[T, int], int]:
    """Best fit: the smallest gap that holds the buffer, or the end of the arena."""
    arena = _Arena()
    places: dict[T, int] = {}
    living: list[tuple[int, int, int]] = []  # (end, offset, size), by end
    for life, size in sorted(members, key=lambda item: item[0].start):
        while living and living[0][0] < life.start:
            _, offset, freed = living.pop(0)
            arena.free(offset, freed)
        places[life.buffer] = offset = arena.take(size)
        insort(living, (life.end, offset, size))
    return places, arena.extent


class _Arena:
    """Gaps between living buffers, sorted by offset; neighbours are merged."""

    def __init__(self) -> None:
        self.extent = 0
        self._gaps: list[tuple[int, int]] = []  # (offset, size)

    def take(self, size: int) -> int:
        if not size:
            return 0
        if fits := [(gap, offset) for offset, gap in self._gaps if gap >= size]:
            gap, offset = min(fits)
            index = bisect_left(self._gaps, (offset, gap))
            self._gaps[index : index + 1] = [(offset + size, gap - size)] if gap > size else []
            return offset
        at_end = self._gaps and sum(self._gaps[-1]) == self.extent
        offset = self._gaps.pop()[0] if at_end else self.extent  # a gap at the end grows
        self.extent = offset + size
        return offset

    def free(self, offset: int, size: int) -> None:
        if not size:
            return
        index = bisect_left(self._gaps, (offset, 0))
        if index < len(self._gaps) and self._gaps[index][0] == offset + size:
            size += self._gaps.pop(index)[1]
        if index and sum(self._gaps[index - 1]) == offset:
            index -= 1
            offset, size = self._gaps[index][0], size + self._gaps[index][1]
            self._gaps.pop(index)
        self._gaps.insert(index, (offset, size))
