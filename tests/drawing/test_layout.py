"""The layout: rows, their order, positions, and bends."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.drawing._coordinates import WIDEST, needed
from farcall.drawing._layers import Layers, Link, layered
from farcall.drawing._order import crossings, ordered
from farcall.drawing._ranks import ranks
from farcall.drawing._repeats import Repeat, repeats, sections

SLACK = 1e-6
Graph = tuple[list[tuple[float, float]], list[Link]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 18))
    extents = [(draw(st.floats(5, 90)), draw(st.floats(5, 90))) for _ in range(count)]
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda ab: ab[0] < ab[1])
    chosen = draw(st.lists(pairs, max_size=30, unique=True)) if count > 1 else []
    ports = st.floats(-5, 5)
    return extents, [Link(a, b, draw(ports), draw(ports)) for a, b in chosen]


def random_graph(count: int, seed: int) -> Graph:
    chance = random.Random(seed)  # noqa: S311
    links = {
        (max(0, item - 1 - int(chance.expovariate(0.1))), item): None
        for item in range(1, count)
        for _ in range(chance.randint(1, 3))
    }
    return [(40.0, 40 + 30.0 * (item % 3)) for item in range(count)], [Link(a, b) for a, b in links]


def check(extents: list[tuple[float, float]], links: list[Link], layout: Layers) -> None:
    """Edges run downwards, nothing overlaps, and the picture is not wider than its rows need."""
    for link, bends in zip(links, layout.bends, strict=True):
        assert layout.ranks[link.target] - layout.ranks[link.source] == len(bends) + 1
    for row in range(max(layout.ranks) + 1):
        own = sorted((layout.xs[v], *extents[v]) for v, rank in enumerate(layout.ranks) if rank == row)
        assert all(a[0] + a[2] <= b[0] - b[1] + SLACK for a, b in pairwise(own))
    low = min(x - left for x, (left, _) in zip(layout.xs, extents, strict=True))
    high = max(x + right for x, (_, right) in zip(layout.xs, extents, strict=True))
    assert low >= -SLACK
    assert high - low <= WIDEST * needed(layout.rows, layout.extents) + SLACK


@given(graphs())
def test_boxes_do_not_overlap_and_no_picture_is_wider_than_its_rows_need(graph: Graph) -> None:
    extents, links = graph
    check(extents, links, layered(extents, links))


@pytest.mark.parametrize("count", [40, 120, 300])
def test_large_graphs_too(count: int) -> None:
    extents, links = random_graph(count, seed=count)
    check(extents, links, layered(extents, links))


def test_a_long_edge_is_straight_and_a_chain_too() -> None:
    links = [Link(0, 1), Link(1, 2), Link(2, 3), Link(0, 3)]
    layout = layered([(40, 40)] * 4, links)
    assert layout.xs[1] == layout.xs[2]
    assert layout.bends[3][0] == layout.bends[3][1]


def test_ports_are_aligned_rather_than_middles() -> None:
    layout = layered([(40, 40), (40, 40)], [Link(0, 1, source_port=20, target_port=-10)])
    assert layout.xs[0] + 20 == layout.xs[1] - 10


def test_links_from_one_port_share_their_bends() -> None:
    links = [Link(0, 1), Link(1, 2), Link(2, 3), Link(0, 2), Link(0, 3)]
    layout = layered([(40, 40)] * 4, links)
    assert layout.bends[3][0] == layout.bends[4][0]


def test_ranks_are_longest_paths_and_then_tight() -> None:
    # 4 is read only by 3, so it stands right above it, rather than in the first row.
    assert ranks(5, [(0, 1), (1, 2), (2, 3), (4, 3)], frozenset(), frozenset()) == [0, 1, 2, 3, 2]
    assert ranks(3, [(0, 1)], frozenset({0}), frozenset({2})) == [0, 1, 2]


def test_crossings_that_can_be_avoided_are() -> None:
    below: list[list[tuple[int, float, float]]] = [[(5, 0, 0)], [(4, 0, 0)], [(3, 0, 0)], [], [], []]
    above: list[list[tuple[int, float, float]]] = [[], [], [], [(2, 0, 0)], [(1, 0, 0)], [(0, 0, 0)]]
    rows = [[0, 1, 2], [3, 4, 5]]
    assert crossings(rows, below) == 3
    assert crossings(ordered(rows, above, below), below) == 0


def test_the_same_graph_gives_the_same_layout() -> None:
    assert layered(*random_graph(80, 1)) == layered(*random_graph(80, 1))


def test_repeats_begin_where_few_values_cross() -> None:
    # Two items before, then four blocks a-b-c of which c feeds the next block, then one item.
    labels = ["x", "y", *"abc" * 4, "z"]
    links = [(i, i + 1) for i in range(len(labels) - 1)] + [(2 + 3 * k, 4 + 3 * k) for k in range(4)]
    assert repeats(labels, links) == [Repeat(2, 3, 4)]


def test_blocks_with_other_links_inside_are_not_equal() -> None:
    labels = list("abc" * 6)
    same = [(3 * k, 3 * k + 1) for k in range(6)] + [(3 * k + 1, 3 * k + 3) for k in range(5)]
    assert [found.count for found in repeats(labels, same)] == [6]
    assert [found.count for found in repeats(labels, [*same, (9, 11)])] == [3]


def test_short_blocks_side_by_side_are_no_repeat() -> None:
    assert repeats(["a"] * 12, []) == []
    assert repeats(["a"] * 12, [(i, i + 1) for i in range(11)]) == [Repeat(0, 1, 12)]


def test_sections_end_where_few_values_cross() -> None:
    links = [(i, i + 2) for i in range(28) if i not in (12, 13)] + [(13, 14)]
    borders = sections(30, links, 14)
    assert borders == [0, 14, 30]
