"""Horizontal positions: Brandes and Koepf, "Fast and Simple Horizontal Coordinate Assignment", 2001.

Every vertex is aligned with its median neighbour where possible, so that lines become straight; long edges
come first. This is done four times, from each corner; the result is the mean of the two middle positions.
Blocks of aligned vertices are placed by longest paths in the graph of their order, as in Brandes, Walter and
Zink, "Erratum", 2020. Lines end at *ports*, distances from the middle of a box, and the ports are aligned
rather than the middles (Schulze, Spoenemann and von Hanxleden, 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

WIDEST = 1.5  # width of a drawing, relative to that of its widest row without any space

Rows = Sequence[Sequence[int]]
Extents = Sequence[tuple[float, float]]  # the space that a vertex needs left and right of its position
Lines = Sequence[Sequence[tuple[int, float, float]]]  # of a vertex: (neighbour, neighbour's port, own port)


def coordinates(rows: Rows, extents: Extents, above: Lines, below: Lines, bends: int) -> list[float]:
    """The position of each vertex; in every row, extents do not overlap, and the order is kept.

    Args:
        rows: the vertices from left to right, from top to bottom.
        extents: for each vertex, the space left and right of it, gaps included.
        above: the lines to the row above.
        below: the lines to the row below.
        bends: the first vertex that is a bend in a long edge; all later ones are bends too.
    """
    blocked = _blocked(rows, below, bends)
    found = []
    for flip in (False, True):
        lines, layers = (below, rows[::-1]) if flip else (above, rows)
        found.append(_run(layers, extents, lines, blocked))
        mirrored = [row[::-1] for row in layers]
        swapped = [(right, left) for left, right in extents]
        negated = [[(v, -port, -own) for v, port, own in of] for of in lines]
        found.append([-x for x in _run(mirrored, swapped, negated, blocked)])
    mean = _middle(found, extents)
    return _narrowed(rows, extents, mean)


def needed(rows: Rows, extents: Extents) -> float:
    """The width of the widest row, if its vertices stand side by side."""
    return max((sum(sum(extents[vertex]) for vertex in row) for row in rows), default=0.0)


def _blocked(rows: Rows, below: Lines, bends: int) -> set[tuple[int, int]]:
    """The lines that may not be aligned, because they cross a line between two bends; (upper, lower)."""
    blocked: set[tuple[int, int]] = set()
    for upper, lower in pairwise(rows):
        place = {vertex: index for index, vertex in enumerate(lower)}
        lines = [(i, place[w], v, w) for i, v in enumerate(upper) for w, _, _ in below[v]]
        inner = sorted((i, j) for i, j, v, w in lines if v >= bends and w >= bends)
        if inner:
            _block(blocked, lines, inner, bends)
    return blocked


def _block(
    blocked: set[tuple[int, int]],
    lines: Sequence[tuple[int, int, int, int]],
    inner: Sequence[tuple[int, int]],
    bends: int,
) -> None:
    for i, j, v, w in lines:
        own = v >= bends and w >= bends
        for a, b in inner:
            # Of two crossing lines between bends, the one that starts further left wins.
            if (a - i) * (b - j) < 0 and (not own or a < i):
                blocked.add((v, w))
                break


def _run(rows: Rows, extents: Extents, lines: Lines, blocked: set[tuple[int, int]]) -> list[float]:
    root, shift = _aligned(rows, lines, blocked)
    return _compacted(rows, extents, root, shift)


def _aligned(rows: Rows, lines: Lines, blocked: set[tuple[int, int]]) -> tuple[list[int], list[float]]:
    """The block of each vertex, named by its first vertex, and the distance from that vertex's position."""
    root, shift = list(range(len(lines))), [0.0] * len(lines)
    for before, row in pairwise(rows):
        place = {vertex: index for index, vertex in enumerate(before)}
        limit = -1
        for vertex in row:
            for other, port, own in _medians(lines[vertex], place):
                free = (other, vertex) not in blocked and (vertex, other) not in blocked
                if free and place[other] > limit:
                    root[vertex], shift[vertex] = root[other], shift[other] + port - own
                    limit = place[other]
                    break
    return root, shift


def _medians(
    lines: Sequence[tuple[int, float, float]], place: dict[int, int]
) -> Sequence[tuple[int, float, float]]:
    by_place = sorted(lines, key=lambda line: (place[line[0]], line[1]))
    low, high = (len(by_place) - 1) // 2, len(by_place) // 2
    return by_place[low : high + 1]


def _compacted(rows: Rows, extents: Extents, root: Sequence[int], shift: Sequence[float]) -> list[float]:
    """Place the blocks as far left as possible, then move those that may towards their right neighbours."""
    after: dict[int, dict[int, float]] = {
        vertex: {} for row in rows for vertex in row if root[vertex] == vertex
    }
    waiting = dict.fromkeys(after, 0)
    for row in rows:
        for a, b in pairwise(row):
            apart = extents[a][1] + extents[b][0] + shift[a] - shift[b]
            targets = after[root[a]]
            waiting[root[b]] += root[b] not in targets
            targets[root[b]] = max(targets.get(root[b], apart), apart)
    order = [block for block, count in waiting.items() if count == 0]
    position = dict.fromkeys(after, 0.0)
    for block in order:
        for target, apart in after[block].items():
            position[target] = max(position[target], position[block] + apart)
            waiting[target] -= 1
            if waiting[target] == 0:
                order.append(target)
    for block in reversed(order):
        if after[block]:
            position[block] = min(position[target] - apart for target, apart in after[block].items())
    return [position[root[vertex]] + shift[vertex] for vertex in range(len(root))]


def _middle(found: Sequence[list[float]], extents: Extents) -> list[float]:
    """The mean of the two middle positions, after each result was moved to the narrowest one."""
    borders = [_borders(xs, extents) for xs in found]
    low, high = min(borders, key=lambda border: border[1] - border[0])
    moved = []
    for index, (xs, (left, right)) in enumerate(zip(found, borders, strict=True)):
        by = low - left if index % 2 == 0 else high - right
        moved.append([x + by for x in xs])
    return [sum(sorted(xs)[1:3]) / 2 for xs in zip(*moved, strict=True)]


def _borders(xs: Sequence[float], extents: Extents) -> tuple[float, float]:
    low = min((x - left for x, (left, _) in zip(xs, extents, strict=True)), default=0.0)
    return low, max((x + right for x, (_, right) in zip(xs, extents, strict=True)), default=0.0)


def _narrowed(rows: Rows, extents: Extents, xs: list[float]) -> list[float]:
    """Move what lies outside of a window of the width that is allowed; the result begins at 0."""
    width = WIDEST * needed(rows, extents)
    low, high = _borders(xs, extents)
    if high - low > width:
        low = sorted(xs)[len(xs) // 2] - width / 2
        for row in rows:
            _into(row, extents, xs, low, low + width)
    low = _borders(xs, extents)[0]
    return [x - low for x in xs]


def _into(row: Sequence[int], extents: Extents, xs: list[float], low: float, high: float) -> None:
    """Move the vertices of a row between two borders, each as little as possible, in the same order."""
    for vertex in row:
        left, right = extents[vertex]
        xs[vertex] = max(xs[vertex], low + left)
        low = xs[vertex] + right
    for vertex in reversed(row):
        left, right = extents[vertex]
        xs[vertex] = min(xs[vertex], high - right)
        high = xs[vertex] - left
