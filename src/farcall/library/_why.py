"""Who was asked about a node, what each said, and who got it: in plans, and in manifests of artifacts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import TypeVar

from farcall._suggest import did_you_mean
from farcall._texts import count
from farcall.errors import UsageError

_T = TypeVar("_T")

CONTROL = "control"  # the backend of If, Loop and Scan: it is asked about no others

_LISTED = 5  # nodes of a match that a text names


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
        return f"replaced by its definition: {listed(self.others)}"


@dataclass(frozen=True)
class Taken:
    """Nodes that a backend took together: their operators by name, and the pattern that they match.

    The pattern of a single node is its operator.
    """

    region: str
    backend: str
    pattern: str
    nodes: Mapping[str, str]

    def how(self) -> str:
        """In words."""
        if list(self.nodes.values()) == [self.pattern]:
            return "as a single node"
        return f"pattern {self.pattern} ({listed(list(self.nodes))})"


def why(
    node: str, about: str, taken: Taken, names: Sequence[str], said: Sequence[Verdict], origin: str
) -> Why:
    """Why a node is where it is.

    Args:
        node: its name.
        about: what errors call it.
        taken: the match that it is in.
        names: the backends, in order of priority.
        said: the answers of those that did not get it, in order.
        origin: the node from whose definition it is, or empty.
    """
    by_backend: dict[str, list[Verdict]] = {name: [] for name in names}
    for verdict in said:
        by_backend[verdict.backend].append(verdict)
    pinned = "; the node is pinned to it" * any(one.said == "pinned" for one in said)
    by_backend[taken.backend].append(Verdict(taken.backend, "takes", taken.how() + pinned))
    for name in names[names.index(taken.backend) + 1 :]:
        if name != CONTROL and not any(one.said not in ("lost", "refused") for one in by_backend[name]):
            text = f"`{taken.backend}` has taken the node, and comes first"
            by_backend[name].append(Verdict(name, "not asked", text))
    return Why(
        node,
        taken.nodes[node],
        about,
        taken.backend,
        taken.region,
        taken.pattern,
        tuple(name for name in taken.nodes if name != node),
        tuple(verdict for name in names for verdict in by_backend[name]),
        origin,
    )


def listed(names: Sequence[str]) -> str:
    """Names of nodes, at most some of them."""
    rest = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(f"`{name}`" for name in names[:_LISTED]) + rest


def matching(text: str, named: Mapping[str, _T], where: str = "") -> list[_T]:
    """The items whose name is ``text``, or matches it as a pattern.

    Raises:
        UsageError: There are none; the message has a name that resembles ``text``.
    """
    if text in named:
        return [named[text]]
    expression = re.compile(translate(text))
    found = [item for name, item in named.items() if expression.match(name)]
    if not found:
        some = ", ".join(f"`{name}`" for name in list(named)[:3])
        inside = next((f"; did you mean `{name}`?" for name in named if name.endswith(f"/{text}")), "")
        hint = (
            inside
            or did_you_mean(text, named)
            or f"; the model's nodes are {some}{', ...' * (len(named) > 3)}"
        )
        raise UsageError(f"{where}no node is called `{text}`{hint}")
    return found
