"""Merging claims into groups: right for any graph, and no worse than it should be."""

from __future__ import annotations

import graphlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.graph._merge import merge

Sources = list[list[int]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Sources, list[int]]:
    """A directed acyclic graph of up to 24 claims, and up to three backends."""
    count = draw(st.integers(0, 24))
    sources = [
        draw(st.lists(st.integers(0, item - 1), max_size=3, unique=True)) if item else []
        for item in range(count)
    ]
    backends = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    return sources, backends


def edges(sources: Sources, group: dict[int, int]) -> dict[int, set[int]]:
    """For each group, the groups that it reads from."""
    result: dict[int, set[int]] = {name: set() for name in group.values()}
    for item, reads in enumerate(sources):
        result[group[item]] |= {group[source] for source in reads} - {group[item]}
    return result


def assert_right(sources: Sources, backends: list[int], groups: list[list[int]]) -> None:
    assert sorted(item for group in groups for item in group) == list(range(len(sources)))
    group = {item: number for number, members in enumerate(groups) for item in members}
    for number, members in enumerate(groups):
        assert members == sorted(members)
        assert len({backends[item] for item in members}) == 1
        assert is_connected(members, sources)
        assert all(other < number for other in edges(sources, group)[number])  # runnable in this order


def is_connected(members: list[int], sources: Sources) -> bool:
    inside, found, todo = set(members), {members[0]}, [members[0]]
    while todo:
        item = todo.pop()
        near = set(sources[item]) | {other for other in inside if item in sources[other]}
        for other in (near & inside) - found:
            found.add(other)
            todo.append(other)
    return found == inside


@given(graphs())
def test_groups_are_connected_of_one_backend_and_without_cycles(graph: tuple[Sources, list[int]]) -> None:
    sources, backends = graph
    assert_right(sources, backends, merge(sources, backends))


@given(graphs())
def test_no_two_groups_could_simply_be_one_by_a_direct_edge(graph: tuple[Sources, list[int]]) -> None:
    """A group with one reader is of another backend than that reader."""
    sources, backends = graph
    groups = merge(sources, backends)
    group = {item: number for number, members in enumerate(groups) for item in members}
    reads = edges(sources, group)
    for number, others in reads.items():
        for other in others:
            readers = [name for name, theirs in reads.items() if other in theirs]
            if readers == [number]:
                assert backends[groups[number][0]] != backends[groups[other][0]]


@given(graphs())
def test_the_result_is_the_same_each_time(graph: tuple[Sources, list[int]]) -> None:
    assert merge(*graph) == merge(*graph)


def chain_of(backends: str) -> tuple[Sources, list[int]]:
    return [[item - 1] if item else [] for item in range(len(backends))], [ord(letter) for letter in backends]


def test_a_chain_is_cut_where_the_backend_changes() -> None:
    assert merge(*chain_of("aaabbaa")) == [[0, 1, 2], [3, 4], [5, 6]]


def test_a_diamond_around_a_foreign_node_is_two_regions() -> None:
    sources = [[], [0], [0], [1, 2]]  # 0 -> (1 foreign, 2) -> 3
    assert merge(sources, [0, 1, 0, 0]) == [[0, 2], [1], [3]]


def test_a_late_branch_joins_its_reader() -> None:
    """Node 3 reads nothing foreign, but its reader follows a foreign node: 3 is raised to that level."""
    sources = [[], [0], [], [1, 2]]  # 0 -> 1 (foreign) -> 3 <- 2
    assert merge(sources, [0, 1, 0, 0]) == [[0], [1], [2, 3]]


def test_a_foreign_dead_end_does_not_keep_two_apart() -> None:
    """1 (foreign) only reads from 0: it can run last, so 0 joins 3, which is behind another foreign node."""
    sources = [[], [0], [], [0, 2]]
    assert sorted(merge(sources, [0, 1, 1, 0])) == [[0, 3], [1], [2]]


def test_two_chains_that_cross_stay_without_a_cycle() -> None:
    sources = [[], [], [0], [1], [2, 1], [3, 0]]
    backends = [0, 1, 1, 0, 0, 1]
    groups = merge(sources, backends)
    assert_right(sources, backends, groups)


@pytest.mark.parametrize("shape", ["chain", "fan out", "fan in"])
def test_large_graphs_need_no_recursion(shape: str) -> None:
    count = 20_000
    sources: Sources = {
        "chain": [[item - 1] if item else [] for item in range(count)],
        "fan out": [[0] if item else [] for item in range(count)],
        "fan in": [[] if item < count - 1 else list(range(count - 1)) for item in range(count)],
    }[shape]
    assert len(merge(sources, [0] * count)) == 1


@given(graphs())
def test_the_group_graph_sorts(graph: tuple[Sources, list[int]]) -> None:
    """An independent implementation, graphlib, finds no cycle among the groups."""
    sources, backends = graph
    group = {item: number for number, members in enumerate(merge(sources, backends)) for item in members}
    list(graphlib.TopologicalSorter(edges(sources, group)).static_order())
