"""A layered layout (Sugiyama, Tagawa and Toda 1981): ranks, bends in long edges, order, coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farcall.drawing._coordinates import coordinates
from farcall.drawing._order import Rows, ordered
from farcall.drawing._ranks import ranks

_BEND = 6.0  # space on each side of a long edge
_Line = tuple[int, float, float]  # of a vertex: the neighbour, its port, the own port


@dataclass(frozen=True)
class Link:
    """An edge. Ports are distances from the middle of a vertex. Links from one port share their bends."""

    source: int
    target: int
    source_port: float = 0.0
    target_port: float = 0.0


@dataclass(frozen=True)
class Layers:
    """A layout: rank and position of each vertex; of each link, its position in each row that it passes."""

    ranks: list[int]
    xs: list[float]
    bends: list[list[float]]
    rows: Rows  # with the bends, which are numbered after the vertices
    extents: list[tuple[float, float]]


def layered(
    extents: Sequence[tuple[float, float]],
    links: Sequence[Link],
    top: frozenset[int] = frozenset(),
    bottom: frozenset[int] = frozenset(),
) -> Layers:
    """Lay out vertices.

    Args:
        extents: the space that each vertex needs left and right of its position, gaps included.
        links: the edges, without cycles.
        top: vertices that must be in the first row (no link leads to them).
        bottom: vertices that must be in the last row (no link leaves them).
    """
    count = len(extents)
    rank = ranks(count, [(link.source, link.target) for link in links], top, bottom)
    grid = _Grid(extents, rank)
    chains = [grid.chain(link) for link in links]
    rows = ordered(grid.rows, grid.places(grid.above), grid.places(grid.below))
    xs = coordinates(rows, grid.extents, grid.above, grid.below, count)
    bends = [[xs[bend] for bend in chain] for chain in chains]
    return Layers(rank, xs[:count], bends, rows, grid.extents)


class _Grid:
    """Vertices and bends in rows, and the lines between adjacent rows."""

    def __init__(self, extents: Sequence[tuple[float, float]], rank: Sequence[int]) -> None:
        self.extents = list(extents)
        self.rows: Rows = [[] for _ in range(max(rank, default=-1) + 1)]
        for vertex, row in enumerate(rank):
            self.rows[row].append(vertex)
        self.above: list[list[_Line]] = [[] for _ in extents]
        self.below: list[list[_Line]] = [[] for _ in extents]
        self._rank = rank
        self._trunks: dict[tuple[int, float], list[int]] = {}

    def chain(self, link: Link) -> list[int]:
        """The bends of a link, one for each row that it passes; new ones get their lines."""
        trunk = self._trunks.setdefault((link.source, link.source_port), [])
        wanted = self._rank[link.target] - self._rank[link.source] - 1
        for step in range(len(trunk), wanted):
            bend = self._bend(self._rank[link.source] + 1 + step)
            self._line(*self._end(trunk, link), bend, 0.0)
            trunk.append(bend)
        found = trunk[:wanted]
        self._line(*self._end(found, link), link.target, link.target_port)
        return found

    @staticmethod
    def _end(trunk: Sequence[int], link: Link) -> tuple[int, float]:
        return (trunk[-1], 0.0) if trunk else (link.source, link.source_port)

    def _bend(self, row: int) -> int:
        self.extents.append((_BEND, _BEND))
        self.above.append([])
        self.below.append([])
        self.rows[row].append(len(self.extents) - 1)
        return len(self.extents) - 1

    def _line(self, upper: int, upper_port: float, lower: int, lower_port: float) -> None:
        self.below[upper].append((lower, lower_port, upper_port))
        self.above[lower].append((upper, upper_port, lower_port))

    def places(self, lines: Sequence[Sequence[_Line]]) -> list[list[_Line]]:
        """The lines with ports as parts of a vertex's width."""
        widths = [max(left + right, 1.0) for left, right in self.extents]
        return [
            [(other, port / widths[other] * 0.98, own / widths[vertex] * 0.98) for other, port, own in of]
            for vertex, of in enumerate(lines)
        ]
