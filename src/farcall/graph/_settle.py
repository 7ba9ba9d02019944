"""Cuts a model into regions that their backends accept.

Nodes are assigned and merged; then every backend sees its regions. What a backend gives up, or loses because
a region is smaller than its least size, it cannot get again; so the next backends are asked, and all is
assigned and merged again, until nobody gives up anything.

A node that nobody takes is replaced by ONNX's definition of its operator, if there is one, and all begins
anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from farcall._blame import blame
from farcall._texts import count
from farcall.errors import BackendError
from farcall.graph._annotate import (
    Answer,
    Answers,
    Assignment,
    Claim,
    Claims,
    Memory,
    annotate,
    check_names,
)
from farcall.graph._control import fails, is_control
from farcall.graph._expand import Expansion, expand, origin
from farcall.graph._merge import merge
from farcall.graph._model import GONE
from farcall.graph._region import Match, Region, is_constant, reads
from farcall.graph._rules import Rules, resolve
from farcall.graph._unsupported import unsupported
from farcall.graph.dims import late
from farcall.library._why import CONTROL

_CUTS = 8  # rounds in which a backend may cut regions; later it takes or refuses them whole
_ROUNDS = 64

Reads = Mapping[ir.Node, tuple[ir.Value, ...]]  # the values that each node reads


@dataclass
class Settling:
    """The cuts of one model. Backends' answers are kept between them.

    ``model`` is another one as soon as nodes were expanded, which ``expansions`` has by name. The backend
    ``control`` takes part only if the model has nodes for it. ``inner``: the model is a graph inside of a
    node of another one, whose rules mean nodes of both.
    """

    model: ir.Model
    backends: Sequence[Claims]
    memory: Memory = field(default_factory=Memory)
    expansions: dict[str, Expansion] = field(default_factory=dict)
    inner: bool = False

    def __post_init__(self) -> None:
        check_names(self.backends)
        self._given = list(self.backends)
        self._read_nodes()

    def _read_nodes(self) -> None:
        self._nodes = list(self.model.graph)
        self._reads: Reads = {node: reads(node) for node in self._nodes}
        has_control = any(is_control(node) or fails(node) for node in self._nodes)
        self.backends = [one for one in self._given if has_control or one.name != CONTROL]
        self._names = [backend.name for backend in self.backends]

    def settle(
        self, rules: Rules, more: Mapping[ir.Node, Sequence[Answer]] | None = None
    ) -> tuple[tuple[Region, ...], Answers]:
        """The regions in an order in which they can run, and what backends said about nodes.

        Args:
            rules: Pins, exclusions and least sizes.
            more: For nodes, backends that cannot get them, and why.

        Raises:
            UnsupportedOperatorError: No backend takes a node.
            BackendError: A backend's code is at fault.
            UsageError: A rule names what is not there.
        """
        part = self.inner or CONTROL in self._names
        gone = self.model.meta.get(GONE, ())
        bans, least, free_of_least = resolve(
            rules, self._nodes, self.backends, self._expanded(), gone, part=part
        )
        own = set(self._nodes) & more.keys() if more else set()
        for node in own:
            for answer in (more or {})[node]:
                bans[self._names.index(answer.backend)].setdefault(node, answer)
        for number in range(_ROUNDS):
            found = annotate(self._nodes, self.backends, bans, self.memory)
            if found.missing:
                if self._waive(found, bans, free_of_least):
                    continue
                if own or not self._expand(found):
                    raise unsupported(found.missing, found.answers, self.backends, self.expansions)
                return self.settle(rules)
            regions = self._regions(found.claims)
            given_up = [
                (node, answer)
                for region in regions
                for node, answer in self._given_up(region, least, free_of_least, cuts=number < _CUTS)
            ]
            if not given_up:
                self._note_small(regions, least, found.answers)
                return regions, found.answers
            for node, answer in given_up:
                bans[self._names.index(answer.backend)][node] = answer
        raise BackendError(
            f"after {_ROUNDS} rounds, backend `{given_up[0][1].backend}` still gives up nodes that it claims "
            f"({given_up[0][1].text}); let its check() refuse them"
        )

    def _waive(
        self, found: Assignment, bans: Sequence[dict[ir.Node, Answer]], free_of_least: set[ir.Node]
    ) -> bool:
        """Give nodes that nobody else takes back to a backend for whose regions they were too few.

        And give a node with graphs inside, which is pinned to a backend that does not take it as a whole, to
        ``control``: the pin may be a pattern, which means the nodes inside, too.
        """
        may_return = [("too small", name) for name in self._names] + [("pinned", CONTROL)]
        waived = [
            (node, ban)
            for node in found.missing
            for ban in bans
            if node in ban and (ban[node].said, ban[node].backend) in may_return
        ]
        for node, ban in waived:
            del ban[node]
            free_of_least.add(node)
        return bool(waived)

    def _expand(self, found: Assignment) -> bool:
        """Replace nodes that nobody takes by their definitions; whether any has one."""
        self.model, new = expand(self.model, found.missing, found.answers)
        if new:
            self.expansions.update(new)
            self.memory = Memory()  # its nodes are those of the old model
            self._read_nodes()
        return bool(new)

    def _expanded(self) -> dict[str, list[ir.Node]]:
        """The nodes that came from each node that was expanded, at any depth."""
        result: dict[str, list[ir.Node]] = {name: [] for name in self.expansions}
        for node in self._nodes if result else ():
            name = origin(node)
            while name:
                result[name].append(node)
                name = self.expansions[name].origin
        return result

    def _regions(self, claims: Sequence[Claim]) -> tuple[Region, ...]:
        sources = _sources(claims, self._reads)
        groups = merge(sources, self._kinds(claims, sources))
        counts = dict.fromkeys(self._names, 0)
        regions = []
        for group in groups:
            backend = self._names[claims[group[0]].backend]
            members = [claims[item].match for item in group]
            regions.append(_region(f"{backend}_{counts[backend]}", backend, members, self._reads))
            counts[backend] += 1
        return tuple(regions)

    def _kinds(self, claims: Sequence[Claim], sources: Sequence[Sequence[int]]) -> list[int]:
        """For each claim a number: claims of one number may share a region.

        It stands for the backend, and for how often outputs were allocated on the way to the claim, if the
        backend's regions end at such outputs. A node with graphs inside is alone.
        """
        ends = [backend.ends_at_late for backend in self.backends]
        ending = [ends[claim.backend] and any(map(late, claim.match.root.outputs)) for claim in claims]
        depth = [0] * len(claims)
        for item, read in enumerate(sources if any(ending) else ()):
            depth[item] = max([depth[source] + ending[source] for source in read], default=0)
        alone = [backend.name == CONTROL for backend in self.backends]
        kinds: dict[tuple[int, int, int], int] = {}
        return [
            kinds.setdefault(
                (claim.backend, ends[claim.backend] * steps, alone[claim.backend] * index), len(kinds)
            )
            for index, (claim, steps) in enumerate(zip(claims, depth, strict=True))
        ]

    def _given_up(
        self, region: Region, least: Sequence[int], free_of_least: set[ir.Node], *, cuts: bool
    ) -> Iterable[tuple[ir.Node, Answer]]:
        """The nodes of a region that its backend cannot keep."""
        index, nodes = self._names.index(region.backend), region.nodes
        if len(nodes) < least[index] and free_of_least.isdisjoint(nodes):
            text = f"a region of {count(len(nodes), 'node')}; at least {least[index]} are wanted"
            return [(node, Answer(region.backend, "too small", text)) for node in nodes]
        said = self._accepted(index, region)
        if said is None:
            return ()
        if isinstance(said, str):
            text = f"refuses the region of {count(len(nodes), 'node')}: {said}"
            return [(node, Answer(region.backend, "gave up", text)) for node in nodes]
        kept = {node for match in said for node in match.nodes} if cuts else set()
        text = f"keeps {len(said)} of the {len(region.matches)} matches of a region"
        return [(node, Answer(region.backend, "gave up", text)) for node in nodes if node not in kept]

    def _accepted(self, index: int, region: Region) -> str | Sequence[Match] | None:
        """The answer of a backend's ``accept``, which is checked."""
        key = (index, region.nodes)
        answers = self.memory.regions
        if key not in answers:
            where = f"backend `{region.backend}`: its accept() of region `{region.name}`"
            with blame(lambda: where):
                said = self.backends[index].accept(region)
                if isinstance(said, Iterable) and not isinstance(said, str):
                    said = list(said)
            if not (said is None or isinstance(said, str) or _are_of(region, said)):
                raise BackendError(
                    f"{where} gave {_in_short(said)}; expected None, a reason as text, or some of "
                    "region.matches"
                )
            answers[key] = said
        return answers[key]

    def _note_small(self, regions: Iterable[Region], least: Sequence[int], answers: Answers) -> None:
        for region in regions:
            wanted = least[self._names.index(region.backend)]
            nodes = region.nodes if wanted > 1 else ()
            if nodes and len(nodes) < wanted:
                text = f"although its region has fewer than {wanted} nodes: no other backend may take it"
                for node in nodes:
                    answers.setdefault(node, []).append(Answer(region.backend, "kept", text))


def _are_of(region: Region, matches: object) -> bool:
    return isinstance(matches, list) and set(map(id, region.matches)).issuperset(map(id, matches))


def _in_short(matches: object) -> str:
    """What was given in place of matches of a region. The text of a Match has pages."""
    if not isinstance(matches, list):
        return repr(matches)
    other = next((one for one in matches if not isinstance(one, Match)), None)
    return "matches of others" if other is None else f"a list with a {type(other).__name__}"


def _sources(claims: Sequence[Claim], read: Reads) -> list[list[int]]:
    """For each claim, the claims that it reads from."""
    maker = {
        value: index
        for index, claim in enumerate(claims)
        for node in claim.match.nodes
        for value in node.outputs
    }
    result = []
    for index, claim in enumerate(claims):
        nodes = claim.match.nodes
        found = {maker[value] for node in nodes for value in read[node] if value in maker}
        found.discard(index)
        result.append(sorted(found) if len(found) > 1 else list(found))
    return result


def _region(name: str, backend: str, matches: Sequence[Match], read: Reads) -> Region:
    nodes = {node: None for match in matches for node in match.nodes}
    own = {value for node in nodes for value in node.outputs}
    entering = dict.fromkeys(value for node in nodes for value in read[node] if value not in own)
    return Region(
        name,
        backend,
        tuple(matches),
        inputs=tuple(value for value in entering if not is_constant(value)),
        outputs=tuple(value for node in nodes for value in node.outputs if _leaves(value, nodes)),
        constants=tuple(filter(is_constant, entering)),
    )


def _leaves(value: ir.Value, nodes: Mapping[ir.Node, None]) -> bool:
    """Whether a value of these nodes is read outside them. A read in a subgraph counts as outside."""
    if value.is_graph_output():
        return True
    for user, _ in value.uses():  # noqa: SIM110 - a loop takes half of the time of any()
        if user not in nodes:
            return True
    return False
