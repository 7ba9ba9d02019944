"""The order of the boxes in each row, with few crossings: sweeps to the median, then exchanges of neighbours.

Gansner, Koutsofios, North and Vo, "A Technique for Drawing Directed Graphs", 1993, section 3.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import groupby, pairwise

_SWEEPS = 24
_PATIENCE = 6  # sweeps without an improvement, after which the search ends
_PROMISING = 1.1  # crossings relative to the best order, above which exchanges are not tried
_EXCHANGES = 4  # passes over a row
_LARGE = 4000  # vertices, from which on rows are only sorted

Rows = list[list[int]]
# For each vertex, its neighbours in one adjacent row, with the place of the line's end on the neighbour and
# on the vertex: from -0.5 (left border) to 0.5.
Sides = Sequence[Sequence[tuple[int, float, float]]]


def ordered(rows: Rows, above: Sides, below: Sides) -> Rows:
    """The rows in an order with few crossings. The result depends only on the arguments."""
    best, fewest, idle = rows, crossings(rows, below), 0
    small = sum(map(len, rows)) < _LARGE
    for sweep in range(_SWEEPS):
        if fewest == 0 or idle == _PATIENCE:
            break
        downwards = sweep % 2 == 0
        rows = _sweep(rows, above if downwards else below, downwards=downwards, ties=sweep % 4 > 1)
        found = crossings(rows, below)
        if small and found < fewest * _PROMISING:
            _exchange(rows, above, below)
            found = crossings(rows, below)
        idle = 0 if found < fewest else idle + 1
        if found < fewest:
            best, fewest = [list(row) for row in rows], found
    return best


def _sweep(rows: Rows, sides: Sides, *, downwards: bool, ties: bool) -> Rows:
    """Sort each row by the median place of the neighbours in the row before.

    Vertices with the same median keep their order, or exchange it where ``ties`` is set. Vertices without
    neighbours keep their places.
    """
    result: Rows = []
    place: dict[int, int] = {}
    for row in rows if downwards else reversed(rows):
        wish = {vertex: _median(sorted(place[n] + at for n, at, _ in sides[vertex])) for vertex in row}
        result.append(_sorted(row, wish, ties=ties))
        place = {vertex: index for index, vertex in enumerate(result[-1])}
    return result if downwards else result[::-1]


def _median(places: Sequence[float]) -> float | None:
    """The median; of an even number, between the two, nearer to the side where the places are closer."""
    count = len(places)
    if count == 0:
        return None
    middle = count // 2
    if count % 2:
        return places[middle]
    if count == 2:
        return (places[0] + places[1]) / 2
    left, right = places[middle - 1] - places[0], places[-1] - places[middle]
    if left + right == 0:
        return (places[middle - 1] + places[middle]) / 2
    return (places[middle - 1] * right + places[middle] * left) / (left + right)


def _sorted(row: list[int], wish: dict[int, float | None], *, ties: bool) -> list[int]:
    movable = [vertex for vertex in row if wish[vertex] is not None]
    movable = list(reversed(movable)) if ties else movable
    movable.sort(key=lambda vertex: wish[vertex] or 0.0)
    following = iter(movable)
    return [vertex if wish[vertex] is None else next(following) for vertex in row]


def crossings(rows: Rows, below: Sides) -> int:
    """The number of pairs of lines that cross."""
    total = 0
    for upper, lower in pairwise(rows):
        place = {vertex: index for index, vertex in enumerate(lower)}
        lines = sorted(
            (index + own, place[other] + at)
            for index, vertex in enumerate(upper)
            for other, at, own in below[vertex]
        )
        seen: list[float] = []
        for ends in _by_start(lines):
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _by_start(lines: list[tuple[float, float]]) -> list[list[float]]:
    """The ends of lines by their start: two lines from one point do not cross."""
    return [[end for _, end in group] for _, group in groupby(lines, key=lambda line: line[0])]


def _exchange(rows: Rows, above: Sides, below: Sides) -> None:
    """Exchange neighbours in a row where that removes crossings, until it removes none."""
    place = {vertex: index for row in rows for index, vertex in enumerate(row)}
    for _ in range(_EXCHANGES):
        changed = [_exchange_row(row, place, above, below) for row in rows]
        if not any(changed):
            break


def _exchange_row(row: list[int], place: dict[int, int], above: Sides, below: Sides) -> bool:
    ends = {vertex: (_ends(above[vertex], place), _ends(below[vertex], place)) for vertex in row}
    changed = False
    for index in range(len(row) - 1):
        left, right = row[index], row[index + 1]
        (up, down), (other_up, other_down) = ends[left], ends[right]
        if _gain(up, other_up) + _gain(down, other_down) > 0:
            row[index], row[index + 1] = right, left
            place[left], place[right] = index + 1, index
            changed = True
    return changed


def _ends(sides: Sequence[tuple[int, float, float]], place: dict[int, int]) -> list[float]:
    """The places of the other ends of a vertex's lines, in order."""
    ends = [place[other] + at for other, at, _ in sides]
    if len(ends) > 1:
        ends.sort()
    return ends


def _gain(left: list[float], right: list[float]) -> int:
    """The crossings that an exchange of two neighbours removes, given the ends of their lines."""
    if not left or not right or left[-1] <= right[0]:
        return -len(left) * len(right) if left and right and left[-1] < right[0] else 0
    return _crossed(left, right) - _crossed(right, left)


def _crossed(left: list[float], right: list[float]) -> int:
    return sum([len(left) - bisect_right(left, end) for end in right])
