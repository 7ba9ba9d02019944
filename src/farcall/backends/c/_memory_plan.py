"""The memory plan of a region: the offset of each buffer in one workspace, computed at compile time.

Buffers whose lives do not overlap share memory. A plan is an order in which the buffers are stacked: each
lies right above all earlier ones that are alive with it. Such a plan is right for all sizes, so offsets and
sizes may be symbolic: an offset is the largest of a few sums. ``_memory_order`` finds an order whose stack is
near the lower bound for typical sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import sympy

from farcall.backends.c._memory_order import Brick, Segments, best_order
from farcall.backends.c_backend_kit import ALIGNMENT
from farcall.graph._alive import Sum, keep, maximum_of, most_alive, terms, total
from farcall.graph.dims import Dim, evaluate, fold, symbols

T = TypeVar("T")

_TYPICAL = (1, 16, 128, 1024)  # sizes of symbols, for which orders are compared
_MIXED = 4  # further samples of several symbols: one is large where others are small
_MOST = 16  # sums of which an offset is the largest; of more, some are replaced by what is above both


@dataclass(frozen=True)
class Life(Generic[T]):
    """A buffer that is first written in step ``start`` and last read in step ``end``."""

    buffer: T
    size: Dim  # bytes
    start: int
    end: int


@dataclass(frozen=True)
class MemoryPlan(Generic[T]):
    """``offsets`` of the buffers, which a call rounds down to multiples of 64, and the workspace's ``size``.

    ``least`` is the lower bound of every plan: the most bytes that are alive in one step.
    """

    offsets: dict[T, Dim]
    size: Dim
    least: Dim = 0


def plan(lives: Sequence[Life[T]]) -> MemoryPlan[T]:
    """Give each buffer its offset."""
    least = most_alive([(life.size, life.start, life.end) for life in lives])
    samples = _samples([life.size for life in lives])
    sizes = {size: [_bytes(size, sample) for sample in samples] for size in {life.size for life in lives}}
    bricks = [Brick(life.start, life.end, sizes[life.size]) for life in lives]
    stack = _Stack(samples)
    offsets = {}
    for number in best_order(bricks):
        life = lives[number]
        offsets[life.buffer] = _total(stack.put(life))
    return MemoryPlan(offsets, _total(stack.height()), least)


def _samples(sizes: Iterable[Dim]) -> list[dict[str, int]]:
    """Typical sizes of the symbols; without symbols, the one sample that there is."""
    names = symbols(*sizes)
    found = [dict.fromkeys(names, size) for size in _TYPICAL] if names else [{}]
    if len(names) > 1:
        found += [
            {
                name: _TYPICAL[(place * (shift + 1) + shift) % len(_TYPICAL)]
                for place, name in enumerate(names)
            }
            for shift in range(_MIXED)
        ]
    return found


def _bytes(size: Dim, sample: dict[str, int]) -> int:
    """The size for a sample, a multiple of 64."""
    return -(-_number(size, sample) // ALIGNMENT) * ALIGNMENT


def _number(size: Dim, sample: Mapping[str, int]) -> int:
    """The size for a sample; 0 where the sample is none of this model."""
    try:
        return max(evaluate(size, sample), 0)
    except ZeroDivisionError:
        return 0


def _total(sums: Sequence[Sum]) -> Dim:
    return maximum_of([total(one) for one in sums])


def _is_aligned(one: Sum) -> bool:
    return all(factor % ALIGNMENT == 0 for factor in one.values())


class _Stack:
    """Buffers upon each other, as symbolic heights of segments of steps.

    A height is the largest of a few sums. A call rounds offsets down to multiples of 64. So a size that may
    be no such multiple counts 63 bytes more: what lies above it does so after rounding, too.
    """

    def __init__(self, samples: Sequence[Mapping[str, int]]) -> None:
        self._samples = samples
        self._values: dict[Dim, list[int]] = {}  # of units, for the samples
        self._heights = Segments[Sequence[Sum]]([{}])

    def put(self, life: Life[Any]) -> Sequence[Sum]:
        """Put a buffer upon those below it: the sums whose largest is its offset."""
        below = self._largest(self._heights.over(life.start, life.end))
        if life.size != 0:
            top = self._largest([[_plus(one, size) for one in below] for size in _sizes(life.size)])
            self._heights.put(life.start, life.end, top)
        return below

    def height(self) -> Sequence[Sum]:
        """The sums whose largest is the height of the whole."""
        return self._largest(self._heights.all())

    def _largest(self, tops: Iterable[Sequence[Sum]]) -> Sequence[Sum]:
        """Sums whose largest is at least each of these: few of them, which others do not exceed."""
        peaks: list[Sum] = []
        for one in {id(top): top for top in tops}.values():
            for peak in one:
                keep(peaks, peak)
        while len(peaks) > _MOST:
            peaks = self._fewer(peaks)
        return peaks

    def _fewer(self, peaks: list[Sum]) -> list[Sum]:
        """The sums without the one that matters least, but with what is above it and a second one."""
        values = [self._value(peak) for peak in peaks]
        highest = [max(of_sample) + 1 for of_sample in zip(*values, strict=True)]

        def weight(value: Sequence[int]) -> float:
            return max((number / most for number, most in zip(value, highest, strict=True)), default=0.0)

        least = min(range(len(peaks)), key=lambda i: weight(values[i]))
        rest = [peak for i, peak in enumerate(peaks) if i != least]
        raised = [_above(peaks[least], peak) for peak in rest]
        found = min(range(len(rest)), key=lambda i: weight(self._value(raised[i])))
        del rest[found]
        keep(rest, raised[found])
        return rest

    def _value(self, one: Sum) -> list[int]:
        """The values of the sum for the samples."""
        found = [0] * len(self._samples)
        for unit, factor in one.items():
            found = [number + factor * size for number, size in zip(found, self._unit(unit), strict=True)]
        return found

    def _unit(self, unit: Dim) -> list[int]:
        if unit not in self._values:
            self._values[unit] = [_number(unit, sample) for sample in self._samples]
        return self._values[unit]


def _sizes(size: Dim) -> list[Sum]:
    """The sums of which the largest is the size that a buffer takes."""
    parts = size.args if isinstance(size, sympy.Max) else [size]
    found = [terms(fold(part)) for part in parts]
    return [one if _is_aligned(one) else _plus(one, {1: _slack(one)}) for one in found]


def _slack(one: Sum) -> int:
    return -one[1] % ALIGNMENT if one.keys() == {1} else ALIGNMENT - 1


def _plus(one: Sum, other: Sum) -> Sum:
    return {unit: one.get(unit, 0) + other.get(unit, 0) for unit in {**one, **other}}


def _above(one: Sum, other: Sum) -> Sum:
    """The least sum that is at least as large as both for all sizes."""
    return {unit: max(one.get(unit, 0), other.get(unit, 0)) for unit in {**one, **other}}
