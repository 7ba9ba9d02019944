"""The order in which buffers are stacked, so that the stack is low.

Buffers are bricks here: the steps in which they are alive, and a size for each of some samples, which are
typical sizes of the symbols. Several ways to place them by numbers are tried for each sample. The order of
the offsets that such a way finds is an order to stack the buffers, for all sizes.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Brick:
    """The first and the last step of a buffer, and its sizes for the samples, multiples of 64."""

    start: int
    end: int
    sizes: Sequence[int]


# What the first buffers to be placed have most of.
_RULES: Sequence[Callable[[Brick, int], int]] = (
    lambda _, size: size,
    lambda brick, size: size * (brick.end - brick.start + 1),
    lambda brick, _: brick.end - brick.start,
)
_MANY = 1500  # of more buffers, only the first way is tried: the others take quadratic time
_BEST = 1.005  # the part of the lower bound at which no other order is tried
_NEAR = 1.04  # and at which no order is improved
_TRIES, _WORK = 1000, 10_000_000  # of improvements; comparisons of two buffers, about a second
_STARTS = 3  # orders that are improved


@dataclass(frozen=True)
class _Found:
    """An order of stacking, what it was made from, and how high the stack is."""

    stacked: Sequence[int]
    placed: Sequence[int]  # the order of placing by numbers
    sample: int  # for which it was placed
    ratio: float  # the worst of all samples, to the lower bound
    mean: float
    top: AbstractSet[int]  # the bricks at the top in the worst sample

    def rank(self) -> tuple[float, float]:
        """Less is better: how near it is to the bound; those that are near it compare by the mean."""
        return max(self.ratio, _NEAR), self.mean


def best_order(bricks: Sequence[Brick]) -> Sequence[int]:
    """The order in which to stack the bricks, by their numbers."""
    if not bricks:
        return []
    search, tried = _Search(bricks), list[_Found]()
    for found in search.candidates():
        tried.append(found)
        if found.ratio <= _BEST:
            return found.stacked
    tried.sort(key=_Found.rank)
    return tried[0].stacked if tried[0].ratio <= _NEAR else search.improved(tried[:_STARTS]).stacked


class _Search:
    def __init__(self, bricks: Sequence[Brick]) -> None:
        self._bricks = bricks
        self._samples = range(len(bricks[0].sizes))
        self._bounds = [_most_alive(bricks, sample) for sample in self._samples]

    def candidates(self) -> Iterator[_Found]:
        """Orders by each rule for each sample."""
        for sample in reversed(self._samples):
            by_time = sorted(range(len(self._bricks)), key=lambda i: self._bricks[i].start)
            yield self._measured(by_time, self._best_fit(by_time, sample), sample)
            for rule in _RULES if len(self._bricks) <= _MANY else ():
                yield self._placed(self._by_rule(rule, sample), sample)

    def improved(self, starts: Sequence[_Found]) -> _Found:
        """Place a brick at the top before some others, again and again, until the stack is low.

        So from several orders in turn: some lead nowhere.
        """
        rng = random.Random(0)  # noqa: S311 - equal graphs get equal plans
        best, count = starts[0], len(self._bricks)
        tries = min(_TRIES // len(self._samples), _WORK // count**2) if count <= _MANY else 0
        for start in starts:
            current = start
            for _ in range(tries // len(starts)):
                order = list(current.placed)
                place = max(i for i, number in enumerate(order) if number in current.top)
                order.insert(rng.randrange(place + 1), order.pop(place))
                changed = self._placed(order, current.sample)
                if changed.ratio <= current.ratio:
                    current = changed
                best = min(best, changed, key=_Found.rank)
                if best.ratio <= _NEAR:
                    return best
        return best

    def _by_rule(self, rule: Callable[[Brick, int], int], sample: int) -> list[int]:
        bricks = self._bricks
        return sorted(
            range(len(bricks)), key=lambda i: rule(bricks[i], bricks[i].sizes[sample]), reverse=True
        )

    def _placed(self, order: Sequence[int], sample: int) -> _Found:
        return self._measured(order, self._first_fit(order, sample), sample)

    def _measured(self, placed: Sequence[int], offsets: Sequence[int], sample: int) -> _Found:
        stacked = sorted(range(len(self._bricks)), key=lambda i: (offsets[i], i))
        heights = [self._height(stacked, i) for i in self._samples]
        ratios = [_ratio(height, bound) for (height, _), bound in zip(heights, self._bounds, strict=True)]
        worst = max(ratios)
        return _Found(stacked, placed, sample, worst, sum(ratios), heights[ratios.index(worst)][1])

    def _height(self, stacked: Sequence[int], sample: int) -> tuple[int, set[int]]:
        """How high the stack is, and the bricks at its top."""
        stack = Segments(0)
        highest, at_top = 0, set[int]()
        for number in stacked:
            brick = self._bricks[number]
            size = brick.sizes[sample]
            if not size:
                continue
            top = max(stack.over(brick.start, brick.end)) + size
            stack.put(brick.start, brick.end, top)
            if top >= highest:
                at_top = {number} if top > highest else {*at_top, number}
                highest = top
        return highest, at_top

    def _first_fit(self, order: Sequence[int], sample: int) -> list[int]:
        """Each brick in turn goes to the lowest offset that no brick of its lifetime takes."""
        placed: list[tuple[int, int, Brick]] = []  # (offset, size, brick), by offset
        offsets = [0] * len(self._bricks)
        for number in order:
            brick = self._bricks[number]
            size, offset = brick.sizes[sample], 0
            for start, taken, other in placed:
                if other.start > brick.end or other.end < brick.start:
                    continue
                if offset + size <= start:
                    break
                offset = max(offset, start + taken)
            offsets[number] = offset
            if size:
                insort(placed, (offset, size, brick), key=lambda item: item[:2])
        return offsets

    def _best_fit(self, order: Sequence[int], sample: int) -> list[int]:
        """In the order of the steps: the smallest gap that holds the brick, or the end of the arena."""
        arena = _Arena()
        offsets = [0] * len(self._bricks)
        living: list[tuple[int, int, int]] = []  # (end, offset, size), by end
        for number in order:
            brick = self._bricks[number]
            size = brick.sizes[sample]
            while living and living[0][0] < brick.start:
                _, offset, freed = living.pop(0)
                arena.free(offset, freed)
            offsets[number] = offset = arena.take(size)
            insort(living, (brick.end, offset, size))
        return offsets


def _ratio(height: int, bound: int) -> float:
    return height / bound if bound else 1.0


def _most_alive(bricks: Sequence[Brick], sample: int) -> int:
    """The most that is alive in one step, for a sample."""
    changes: dict[int, int] = {}
    for brick in bricks:
        changes[brick.start] = changes.get(brick.start, 0) + brick.sizes[sample]
        changes[brick.end + 1] = changes.get(brick.end + 1, 0) - brick.sizes[sample]
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)


class Segments(Generic[T]):
    """How high a stack is in each step, as segments of steps in which it is equally high."""

    def __init__(self, ground: T) -> None:
        self._starts = [0]  # of the segments, which end where the next ones start
        self._tops = [ground]

    def over(self, start: int, end: int) -> Sequence[T]:
        """The heights in the steps from ``start`` to ``end``."""
        return self._tops[bisect_right(self._starts, start) - 1 : bisect_right(self._starts, end)]

    def put(self, start: int, end: int, top: T) -> None:
        """Make these steps as high as ``top``."""
        first, last = bisect_right(self._starts, start) - 1, bisect_right(self._starts, end)
        starts, tops = [start], [top]
        if self._starts[first] < start:
            starts, tops = [self._starts[first], start], [self._tops[first], top]
        if last == len(self._starts) or self._starts[last] > end + 1:
            starts.append(end + 1)
            tops.append(self._tops[last - 1])
        self._starts[first:last], self._tops[first:last] = starts, tops

    def all(self) -> Sequence[T]:
        """The heights of all segments."""
        return self._tops


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
