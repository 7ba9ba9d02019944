"""Finds repeated blocks in a sequence of boxes, such as the layers of a transformer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_CANDIDATES = 24  # block lengths that are tried
_WINDOW = 3  # labels that must be equal for two places to suggest a length
_LONG = 4  # items of a block, below which blocks must read from each other
_SMALLEST = 6  # items that folding must save; twice as many, if only one block is folded


@dataclass(frozen=True)
class Repeat:
    """``count`` equal blocks of ``length`` items, one after another from item ``start``."""

    start: int
    length: int
    count: int

    @property
    def stop(self) -> int:
        """The first item after the blocks."""
        return self.start + self.length * self.count

    @property
    def saved(self) -> int:
        """The number of items that need not be shown."""
        return self.length * (self.count - 1)


def repeats(labels: Sequence[Hashable], links: Sequence[tuple[int, int]]) -> list[Repeat]:
    """Blocks that do not overlap, in order. Those that save most are taken first.

    Args:
        labels: what each item is; items of equal blocks have equal labels in the same order.
        links: (source, target) items. Equal blocks have equal links inside, and blocks begin where few
            links cross.
    """
    crossing = _crossing(len(labels), links)
    inner = _links_by_target(links)
    found: list[Repeat] = []
    for length in _lengths(labels):
        for first, stop in _runs(labels, length):
            start = min(range(first, first + (stop - first) % length + 1), key=crossing.__getitem__)
            found += _equal(Repeat(start, length, (stop - start) // length), inner)
    return _chosen(found)


def _lengths(labels: Sequence[Hashable]) -> list[int]:
    """The distances at which the same few labels come again most often."""
    last: dict[tuple[Hashable, ...], int] = {}
    votes: Counter[int] = Counter()
    for index in range(len(labels) - _WINDOW + 1):
        window = tuple(labels[index : index + _WINDOW])
        if window in last:
            votes[index - last[window]] += 1
        last[window] = index
    return [length for length, _ in sorted(votes.items(), key=lambda item: (-item[1], item[0]))[:_CANDIDATES]]


def _runs(labels: Sequence[Hashable], length: int) -> list[tuple[int, int]]:
    """The (first, stop) of sequences in which every label comes again ``length`` items later."""
    runs, first = [], None
    for index in range(len(labels)):
        same = index + length < len(labels) and labels[index] == labels[index + length]
        if same and first is None:
            first = index
        if not same and first is not None:
            if index - first >= length:
                runs.append((first, index + length))
            first = None
    return runs


def _crossing(count: int, links: Sequence[tuple[int, int]]) -> list[int]:
    """For each place between two items, the number of values that are made before and read after it."""
    last = _last_readers(links)
    change = [0] * (count + 2)
    for source, target in last.items():
        change[source + 1] += 1
        change[target + 1] -= 1
    total, crossing = 0, []
    for step in change:
        total += step
        crossing.append(total)
    return crossing


def _last_readers(links: Sequence[tuple[int, int]]) -> dict[int, int]:
    last: dict[int, int] = {}
    for source, target in links:
        last[source] = max(last.get(source, target), target)
    return last


def _links_by_target(links: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    by_target: dict[int, list[int]] = defaultdict(list)
    for source, target in links:
        by_target[target].append(source)
    return by_target


def _equal(repeat: Repeat, inner: dict[int, list[int]]) -> list[Repeat]:
    """The parts of a repeat whose blocks have the same links inside."""
    forms = [_form(repeat, block, inner) for block in range(repeat.count)]
    borders = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(forms)) if a != b), repeat.count]
    parts = [
        Repeat(repeat.start + low * repeat.length, repeat.length, high - low)
        for low, high in pairwise(borders)
    ]
    return [part for part in parts if part.count > 1 and (part.length >= _LONG or _is_chain(part, inner))]


def _is_chain(repeat: Repeat, inner: dict[int, list[int]]) -> bool:
    """Whether each block reads from the one before. Short blocks side by side are equal by chance."""
    starts = range(repeat.start + repeat.length, repeat.stop, repeat.length)
    return all(
        any(
            start - repeat.length <= source < start
            for k in range(repeat.length)
            for source in inner.get(start + k, ())
        )
        for start in starts
    )


def _form(repeat: Repeat, block: int, inner: dict[int, list[int]]) -> list[list[int]]:
    start = repeat.start + block * repeat.length
    return [
        sorted(source - start for source in inner.get(start + k, ()) if source >= start)
        for k in range(repeat.length)
    ]


def _chosen(found: Sequence[Repeat]) -> list[Repeat]:
    taken: list[Repeat] = []
    for repeat in sorted(found, key=lambda one: (-one.saved, one.length, one.start)):
        apart = all(repeat.stop <= other.start or other.stop <= repeat.start for other in taken)
        if apart and repeat.saved >= _SMALLEST * (2 if repeat.count == 2 else 1):
            taken.append(repeat)
    return sorted(taken, key=lambda one: one.start)


def sections(count: int, links: Sequence[tuple[int, int]], size: int) -> list[int]:
    """The borders of sections of about ``size`` items, from 0 to ``count``, where few values cross."""
    crossing = _crossing(count, links)
    borders = [0]
    while count - borders[-1] > size * 3 // 2:
        low = borders[-1] + size // 2
        borders.append(min(range(low, low + size), key=lambda at: (crossing[at], abs(at - low - size // 2))))
    return [*borders, count]
