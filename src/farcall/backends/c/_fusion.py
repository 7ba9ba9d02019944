"""Elementwise fusion: decides which nodes share one loop, and the order of all steps.

The *level* of a node is the largest number of loop borders on a path to it. An edge between two elementwise
nodes over the same dims is not a loop border; every other edge is. Nodes of one level and the same dims that
such edges join may share a loop: a path that leaves the group reaches a higher level, so it cannot come back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from farcall.backends.c._registry import Elementwise, View, operator
from farcall.graph.dims import Dim, dims

LARGEST_GROUP = (
    48  # nodes in one loop: with more, registers spill, and compile time grows faster than linearly
)


@dataclass(frozen=True)
class Group:
    """The nodes of one step: one node that is not elementwise, or elementwise nodes over the same dims."""

    nodes: tuple[ir.Node, ...]
    elementwise: bool


def roots(nodes: Iterable[ir.Node]) -> dict[ir.Value, ir.Value]:
    """View -> the value whose memory it shares. Only views are listed."""
    found: dict[ir.Value, ir.Value] = {}
    for node in nodes:
        if isinstance(operator(node), View) and (source := node.inputs[0]) is not None:
            found[node.outputs[0]] = found.get(source, source)
    return found


def group(nodes: Sequence[ir.Node], root: Mapping[ir.Value, ir.Value]) -> list[Group]:
    """Split ``nodes`` (in topological order) into groups, in an order in which they can run."""
    members = _members(nodes, root)
    groups = [
        Group(tuple(part), isinstance(operator(part[0]), Elementwise))
        for whole in members
        for part in (whole[i : i + LARGEST_GROUP] for i in range(0, len(whole), LARGEST_GROUP))
    ]
    return _order(groups, nodes, root)


def fusable(producer: ir.Node, node: ir.Node, view: tuple[Dim, ...]) -> bool:
    """Whether ``node`` may read its operand, seen as ``view``, from the register of ``producer``."""
    domain = dims(node.outputs[0])
    return isinstance(operator(producer), Elementwise) and dims(producer.outputs[0]) == domain == view


def _members(nodes: Sequence[ir.Node], root: Mapping[ir.Value, ir.Value]) -> list[list[ir.Node]]:
    level: dict[ir.Node, int] = {}
    owner: dict[ir.Node, list[ir.Node]] = {}
    for node in nodes:
        entry = operator(node)
        views = list(entry.operands(node)) if isinstance(entry, Elementwise) else []
        joined: list[ir.Node] = []
        depth = 0
        for value in node.inputs:
            producer = root.get(value, value).producer() if value is not None else None
            if value is None or producer is None or producer not in level:
                continue
            seen = [view for item, view in views if item is value]
            if seen and all(fusable(producer, node, view) for view in seen):
                joined.append(producer)
                depth = max(depth, level[producer])
            else:
                depth = max(depth, level[producer] + 1)
        level[node] = depth
        own = owner[node] = [node]
        for producer in joined:
            if level[producer] == depth and owner[producer] is not own:
                own = _merge(owner, own, owner[producer])
    position = {node: i for i, node in enumerate(nodes)}
    unique = {id(item): item for item in owner.values()}
    return [sorted(item, key=position.__getitem__) for item in unique.values()]


def _merge(owner: dict[ir.Node, list[ir.Node]], a: list[ir.Node], b: list[ir.Node]) -> list[ir.Node]:
    """Append the smaller list to the larger one: a node moves at most log(n) times."""
    small, large = (a, b) if len(a) <= len(b) else (b, a)
    large.extend(small)
    for node in small:
        owner[node] = large
    return large


def _order(
    groups: Sequence[Group], nodes: Sequence[ir.Node], root: Mapping[ir.Value, ir.Value]
) -> list[Group]:
    """A topological order close to the order of the nodes, so that buffers are in use for a short time."""
    home = {node: i for i, item in enumerate(groups) for node in item.nodes}
    last = {node: i for i, node in enumerate(nodes)}
    waiting: list[set[int]] = [set() for _ in groups]
    followers: list[list[int]] = [[] for _ in groups]
    for i, item in enumerate(groups):
        for node in item.nodes:
            for value in node.inputs:
                producer = root.get(value, value).producer() if value is not None else None
                source = home.get(producer, i) if producer is not None else i
                if source != i and source not in waiting[i]:
                    waiting[i].add(source)
                    followers[source].append(i)
    ready = [(last[item.nodes[-1]], i) for i, item in enumerate(groups) if not waiting[i]]
    heapq.heapify(ready)
    ordered: list[Group] = []
    while ready:
        _, i = heapq.heappop(ready)
        ordered.append(groups[i])
        for follower in followers[i]:
            waiting[follower].discard(i)
            if not waiting[follower]:
                heapq.heappush(ready, (last[groups[follower].nodes[-1]], follower))
    return ordered
