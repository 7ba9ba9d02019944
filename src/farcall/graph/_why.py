"""Who was asked about a node, what each said, and who got it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.graph._annotate import Answer, describe_node
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
    """

    node: str
    operator: str
    about: str
    backend: str
    region: str
    pattern: str
    others: tuple[str, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def reason(self) -> str:
        """What decided, in a few words."""
        mine = [one for one in self.verdicts if one.backend == self.backend]
        return "; ".join(one.text for one in mine if one.said in ("takes", "kept", "measured"))

    def __str__(self) -> str:
        wide = max(len(one.backend) for one in self.verdicts)
        lines = [self.about, f"  in region `{self.region}` of backend `{self.backend}`"]
        lines += [f"  {one.backend:{wide}}  {one.said}: {one.text}" for one in self.verdicts]
        return "\n".join(lines)


def whys(partition: Partition) -> dict[ir.Node, Why]:
    """The answer for every node, in the order of the model."""
    found = {
        node: (region, match)
        for region in partition.regions
        for match in region.matches
        for node in match.nodes
    }
    names = list(partition.colors)
    return {
        node: _why(node, *found[node], names, partition.answers.get(node, ()))
        for node in partition.model.graph
    }


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
        if not any(one.said not in ("lost", "refused") for one in by_backend[name]):
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
    )


_LISTED = 5  # nodes of a match that a text names


def _how(match: Match) -> str:
    names = [f"`{node.name}`" for node in match.nodes[:_LISTED]]
    rest = f" and {len(match.nodes) - _LISTED:,} more" if len(match.nodes) > _LISTED else ""
    return f"pattern {match.pattern} ({', '.join(names)}{rest})"


def interned(
    answers: Mapping[ir.Node, Sequence[Answer]],
) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]]]:
    """The answers for a manifest: each different text once; and the indices of the texts of nodes."""
    texts: dict[str, int] = {}
    nodes = {
        node.name or "": tuple(
            texts.setdefault(f"{one.backend} {one.said}: {one.text}", len(texts)) for one in said
        )
        for node, said in answers.items()
    }
    return tuple(texts), nodes
