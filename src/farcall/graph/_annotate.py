"""Assigns nodes to backends. Each, by priority, claims matches of its patterns, then single nodes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

import onnx_ir as ir

from farcall._blame import blame
from farcall.errors import BackendError, UsageError
from farcall.graph._control import fails, is_control
from farcall.graph._objects import OBJECTS, objects
from farcall.graph._pattern import Pattern, kind_of
from farcall.graph._pattern_text import Operator
from farcall.graph._region import Match, Region
from farcall.graph.dims import LATE, UnknownShapeError, dtype_name, is_identifier, late
from farcall.library._why import CONTROL


class Claims(Protocol):
    """The part of a backend that partitioning uses."""

    @property
    def name(self) -> str:
        """The domain and the name prefix of the backend's regions: a short C identifier."""

    @property
    def color(self) -> str:
        """The backend's colour in pictures, as CSS."""

    @property
    def min_nodes(self) -> int:
        """The least number of nodes of a region."""

    def patterns(self) -> Sequence[Pattern]:
        """Groups of nodes that the backend takes together, in order of priority."""

    @property
    def allocates(self) -> bool:
        """Whether its regions allocate outputs whose shapes are known only then."""

    @property
    def in_process(self) -> bool:
        """Whether a package in the process that loads the artifact computes its regions."""

    @property
    def ends_at_late(self) -> bool:
        """Whether such an output leaves its region before anything reads it."""

    def check(self, node: ir.Node) -> str | None:
        """The reason why the backend does not take the single ``node``; None if it does."""

    def accept(self, region: Region) -> str | Sequence[Match] | None:
        """None: the backend takes the whole region; else the matches that it keeps, or why it keeps none."""


class Claim(NamedTuple):
    """A match, and the index of the backend that claims it."""

    match: Match
    backend: int


Said: TypeAlias = Literal["refused", "lost", "excluded", "pinned", "gave up", "too small", "kept", "measured"]


class Answer(NamedTuple):
    """What kept a backend from a node, or made it keep it: in one word, and as text."""

    backend: str
    said: Said
    text: str


Answers: TypeAlias = dict[ir.Node, list[Answer]]  # in the order in which they came
Bans: TypeAlias = Sequence[Mapping[ir.Node, Answer]]  # for each backend: nodes that it cannot get, and why


@dataclass
class Memory:
    """What backends have answered, so that nobody is asked the same thing twice."""

    checks: dict[tuple[int, str, tuple[ir.Node, ...]], str | None] = field(default_factory=dict)
    regions: dict[tuple[int, tuple[ir.Node, ...]], str | Sequence[Match] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Assignment:
    """The claims in the order of their last nodes, the nodes that nobody takes, and the answers.

    It is a topological order of the claims, because only the outputs of its last node leave a match.
    """

    claims: Sequence[Claim]
    missing: Sequence[ir.Node]
    answers: Answers


def annotate(nodes: Sequence[ir.Node], backends: Sequence[Claims], bans: Bans, memory: Memory) -> Assignment:
    """Give every node to one backend.

    A backend's patterns come before its single nodes, and one pattern is matched everywhere before the next.

    Args:
        nodes: In topological order.
        backends: In order of priority.
        bans: For each backend, nodes that it cannot get.
        memory: Answers of earlier calls; gets those of this one.

    Raises:
        BackendError: A backend's code raised an exception; the message names the node.
    """
    annotator = _Annotator(nodes, [backend.name for backend in backends], memory)
    for index, backend in enumerate(backends):
        annotator.offer(index, backend, bans[index])
    found = annotator.claims
    owned = [(node, found[node]) for node in nodes if node in found]
    return Assignment(
        [claim for node, claim in owned if claim.match.root is node],
        [node for node in nodes if node not in found],
        annotator.answers,
    )


def check_names(backends: Sequence[Claims]) -> None:
    """Raise a UsageError if there are no backends, or they cannot be told apart."""
    if not backends:
        raise UsageError("expected at least one backend, got none; pass backends=['c']")
    names = [backend.name for backend in backends]
    for name in names:
        if not is_identifier(name):
            raise UsageError(f"expected a C identifier as a backend's name, got {name!r}")
        if names.count(name) > 1:
            raise UsageError(f"backend `{name}` is given twice; give each backend once")


class _Annotator:
    def __init__(self, nodes: Sequence[ir.Node], names: Sequence[str], memory: Memory) -> None:
        self.names = names
        self._nodes = nodes
        self._by_kind: dict[tuple[str, str], list[ir.Node]] = {}
        self._place = {node: place for place, node in enumerate(nodes)}
        for node in nodes:
            self._by_kind.setdefault(kind_of(node), []).append(node)
        facts = nodes[0].graph.meta if nodes and nodes[0].graph is not None else {}
        self._has_late = bool(facts.get(LATE))  # dims that are known only when the model runs
        self._has_objects = facts.get(OBJECTS) is not False
        self._memory = memory
        self.claims: dict[ir.Node, Claim] = {}
        self.answers: Answers = {}

    def offer(self, index: int, backend: Claims, bans: Mapping[ir.Node, Answer]) -> None:
        """Let a backend claim the nodes that are still free."""
        for node, answer in bans.items():
            self._note((node,), answer)
        for pattern in _patterns(backend):
            for root in pattern.roots:
                _PatternOffer(self, index, backend, bans, pattern, root).run(self._roots(root))
        own = backend.name == CONTROL
        for node in self._nodes:
            if own and not (is_control(node) or fails(node)):
                continue
            if node not in self.claims and node not in bans:
                self.decide(index, backend, Match(node.op_type, (node,)), None)

    def _roots(self, root: Operator) -> Sequence[ir.Node]:
        """The nodes that can be the outermost one; of chains, the last one first."""
        kinds = [self._by_kind.get(kind, []) for kind in root.kinds]
        found = kinds[0] if len(kinds) == 1 else [node for nodes in kinds for node in nodes]
        if len(kinds) > 1 or root.repeated:
            return sorted(found, key=self._place.__getitem__, reverse=root.repeated)
        return found

    def decide(self, index: int, backend: Claims, match: Match, pattern: Pattern | None) -> None:
        """Ask the backend whether it takes a match, all of whose nodes are free."""
        key = (index, pattern.name if pattern else "", match.nodes)
        checks = self._memory.checks
        if key not in checks:
            checks[key] = self._unfit(backend, match) or _ask(backend, match, pattern)
        reason = checks[key]
        if reason is None:
            self.claims.update(dict.fromkeys(match.nodes, Claim(match, index)))
        else:
            prefix = f"pattern {pattern.name}: " if pattern else ""
            self._note(match.nodes, Answer(backend.name, "refused", prefix + reason))

    def _unfit(self, backend: Claims, match: Match) -> str | None:
        """Why a backend of this kind cannot have such nodes, without asking it; None if it can."""
        if self._has_objects and not backend.in_process and (value := _object(match)):
            about = f"`{describe_value(value)}` is no tensor of numbers"
            return f"{about}: only onnxruntime and reference take such values"
        if self._has_late and not backend.allocates:
            unknown = [value for node in match.nodes for value in node.outputs if late(value)]
            return _late_shape(unknown[0]) if unknown else None
        return None

    def lose(self, backend: str, pattern: Pattern, match: Match, why: str) -> None:
        """Note that a match went to nobody, or to another one."""
        self._note(match.nodes, Answer(backend, "lost", f"pattern {pattern.name}: {why}"))

    def _note(self, nodes: Iterable[ir.Node], answer: Answer) -> None:
        for node in nodes:
            self.answers.setdefault(node, []).append(answer)


@dataclass(frozen=True)
class _PatternOffer:
    """Offers the matches of one pattern to its backend, and tells it those that overlap others."""

    annotator: _Annotator
    index: int
    backend: Claims
    bans: Mapping[ir.Node, Answer]
    pattern: Pattern
    root: Operator

    def run(self, roots: Iterable[ir.Node]) -> None:
        """Offer the longest matches first; then, where nodes were taken, what is left of them."""
        whole: set[ir.Node] = set()
        lost: set[ir.Node] = set()
        for node in roots:
            if node in whole or self._is_ours(node):
                continue
            match = self.pattern.match_root(self.root, node, seen=whole if self.root.repeated else None)
            if match is None:
                continue
            blocking = next(filter(self._is_taken, match.nodes), None)
            if blocking is None:
                self._decide(match)
            else:
                lost.update(match.nodes)
                self.annotator.lose(self.backend.name, self.pattern, match, self._why_taken(blocking))
        if lost and self.pattern.flexible:
            self._offer_rests([node for node in roots if node in lost])

    def _offer_rests(self, roots: Iterable[ir.Node]) -> None:
        taken = _Taken(self)
        rests: set[ir.Node] = set()
        for node in roots:
            if node not in rests and node not in taken:
                seen = rests if self.root.repeated else None
                match = self.pattern.match_root(self.root, node, taken, seen)
                if match is not None:
                    self._decide(match)

    def _decide(self, match: Match) -> None:
        self.annotator.decide(self.index, self.backend, match, self.pattern)

    def _is_ours(self, node: ir.Node) -> bool:
        """Whether the node is in a match of this flexible pattern, of which its own match is a part."""
        claim = self.annotator.claims.get(node) if self.pattern.flexible else None
        return claim is not None and claim.backend == self.index and claim.match.pattern == self.pattern.name

    def _is_taken(self, node: ir.Node) -> bool:
        return node in self.annotator.claims or node in self.bans

    def _why_taken(self, node: ir.Node) -> str:
        claim = self.annotator.claims.get(node)
        if claim is None:
            return f"without `{node.name}`: {self.bans[node].text}"
        names = self.annotator.names
        how = "the single node" if len(claim.match.nodes) == 1 else f"pattern {claim.match.pattern}"
        return f"`{names[claim.backend]}` has taken `{node.name}` before ({how})"


class _Taken(Container[ir.Node]):
    """The nodes that a pattern's matches cannot have, as a collection."""

    def __init__(self, offer: _PatternOffer) -> None:
        self._claims, self._bans = offer.annotator.claims, offer.bans

    def __contains__(self, node: object) -> bool:
        return node in self._claims or node in self._bans


def _patterns(backend: Claims) -> Sequence[Pattern]:
    where = f"backend `{backend.name}`: its patterns()"
    with blame(lambda: where):
        try:
            found = list(backend.patterns())
        except UsageError as error:  # of a pattern whose text is not one
            raise BackendError(f"{where}: {error}") from error
    for item in found:
        if not isinstance(item, Pattern):
            raise BackendError(f"{where} gave {item!r}; expected farcall.graph.Pattern")
    return sorted(found, key=lambda pattern: -pattern.priority)


def _ask(backend: Claims, match: Match, pattern: Pattern | None) -> str | None:
    """The backend's reason to refuse a match; None if it takes it."""
    if pattern is not None and pattern.check is None:
        return None

    def where() -> str:
        prefix = f"pattern {pattern.name}: " if pattern else ""
        return f"backend `{backend.name}`, {prefix}its check of {describe_node(match.root)}"

    try:
        with blame(where):
            if pattern is not None and pattern.check is not None:
                reason: object = pattern.check(match)
            else:
                reason = backend.check(match.root)
    except UnknownShapeError as error:
        return str(error)
    if reason is not None and not isinstance(reason, str):
        raise BackendError(f"{where()} gave {reason!r}; expected None, or why not as text")
    return reason


def _object(match: Match) -> ir.Value | None:
    """A value that nodes read or make, and that is no tensor of numbers."""
    for node in match.nodes:
        for value in objects(node):
            return value
    return None


def _late_shape(value: ir.Value) -> str:
    return (
        f"the shape of `{value.name}` is not known before the model runs (it is {value.shape}); "
        "name the dims of the graph's inputs, declare the shape in the model's value_info, or add a backend "
        "that allocates such outputs"
    )


def describe_node(node: ir.Node, opsets: dict[str, int] | None = None) -> str:
    """A node in error messages: its name, its operator with domain and opset, its inputs and outputs."""
    domain = node.domain or "ai.onnx"
    graph = node.graph
    imports = graph.opset_imports if isinstance(graph, ir.Graph) else {}
    version = (opsets or imports).get(node.domain)
    opset = f", opset {version}" if version is not None else ""
    given = ", ".join("" if value is None else describe_value(value) for value in node.inputs)
    made = ", ".join(map(describe_value, node.outputs))
    return f"node `{node.name}`: {domain}::{node.op_type}{opset}, ({given}) -> ({made})"


def describe_value(value: ir.Value) -> str:
    """A value in error messages: its name, dtype and dims."""
    if not isinstance(value.type, ir.TensorType):
        return f"{value.name}: {value.type or 'unknown type'}"
    dims = "..." if value.shape is None else ", ".join(map(_dim, value.shape))
    return f"{value.name}: {dtype_name(value.type.dtype)}[{dims}]"


def _dim(dim: int | ir.SymbolicDim) -> str:
    return str(dim) if isinstance(dim, int) else dim.value or "?"
