"""The memory plan of a region: the offset of each buffer in one workspace, computed at compile time.

Buffers whose lives do not overlap share memory. Sizes may be symbolic: a size is ``coefficient * key``,
where the key is an expression over symbols (1 for a static size). Two sizes with the same key compare by
their coefficients, whatever the symbols' values. So each key has an arena in which offsets are numbers, and
buffers lie above those in other arenas that are alive with them.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import sympy

from farcall.backends.c_backend_kit import ALIGNMENT, align
from farcall.graph._alive import largest as largest_of
from farcall.graph._alive import most_alive, total
from farcall.graph.dims import Dim, evaluate, fold, symbols

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
    """``offsets`` (bytes, multiples of 64) of the buffers in a workspace of ``size`` bytes.

    ``least`` is the lower bound of every plan: the most bytes that are alive in one step.
    """

    offsets: dict[T, Dim]
    size: Dim
    least: Dim = 0


Members: TypeAlias = Sequence[tuple[Life[T], int]]

# The unit of an arena in bytes; its buffers with their sizes, and their offsets, both in units.
Arena: TypeAlias = tuple[Dim, Members[T], dict[T, int]]
Layout: TypeAlias = tuple[dict[T, Dim], Dim]  # offsets, and the size of the workspace

_TYPICAL = (16, 128, 1024)  # sizes of symbols, for which two layouts are compared
_COARSE = 512  # from this coefficient on, rounding it up to 64 bytes wastes at most an eighth
_LITTLE = 16  # times 64: beside such a coefficient, what rounding any other one up wastes is little


# What the first buffers to be placed have most of.
_ORDERS: Sequence[Callable[[Life[Any], int], int]] = (
    lambda _, size: size,
    lambda life, size: size * (life.end - life.start + 1),
    lambda life, _: life.end - life.start,
)
_MANY = 1500  # of more buffers, only the first layout is made: the others take quadratic time
_NEAR = 1.04  # the part of the lower bound at which a layout is good enough
_TRIES, _WORK = 1000, 10_000_000  # of improvements; comparisons of two buffers, about a second


def plan(lives: Sequence[Life[T]]) -> MemoryPlan[T]:
    """Give each buffer its offset."""
    arenas = [(unit, members, _place(members)[0]) for unit, members in _arenas(lives)]
    least = most_alive([(life.size, life.start, life.end) for life in lives])
    few = sum(life.end - life.start + 1 for life in lives) <= _WORK
    found = _layered(arenas, stacked=False) if few else None
    if found is not None:
        return MemoryPlan(*_lowered(arenas, found), least)
    found = _layered(arenas, stacked=True)
    assert found is not None  # noqa: S101 - of a stack, one sum is the largest
    return MemoryPlan(*found, least)


def _arenas(lives: Sequence[Life[T]]) -> list[tuple[Dim, Members[T]]]:
    """The arenas from the lowest to the highest: their units in bytes, and the buffers with sizes in units.

    Numbers are the lowest, then come the arenas that most steps use. The highest has the numbers of one step,
    such as scratch memory.
    """
    found: dict[tuple[int, Dim, bool], list[tuple[Life[T], int]]] = {}
    is_static = all(isinstance(life.size, int) for life in lives)
    sizes = [_split(life.size) for life in lives]
    largest: dict[Dim, int] = {}
    for key, coefficient in sizes:
        largest[key] = max(coefficient, largest.get(key, 0))
    for life, (key, coefficient) in zip(lives, sizes, strict=True):
        coarse = key == 1 or coefficient >= _COARSE or largest[key] >= _LITTLE * ALIGNMENT
        level = 1 if key != 1 else 2 if life.start == life.end and not is_static else 0
        step = ALIGNMENT if coarse else 1
        found.setdefault((level, key, coarse), []).append((life, -(-coefficient // step) * step))

    def place(item: tuple[tuple[int, Dim, bool], Members[T]]) -> tuple[int, int]:
        (level, _, _), members = item
        return level, -sum(life.end - life.start + 1 for life, _ in members)

    ordered = sorted(found.items(), key=place)
    return [(key if coarse else align(key), members) for (_, key, coarse), members in ordered]


def _layered(arenas: Iterable[Arena[T]], *, stacked: bool) -> Layout[T] | None:
    """The offsets, and the size of the workspace: buffers lie above those in lower arenas.

    Those that are connected by their lives lie above the buffers that are alive with them; or, ``stacked``,
    above all. None: too many steps may be the one that decides the size.
    """
    offsets: dict[T, Dim] = {}
    tops: dict[int, dict[Dim, int]] = {}  # of each step: a sum of ``factor * unit``
    for unit, members, places in arenas:
        for group in [members] if stacked else _groups(members):
            ends: dict[int, int] = {}
            for life, size in group:
                for step in [0] if stacked else range(life.start, life.end + 1):
                    ends[step] = max(ends.get(step, 0), places[life.buffer] + size)
            below: dict[Dim, int] = {}
            for step in ends:
                for key, factor in tops.get(step, {}).items():
                    below[key] = max(below.get(key, 0), factor)
            for step, top in ends.items():
                tops[step] = {**below, unit: below.get(unit, 0) + top}
            base = total(below)
            offsets |= {life.buffer: fold(base + places[life.buffer] * unit) for life, _ in group}
    highest = largest_of(tops.values())
    return None if highest is None else (offsets, highest)


def _lowered(arenas: Sequence[Arena[T]], found: Layout[T]) -> Layout[T]:
    """The layout, or a smaller one: what is alive with buffers of higher arenas, which lie above, lies low.

    So in a transformer, where a step of attention has its scores above few of the other buffers.
    """
    chosen = list(arenas)
    for index, (unit, members, _) in enumerate(arenas[:-1]):
        above = _steps([item for _, others, _ in arenas[index + 1 :] for item in others])
        if len(members) > _MANY or above >= _steps(members):
            continue

        def is_high(item: tuple[Life[T], int], above: set[int] = above) -> bool:
            return above.isdisjoint(range(item[0].start, item[0].end + 1))

        for order in _ORDERS:
            places, _ = _by_order(sorted(members, key=lambda item: (is_high(item), -order(*item))))
            tried = [*chosen[:index], (unit, members, places), *chosen[index + 1 :]]
            layout = _layered(tried, stacked=False)
            if layout is not None and _is_smaller(layout[1], found[1]):
                chosen, found = tried, layout
    return found


def _steps(members: Members[T]) -> set[int]:
    return {step for life, _ in members for step in range(life.start, life.end + 1)}


def _is_smaller(size: Dim, other: Dim) -> bool:
    """Whether ``size`` is smaller for sizes of symbols that are typical, all in all."""
    names = symbols(size, other)
    ratio = 1.0
    for number in _TYPICAL:
        mine, others = (max(evaluate(one, dict.fromkeys(names, number)), 0) for one in (size, other))
        ratio *= (mine + 1) / (others + 1)
    return ratio < 1


def _groups(members: Members[T]) -> Iterator[Members[T]]:
    """The buffers that are connected by their lives."""
    group: list[tuple[Life[T], int]] = []
    end = 0
    for item in sorted(members, key=lambda item: item[0].start):
        if group and item[0].start > end:
            yield group
            group = []
        end = max(end, item[0].end) if group else item[0].end
        group.append(item)
    if group:
        yield group


def _split(size: Dim) -> tuple[Dim, int]:
    """Split ``size`` into key and integer coefficient."""
    if isinstance(size, int):
        return 1, size
    coefficient, key = sympy.expand(size).as_coeff_Mul() if size.is_Add else size.as_coeff_Mul()
    if not coefficient.is_Integer or coefficient <= 0:
        return size, 1
    return fold(key), int(coefficient)


def _place(members: Members[T]) -> tuple[dict[T, int], int]:
    """The smallest of several layouts: none is the best for all graphs, and the bound is often reached."""
    best = _best_fit(members)
    if len(members) > _MANY:
        return best
    least = most_alive([(size, life.start, life.end) for life, size in members])
    for order in _ORDERS:
        if best[1] <= least:
            return best
        members = sorted(members, key=lambda item: order(*item), reverse=True)
        best = min(best, _by_order(members), key=_extent)
    return _improved(members, best, least * _NEAR)


def _extent(layout: tuple[dict[T, int], int]) -> int:
    return layout[1]


def _improved(members: Members[T], best: tuple[dict[T, int], int], enough: float) -> tuple[dict[T, int], int]:
    """Place a buffer at the top before some others, again and again, until a layout is near the bound."""
    rng = random.Random(0)  # noqa: S311 - equal graphs get equal plans
    order, layout = list(members), _by_order(members)
    for _ in range(min(_TRIES, _WORK // len(members) ** 2)):
        if min(best[1], layout[1]) <= enough:
            break
        places, extent = layout
        top = [i for i, (life, size) in enumerate(order) if places[life.buffer] + size == extent]
        tried = order.copy()
        tried.insert(rng.randrange(top[-1] + 1), tried.pop(top[-1]))
        changed = _by_order(tried)
        if changed[1] <= extent:
            order, layout = tried, changed
    return min(best, layout, key=_extent)


def _by_order(members: Members[T]) -> tuple[dict[T, int], int]:
    """Each buffer in turn goes to the lowest offset that no buffer of its lifetime takes."""
    placed: list[tuple[int, int, Life[T]]] = []  # (offset, size, life), by offset
    places: dict[T, int] = {}
    extent = 0
    for life, size in members:
        offset = 0
        for start, taken, other in placed:
            if other.start > life.end or other.end < life.start:
                continue
            if offset + size <= start:
                break
            offset = max(offset, start + taken)
        places[life.buffer] = offset
        if size:
            insort(placed, (offset, size, life), key=lambda item: item[:2])
        extent = max(extent, offset + size)
    return places, extent


def _best_fit(members: Members[T]) -> tuple[dict[T, int], int]:
    """In the order of the steps: the smallest gap that holds the buffer, or the end of the arena."""
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
