"""A layered layout of a directed acyclic graph: boxes in rows, with edges that run downwards.

The classic four steps (Sugiyama, Tagawa and Toda 1981): assign a rank to each vertex; split long edges by a
bend in each row that they pass; order each row by sweeps to the barycentre of the neighbours, to reduce
crossings; assign coordinates. The last step is exact: with a fixed order, the positions of a row's boxes that
are nearest to their neighbours are an isotonic regression, which pooling adjacent violators solves in linear
time.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]

_SWEEPS = 8
_ROUNDS = 12


@dataclass(frozen=True)
class Layout:
    """A layout. ``centers`` and ``tops`` are the positions of the boxes, ``routes`` the points of each edge.

    A route goes from the bottom of the source to that of its row, through the bends, to the top of the
    target's row and that of the target.
    """

    centers: list[float]
    tops: list[float]
    routes: list[list[Point]]
    width: float
    height: float


def layered(
    sizes: Sequence[tuple[float, float]],
    edges: Sequence[tuple[int, int]],
    *,
    gap_x: float = 24,
    gap_y: float = 36,
    top: frozenset[int] = frozenset(),
    bottom: frozenset[int] = frozenset(),
) -> Layout:
    """Lay out boxes.

    Args:
        sizes: Width and height of each box.
        edges: (source, target) pairs of box numbers, without cycles.
        gap_x: Space between boxes of a row.
        gap_y: Space between rows.
        top: Boxes that must be in the first row (no edge leads to them).
        bottom: Boxes that must be in the last row (no edge leaves them).

    Returns:
        The layout; its top left corner is (0, 0).
    """
    ranks = _ranks(len(sizes), edges, top, bottom)
    rows, chains, widths, links = _with_bends(sizes, edges, ranks)
    rows = _ordered(rows, links)
    centers = _placed(rows, widths, links, gap_x)
    low = min((centers[item] - widths[item] / 2 for row in rows for item in row), default=0.0)
    centers = [center - low for center in centers]
    high = max((centers[item] + widths[item] / 2 for row in rows for item in row), default=0.0)
    heights = [max((sizes[item][1] for item in row if item < len(sizes)), default=0.0) for row in rows]
    row_tops = [sum(heights[:row]) + gap_y * row for row in range(len(rows))]
    tops = [row_tops[rank] + (heights[rank] - size[1]) / 2 for rank, size in zip(ranks, sizes, strict=True)]
    routes = [_route(chain, ranks, centers, tops, sizes, row_tops, heights) for chain in chains]
    return Layout(centers[: len(sizes)], tops, routes, high, sum(heights) + gap_y * max(len(rows) - 1, 0))


def _ranks(
    count: int, edges: Sequence[tuple[int, int]], top: frozenset[int], bottom: frozenset[int]
) -> list[int]:
    """The longest path from a source; a source that need not be on top goes right above its first reader."""
    targets: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for source, target in edges:
        targets[source].append(target)
        waiting[target] += 1
    sources = [item for item in range(count) if waiting[item] == 0]
    ranks = [1 if top and item not in top else 0 for item in range(count)]
    todo = list(sources)
    while todo:
        item = todo.pop()
        for target in targets[item]:
            ranks[target] = max(ranks[target], ranks[item] + 1)
            waiting[target] -= 1
            if waiting[target] == 0:
                todo.append(target)
    for item in sources:
        if item not in top and targets[item]:
            ranks[item] = min(ranks[target] for target in targets[item]) - 1
    last = max((rank + (item not in bottom and bool(bottom)) for item, rank in enumerate(ranks)), default=0)
    return [last if item in bottom else rank for item, rank in enumerate(ranks)]


Links = tuple[list[list[int]], list[list[int]]]  # for each vertex, its neighbours above and below


def _with_bends(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], ranks: Sequence[int]
) -> tuple[list[list[int]], list[list[int]], list[float], Links]:
    """The rows of vertices, the chain of vertices of each edge, the widths, and the links between rows."""
    rows: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for item, rank in enumerate(ranks):
        rows[rank].append(item)
    widths = [width for width, _ in sizes]
    chains = []
    for source, target in edges:
        chain = [source]
        for rank in range(ranks[source] + 1, ranks[target]):
            rows[rank].append(len(widths))
            chain.append(len(widths))
            widths.append(0.0)
        chains.append([*chain, target])
    above: list[list[int]] = [[] for _ in widths]
    below: list[list[int]] = [[] for _ in widths]
    for chain in chains:
        for a, b in pairwise(chain):
            below[a].append(b)
            above[b].append(a)
    return rows, chains, widths, (above, below)


def _ordered(rows: list[list[int]], links: Links) -> list[list[int]]:
    """Sweep down and up, and keep the order with the fewest crossings."""
    best, fewest = rows, _crossings(rows, links)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        rows = _sweep(rows, links[sweep % 2], downwards=sweep % 2 == 0)
        crossings = _crossings(rows, links)
        if crossings < fewest:
            best, fewest = rows, crossings
    return best


def _sweep(rows: list[list[int]], neighbours: list[list[int]], *, downwards: bool) -> list[list[int]]:
    """Order each row by the mean place of its neighbours in the row before; without any, keep the place."""
    result: list[list[int]] = []
    place: dict[int, float] = {}
    for row in rows if downwards else reversed(rows):
        wish = {
            item: sum(place[other] for other in neighbours[item]) / len(neighbours[item])
            if neighbours[item]
            else float(index)
            for index, item in enumerate(row)
        }
        result.append(sorted(row, key=wish.__getitem__))
        place = {item: float(index) for index, item in enumerate(result[-1])}
    return result if downwards else result[::-1]


def _crossings(rows: list[list[int]], links: Links) -> int:
    total = 0
    for upper, lower in pairwise(rows):
        place = {item: index for index, item in enumerate(lower)}
        seen: list[int] = []
        for item in upper:
            ends = sorted(place[other] for other in links[1][item])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _placed(rows: list[list[int]], widths: Sequence[float], links: Links, gap: float) -> list[float]:
    """The centers: pack the rows, then move boxes towards the neighbours below and above in turn."""
    centers = [0.0] * len(widths)
    for row in rows:
        offset = 0.0
        for item in row:
            centers[item] = offset + widths[item] / 2
            offset += widths[item] + gap
    for turn in range(_ROUNDS):
        neighbours = links[turn % 2]
        for row in rows if turn % 2 == 0 else reversed(rows):
            wishes = [
                sum(centers[other] for other in neighbours[item]) / len(neighbours[item])
                if neighbours[item]
                else centers[item]
                for item in row
            ]
            # A bend in a long edge has a larger weight than a box, so that long edges become straight.
            weights = [4.0 if widths[item] == 0 else 1.0 if neighbours[item] else 0.1 for item in row]
            for item, center in zip(row, spread(wishes, weights, [widths[i] for i in row], gap), strict=True):
                centers[item] = center
    return centers


def spread(
    wishes: Sequence[float], weights: Sequence[float], widths: Sequence[float], gap: float
) -> list[float]:
    """Centers in the given order, at least ``gap`` apart, nearest to ``wishes`` (weighted least squares)."""
    offsets = [0.0]
    for a, b in pairwise(widths):
        offsets.append(offsets[-1] + (a + b) / 2 + gap)
    blocks: list[tuple[float, float, int]] = []  # mean, weight, number of members
    for wish, weight, offset in zip(wishes, weights, offsets, strict=False):
        mean, total, count = wish - offset, weight, 1
        while blocks and blocks[-1][0] > mean:
            other, other_weight, other_count = blocks.pop()
            mean = (mean * total + other * other_weight) / (total + other_weight)
            total, count = total + other_weight, count + other_count
        blocks.append((mean, total, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]


def _route(
    chain: Sequence[int],
    ranks: Sequence[int],
    centers: Sequence[float],
    tops: Sequence[float],
    sizes: Sequence[tuple[float, float]],
    row_tops: Sequence[float],
    heights: Sequence[float],
) -> list[Point]:
    def column(item: int, row: int) -> list[Point]:
        return [(centers[item], row_tops[row]), (centers[item], row_tops[row] + heights[row])]

    source, target = chain[0], chain[-1]
    points = [(centers[source], tops[source] + sizes[source][1]), column(source, ranks[source])[1]]
    for row, bend in enumerate(chain[1:-1], start=ranks[source] + 1):
        points += column(bend, row)
    return [*points, column(target, ranks[target])[0], (centers[target], tops[target])]
