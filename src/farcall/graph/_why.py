"""Who was asked about a node, what each said, and who got it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall._texts import count
from farcall.graph._annotate import Answer, describe_node
from farcall.graph._control import CONTROL
from farcall.graph._expand import Expansion, origin
from farcall.graph._region import Match, Region

if TYPE_CHECKING:
    from farcall.graph._partition import Partition


@dataclass(frozen=True)
class Verdict:
    """What one backend has to do with a node.

    ``said`` is a word: ``takes``, ``kept`` (it takes it, against a least size), ``measured`` (what was
    measured decided), ``refused``, ``lost`` (a match that overlaps one that was taken before), ``excluded``,
    ``pinned`` (to another one), ``gave up``, ``too small``, or ``not asked``.
    """

    backend: str
    said: str
    text: str


@dataclass(frozen=True)
class Why:
    """Why a node is in its region. ``str`` gives all of it as text.

    ``verdicts`` are in the backends' order of priority. ``others`` are the further nodes of its match.
    ``origin`` is the node from whose definition by other operators it is, if it is from one. A node that was
    replaced by its definition has no backend and no region, and ``others`` are its parts.
    """

    node: str
    operator: str
    about: str
    backend: str
    region: str
    pattern: str
    others: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    origin: str = ""

    @property
    def reason(self) -> str:
        """What decided, in a few words."""
        if not self.region:
            return f"expanded into {count(len(self.others), 'node')}"
        mine = [one for one in self.verdicts if one.backend == self.backend]
        return "; ".join(one.text for one in mine if one.said in ("takes", "kept", "measured"))

    def __str__(self) -> str:
        wide = max(len(one.backend) for one in self.verdicts)
        lines = [self.about, f"  {self._where()}"]
        if self.origin:
            lines.append(f"  from the definition of node `{self.origin}`")
        lines += [f"  {one.backend:{wide}}  {one.said}: {one.text}" for one in self.verdicts]
        return "\n".join(lines)

    def _where(self) -> str:
        if self.region:
            return f"in region `{self.region}` of backend `{self.backend}`"
        return f"replaced by its definition: {_listed(self.others)}"


def whys(partition: Partition) -> list[Why]:
    """The answer for every node, in the order of the model, with those that were expanded or are inside."""
    inner = [why for body in partition.bodies() for why in _whys(body.partition)]
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
    there = {why.node for why in nodes} | partition.expansions.keys()
    return nodes + [_expanded(item, names, there) for item in partition.expansions.values()]


def _expanded(item: Expansion, names: Sequence[str], there: Collection[str]) -> Why:
    parts = tuple(name for name in item.nodes if name in there)  # others are folded
    verdicts = sorted((Verdict(*one) for one in item.answers), key=lambda one: names.index(one.backend))
    return Why(item.node, item.operator, item.about, "", "", "", parts, tuple(verdicts), item.origin)


def _why(node: ir.Node, region: Region, match: Match, names: Sequence[str], answers: Sequence[Answer]) -> Why:
    by_backend: dict[str, list[Verdict]] = {name: [] for name in names}
    for answer in answers:
        by_backend[answer.backend].append(Verdict(*answer))
    pinned = any(answer.said == "pinned" for answer in answers)
    how = "as a single node" if len(match.nodes) == 1 and match.pattern == node.op_type else _how(match)
    if pinned:
        how += "; the node is pinned to it"
    by_backend[region.backend].append(Verdict(region.backend, "takes", how))
    for name in names[names.index(region.backend) + 1 :]:
        if name != CONTROL and not any(one.said not in ("lost", "refused") for one in by_backend[name]):
            text = f"`{region.backend}` has taken the node, and comes first"
            by_backend[name].append(Verdict(name, "not asked", text))
    others = tuple(one.name or "" for one in match.nodes if one is not node)
    return Why(
        node.name or "",
        node.op_type,
        describe_node(node),
        region.backend,
        region.name,
        match.pattern,
        others,
        tuple(verdict for name in names for verdict in by_backend[name]),
        origin(node),
    )


_LISTED = 5  # nodes of a match that a text names


def _how(match: Match) -> str:
    return f"pattern {match.pattern} ({_listed([node.name or '' for node in match.nodes])})"


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(f"`{name}`" for name in names[:_LISTED]) + rest


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
        said[item.node].append(f"{item.operator} expanded: {_listed(item.nodes)}")
    nodes = {
        name: tuple(texts.setdefault(text, len(texts)) for text in found) for name, found in said.items()
    }
    return tuple(texts), nodes
