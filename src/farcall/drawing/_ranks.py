"""Ranks: the row of each box, so that every edge runs downwards and edges are short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_PASSES = 20

Links = Sequence[tuple[int, int]]  # (source, target)


def ranks(count: int, links: Links, top: frozenset[int], bottom: frozenset[int]) -> list[int]:
    """The rank of each of ``count`` vertices: the longest path from a source, then tightened.

    Args:
        count: number of vertices.
        links: (source, target) pairs, without cycles.
        top: vertices that must be in the first row (no link leads to them).
        bottom: vertices that must be in the last row (no link leaves them).
    """
    above, below = _neighbours(count, links)
    order = topological(above, below)
    found = [1 if top and vertex not in top else 0 for vertex in range(count)]
    for vertex in order:
        found[vertex] = max([found[vertex], *(found[source] + 1 for source in above[vertex])])
    last = max(
        (found[vertex] + (vertex not in bottom and bool(bottom)) for vertex in range(count)), default=0
    )
    for vertex in bottom:
        found[vertex] = last
    free = [vertex for vertex in order if vertex not in top and vertex not in bottom]
    for _ in range(_PASSES):
        down = _tighten(reversed(free), found, above, below)
        up = _tighten(free, found, above, below)
        if not (down or up):
            break
    return _without_gaps(found)


def _neighbours(count: int, links: Links) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for source, target in links:
        above[target].append(source)
        below[source].append(target)
    return above, below


def topological(above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> list[int]:
    """All vertices, each after those above it."""
    waiting = [len(sources) for sources in above]
    order = [vertex for vertex, count in enumerate(waiting) if count == 0]
    for vertex in order:
        for target in below[vertex]:
            waiting[target] -= 1
            if waiting[target] == 0:
                order.append(target)
    return order


def _tighten(
    vertices: Iterable[int], found: list[int], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]
) -> bool:
    """Move each vertex as far as its neighbours allow, if that shortens its edges; whether one moved."""
    moved = False
    for vertex in vertices:
        rank = _wish(found[vertex], [found[i] for i in above[vertex]], [found[i] for i in below[vertex]])
        moved = moved or rank != found[vertex]
        found[vertex] = rank
    return moved


def _wish(rank: int, sources: Sequence[int], targets: Sequence[int]) -> int:
    """The rank at which the edges of a vertex are shortest in total."""
    if len(targets) > len(sources):
        return min(targets) - 1
    if len(sources) > len(targets):
        return max(sources) + 1
    return rank


def _without_gaps(found: list[int]) -> list[int]:
    """The same ranks, numbered without holes."""
    number = {rank: index for index, rank in enumerate(sorted(set(found)))}
    return [number[rank] for rank in found]
