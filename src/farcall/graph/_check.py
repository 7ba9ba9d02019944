"""The rules of a partition, checked in a slow, obvious way: for tests, and for new partitioners."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from farcall.graph._partition import Partition
from farcall.graph._region import Region, is_constant, reads


def check_partition(partition: Partition) -> None:
    """Raise unless every rule of a partition holds.

    Raises:
        AssertionError: The message names the rule, the region and the nodes.
    """
    problems = list(violations(partition))
    if problems:
        raise AssertionError("\n".join(problems[:10]) + f"\n{partition}")


def violations(partition: Partition) -> Iterator[str]:
    """Every breach of a rule, as text."""
    names = [region.name for region in partition.all_regions]
    yield from (f"two regions are called {name}" for name in set(names) if names.count(name) > 1)
    for part in (partition, *(body.partition for body in partition.bodies())):
        yield from _violations(part)


def _violations(partition: Partition) -> Iterator[str]:
    nodes = list(partition.model.graph)
    home: dict[ir.Node, Region] = {}
    for region in partition.regions:
        for node in region.nodes:
            if node in home:
                yield f"`{node.name}` is in {home[node].name} and in {region.name}"
            home[node] = region
    yield from (f"`{node.name}` is in no region" for node in nodes if node not in home)
    for region in partition.regions:
        yield from _connected(region)
        yield from _convex(region, nodes)
        yield from _border(region, partition)
    yield from _runnable(partition)


def _connected(region: Region) -> Iterator[str]:
    inside = set(region.nodes)
    near: dict[ir.Node, set[ir.Node]] = {node: set() for node in inside}
    for node in inside:
        for source in _producers(node):
            if source in inside:
                near[node].add(source)
                near[source].add(node)
    reached = _closure([region.nodes[0]], near)
    if reached != inside:
        yield f"{region.name} is not connected: {_names(reached)} apart from {_names(inside - reached)}"


def _convex(region: Region, nodes: list[ir.Node]) -> Iterator[str]:
    """No path leaves the region and enters it again."""
    inside = set(region.nodes)
    tainted: set[ir.Node] = set()  # nodes outside that depend on a node inside, directly or not
    for node in nodes:
        sources = set(_producers(node))
        if node in inside:
            if back := sources & tainted:
                yield f"{region.name} is not convex: `{node.name}` reads {_names(back)}"
        elif sources & (inside | tainted):
            tainted.add(node)


def _border(region: Region, partition: Partition) -> Iterator[str]:
    inside = set(region.nodes)
    made = {value for node in inside for value in node.outputs}
    read = {value for node in inside for value in reads(node)} - made
    outputs = set(partition.model.graph.outputs)
    seen = {value for node in partition.model.graph if node not in inside for value in reads(node)} | outputs
    for what, given, expected in (
        ("inputs", region.inputs, {value for value in read if not is_constant(value)}),
        ("constants", region.constants, {value for value in read if is_constant(value)}),
        ("outputs", region.outputs, made & seen),
    ):
        if len(given) != len(set(given)) or set(given) != expected:
            yield f"{what} of {region.name}: expected {_names(expected)}, got {_names(given)}"


def _runnable(partition: Partition) -> Iterator[str]:
    """The order of regions, and of nodes in each, makes every value before it is read."""
    graph = partition.model.graph
    known = {*graph.inputs, *graph.initializers.values()}
    for region in partition.regions:
        for node in region.nodes:
            if missing := set(reads(node)) - known:
                yield f"{region.name}: `{node.name}` reads {_names(missing)} too early"
            known.update(node.outputs)


def _producers(node: ir.Node) -> list[ir.Node]:
    return [source for value in reads(node) if (source := value.producer()) is not None]


def _closure(start: Iterable[ir.Node], near: dict[ir.Node, set[ir.Node]]) -> set[ir.Node]:
    found = set(start)
    todo = list(found)
    while todo:
        for node in near[todo.pop()] - found:
            found.add(node)
            todo.append(node)
    return found


def _names(items: Iterable[ir.Node | ir.Value]) -> str:
    return "{" + ", ".join(sorted(f"`{item.name}`" for item in items)) + "}"
