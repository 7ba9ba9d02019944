"""Who was asked about a node of a model, what each said, and who got it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.graph._annotate import Answer, describe_node
from farcall.graph._expand import Expansion, origin
from farcall.graph._region import Match, Region
from farcall.library._why import Taken, Verdict, Why, listed, why

if TYPE_CHECKING:
    from farcall.graph._partition import Partition


def whys(partition: Partition) -> list[Why]:
    """The answer for every node, in the order of the model, with those that were expanded or are inside."""
    inner = [one for body in partition.bodies() for one in _whys(body.partition)]
    return [*_whys(partition), *inner]


def _whys(partition: Partition) -> list[Why]:
    found = {
        node: (region, match)
        for region in partition.regions
        for match in region.matches
        for node in match.nodes
    }
    names = list(partition.colors)
    nodes = [
        _why(node, *found[node], names, partition.answers.get(node, ())) for node in partition.model.graph
    ]
    return nodes + _replaced(partition)


def replaced(partition: Partition) -> list[Why]:
    """The answer for every node that was replaced by its definition."""
    return [
        one
        for part in (partition, *(body.partition for body in partition.bodies()))
        for one in _replaced(part)
    ]


def _replaced(partition: Partition) -> list[Why]:
    if not partition.expansions:
        return []
    there = {node.name or "" for node in partition.model.graph} | partition.expansions.keys()
    return [_expanded(item, list(partition.colors), there) for item in partition.expansions.values()]


def _expanded(item: Expansion, names: Sequence[str], there: Collection[str]) -> Why:
    parts = tuple(name for name in item.nodes if name in there)  # others are folded
    verdicts = sorted((Verdict(*one) for one in item.answers), key=lambda one: names.index(one.backend))
    return Why(item.node, item.operator, item.about, "", "", "", parts, tuple(verdicts), item.origin)


def _why(node: ir.Node, region: Region, match: Match, names: Sequence[str], answers: Sequence[Answer]) -> Why:
    nodes = {one.name or "": one.op_type for one in match.nodes}
    taken = Taken(region.name, region.backend, match.pattern, nodes)
    said = [Verdict(*answer) for answer in answers]
    return why(node.name or "", describe_node(node), taken, names, said, origin(node))


def interned(
    answers: Mapping[ir.Node, Sequence[Answer]], expansions: Iterable[Expansion] = ()
) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]]]:
    """The answers for a manifest: each different text once; and the indices of the texts of nodes.

    Those of a node that was replaced by its definition end with the names of its parts.
    """
    texts: dict[str, int] = {}
    said = {
        node.name or "": [f"{one.backend} {one.said}: {one.text}" for one in found]
        for node, found in answers.items()
    }
    for item in expansions:
        said[item.node] = [f"{one.backend} {one.said}: {one.text}" for one in item.answers]
        said[item.node].append(f"{item.operator} expanded: {listed(item.nodes)}")
    nodes = {
        name: tuple(texts.setdefault(text, len(texts)) for text in found) for name, found in said.items()
    }
    return tuple(texts), nodes
