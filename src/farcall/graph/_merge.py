"""Merges the claims of one backend into connected, convex regions, in linear time.

Every claim gets a level: the largest number of changes of backend on a path from the inputs to it. Adjacent
claims of one backend and one level form a group. Groups are convex and free of cycles by construction: along
an edge the level never falls, and between two groups it rises, because either the backend changes, or the two
would be one group. So no test for cycles is needed, which makes other partitioners quadratic or worse
(measured on 1,000 to 10,000 nodes: torch.fx about n^3, TVM Relax up to n^1.7).

These levels are the lowest possible ones, which splits some groups that could be one: a branch without
foreign nodes that joins the others late. So a second step raises groups, last first, each as far as its
consumers allow, if it meets a group of its backend there; it repeats as long as the number of groups falls.
Consumers stay at or above, so the properties of levels still hold.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

_PASSES = 8  # of raising; two or three were enough in all graphs so far

Graph = Sequence[Sequence[int]]  # for each claim (in topological order), the claims that it reads from


def merge(sources: Graph, backends: Sequence[int]) -> list[list[int]]:
    """Partition the claims ``0 .. n-1``, given in topological order.

    Args:
        sources: For each claim, the earlier claims that it reads from.
        backends: For each claim, its backend.

    Returns:
        The groups in an order in which they can run; the claims of each ascend. Every group is connected,
        of one backend, and convex; and no two groups depend on each other.
    """
    level = _levels(sources, backends)
    own = [
        (source, item)
        for item, reads in enumerate(sources)
        for source in reads
        if backends[source] == backends[item]
    ]
    group = _touching(own, level)
    for _ in range(_PASSES):
        raised = _raised(sources, backends, level, group)
        if raised == level:
            break
        before, level = len(set(group)), raised
        group = _touching(own, level)
        if len(set(group)) == before:
            break
    return _ordered(sources, group)


def _levels(sources: Graph, backends: Sequence[int]) -> list[int]:
    level: list[int] = []
    for item, reads in enumerate(sources):
        own = backends[item]
        level.append(max((level[source] + (backends[source] != own) for source in reads), default=0))
    return level


def _touching(own: Iterable[tuple[int, int]], level: Sequence[int]) -> list[int]:
    """The group of each claim, named by its first member; a group is connected and has one level.

    Args:
        own: The edges between claims of one backend, those that end in earlier claims first.
        level: The level of each claim.
    """
    parent = list(range(len(level)))

    def find(item: int) -> int:
        while parent[item] != item:
            parent[item] = item = parent[parent[item]]
        return item

    for source, item in own:
        if level[source] == level[item]:
            a, b = find(source), find(item)
            if a < b:
                parent[b] = a
            else:
                parent[a] = b
    for item, above in enumerate(parent):  # which is earlier, and was replaced by its first member before
        parent[item] = parent[above]
    return parent


def _raised(sources: Graph, backends: Sequence[int], level: Sequence[int], group: Sequence[int]) -> list[int]:
    """The levels after raising groups to readers of the same backend.

    A group may rise to the lowest level of its readers (one below a reader of another backend). It rises if
    it joins a reader of its backend there, or if it reads from no group of its backend: then it cannot lose
    a connection below, and the groups that it reads from can rise too.
    """
    readers: dict[int, set[int]] = {item: set() for item in group}
    reads_own = set()
    for item, reads in enumerate(sources):
        for source in reads:
            if group[source] != group[item]:
                readers[group[source]].add(group[item])
                if backends[source] == backends[item]:
                    reads_own.add(group[item])
    top = len(sources)
    result = {item: level[item] for item in readers}
    for item in sorted(readers, key=lambda one: (-level[one], one)):  # each after its readers
        own = backends[item]
        limit = min((result[other] - (backends[other] != own) for other in readers[item]), default=top)
        joins = any(result[other] == limit and backends[other] == own for other in readers[item])
        if joins or item not in reads_own:
            result[item] = limit
    return [result[item] for item in group]


def _ordered(sources: Graph, group: Sequence[int]) -> list[list[int]]:
    """The groups, each after those that it reads from, otherwise in the order of their first members."""
    members: dict[int, list[int]] = {}
    readers: dict[int, set[int]] = {item: set() for item in group}
    for item, reads in enumerate(sources):
        members.setdefault(group[item], []).append(item)
        for source in reads:
            if group[source] != group[item]:
                readers[group[source]].add(group[item])
    waiting = dict.fromkeys(readers, 0)
    for others in readers.values():
        for other in others:
            waiting[other] += 1
    ready = [item for item, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    result: list[list[int]] = []
    while ready:
        item = heapq.heappop(ready)
        result.append(members[item])
        for other in readers[item]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, other)
    return result
