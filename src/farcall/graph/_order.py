"""Nodes in topological order, for models whose writers left them in another one.

ONNX asks for that order, but onnxruntime runs models without it, and its converter to float16 writes them.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING

from farcall.graph._guards import subgraphs, walk

if TYPE_CHECKING:
    from typing import TypeAlias

    import onnx

    _Scope: TypeAlias = "onnx.GraphProto | onnx.FunctionProto"


def in_order(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy whose nodes come behind those that make their operands, also in nested graphs.

    Nodes keep their order where operands allow it.

    Args:
        proto: A model, whose graphs nest at most :data:`farcall.graph._guards.MAX_NESTED` deep.

    Returns:
        The copy; None if the nodes are in order, or form a cycle.
    """
    import onnx

    if all(map(_is_sorted, _scopes(proto))):
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    # Sorting a graph copies its nodes, so graphs inside of them come first.
    moved = [_sort(scope) for scope in reversed(_scopes(copy))]
    return copy if any(moved) else None


def _scopes(proto: onnx.ModelProto) -> list[_Scope]:
    """All graphs and functions, each before those inside of it."""
    outer: list[_Scope] = [proto.graph, *proto.functions]
    return [*outer, *(graph for scope in outer for node in walk(scope.node) for graph in subgraphs(node))]


def _is_sorted(scope: _Scope) -> bool:
    order = _order(scope)
    return order == sorted(order)


def _sort(scope: _Scope) -> bool:
    """Sort the nodes of one graph. Returns whether any moved; none do if they form a cycle."""
    order = _order(scope)
    if len(order) < len(scope.node) or order == sorted(order):
        return False
    nodes = [type(node).FromString(node.SerializeToString()) for node in map(scope.node.__getitem__, order)]
    del scope.node[:]
    scope.node.extend(nodes)
    return True


def _order(scope: _Scope) -> list[int]:
    """The numbers of the nodes in topological order, without those in and behind a cycle."""
    makers = {name: number for number, node in enumerate(scope.node) for name in node.output if name}
    users: dict[int, list[int]] = defaultdict(list)
    waiting = []
    for number, node in enumerate(scope.node):
        operands = {makers[name] for name in _read(node) if name in makers}
        waiting.append(len(operands))
        for maker in operands:
            users[maker].append(number)
    ready = [number for number, count in enumerate(waiting) if not count]
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for user in users[order[-1]]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    return order


def _read(node: onnx.NodeProto) -> set[str]:
    """The names that a node reads, and those that the graphs inside of it read, their own included."""
    inside = [other for other in walk([node]) if other is not node] if node.attribute else []
    graphs = [graph for one in (node, *inside) for graph in subgraphs(one)]
    results = [info.name for graph in graphs for info in graph.output]
    return {*node.input, *results, *(name for one in inside for name in one.input)}
