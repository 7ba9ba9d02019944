"""Assigns nodes to backends. Each, by priority, claims matches of its patterns, then single nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import onnx_ir as ir

from farcall._blame import blame
from farcall.errors import BackendError, UnsupportedOperatorError, UsageError
from farcall.graph._pattern import Pattern
from farcall.graph._region import Match
from farcall.graph.dims import UnknownShapeError, dtype_name, is_identifier, late


class Claims(Protocol):
    """The part of a backend that partitioning uses."""

    @property
    def name(self) -> str:
        """The domain and the name prefix of the backend's regions: a short C identifier."""

    @property
    def color(self) -> str:
        """The backend's colour in pictures, as CSS."""

    def patterns(self) -> Sequence[Pattern]:
        """Groups of nodes that the backend takes together, in order of priority."""

    @property
    def allocates(self) -> bool:
        """Whether its regions allocate outputs whose shapes are known only then."""

    def check(self, node: ir.Node) -> str | None:
        """The reason why the backend does not take the single ``node``; None if it does."""


@dataclass(frozen=True)
class Claim:
    """A match, and the index of the backend that claims it."""

    match: Match
    backend: int


Refusals = dict[ir.Node, list[tuple[str, str]]]  # node -> (backend, reason), in order of priority


def annotate(nodes: Sequence[ir.Node], backends: Sequence[Claims]) -> tuple[list[Claim], Refusals]:
    """Give every node to one backend.

    A backend's patterns come before its single nodes, and one pattern is matched everywhere before the next.

    Args:
        nodes: In topological order.
        backends: In order of priority.

    Returns:
        The claims, in the order of their last nodes (a topological order of the claims, because only the
        outputs of its last node leave a match); and the reasons for which backends refused nodes.

    Raises:
        UnsupportedOperatorError: No backend takes a node.
        UsageError: Two backends have the same name, or a name is not an identifier.
        BackendError: A backend's code raised an exception; the message names the node.
    """
    _check_names(backends)
    annotator = _Annotator(nodes)
    for index, backend in enumerate(backends):
        annotator.offer(index, backend)
    missing = [node for node in nodes if node not in annotator.claims]
    if missing:
        raise _unsupported(missing, annotator.refusals, backends)
    owned = [(node, annotator.claims[node]) for node in nodes]
    return [claim for node, claim in owned if claim.match.root is node], annotator.refusals


def _check_names(backends: Sequence[Claims]) -> None:
    if not backends:
        raise UsageError("expected at least one backend, got none; pass backends=['c']")
    names = [backend.name for backend in backends]
    for name in names:
        if not is_identifier(name):
            raise UsageError(f"expected a C identifier as a backend's name, got {name!r}")
        if names.count(name) > 1:
            raise UsageError(f"backend `{name}` is given twice; give each backend once")


class _Annotator:
    def __init__(self, nodes: Sequence[ir.Node]) -> None:
        self._nodes = nodes
        self._by_kind: dict[tuple[str, str], list[ir.Node]] = {}
        self._place = {node: place for place, node in enumerate(nodes)}
        for node in nodes:
            domain = "" if node.domain == "ai.onnx" else node.domain
            self._by_kind.setdefault((domain, node.op_type), []).append(node)
        self.claims: dict[ir.Node, Claim] = {}
        self.refusals: Refusals = {}

    def offer(self, index: int, backend: Claims) -> None:
        """Let a backend claim the nodes that are still free."""
        for pattern in _patterns(backend):
            for root in self._roots(pattern):
                match = pattern.match(root) if root not in self.claims else None
                if match is None or any(node in self.claims for node in match.nodes):
                    continue
                self._decide(index, backend, match, pattern.check, f"pattern {pattern.name}: ")
        for node in self._nodes:
            if node not in self.claims:
                match = Match(node.op_type, (node,))
                self._decide(index, backend, match, lambda single: backend.check(single.root), "")

    def _roots(self, pattern: Pattern) -> Iterable[ir.Node]:
        kinds = [self._by_kind.get(kind, []) for kind in pattern.root.kinds]
        if len(kinds) == 1:
            return kinds[0]
        return sorted((node for nodes in kinds for node in nodes), key=self._place.__getitem__)

    def _decide(self, index: int, backend: Claims, match: Match, check: object, prefix: str) -> None:
        reason = _ask(backend, match, check, prefix) if callable(check) else None
        if reason is None:
            self.claims.update(dict.fromkeys(match.nodes, Claim(match, index)))
        else:
            self.refusals.setdefault(match.root, []).append((backend.name, prefix + reason))


def _patterns(backend: Claims) -> Sequence[Pattern]:
    with blame(lambda: f"backend `{backend.name}`: its patterns()"):
        found = list(backend.patterns())
    for item in found:
        if not isinstance(item, Pattern):
            raise BackendError(
                f"backend `{backend.name}`: its patterns() gave {item!r}; expected farcall.graph.Pattern"
            )
    return found


def _ask(backend: Claims, match: Match, check: Callable[[Match], object], prefix: str) -> str | None:
    """The backend's reason to refuse a match; None if it takes it."""

    def where() -> str:
        return f"backend `{backend.name}`, {prefix}its check of {describe_node(match.root)}"

    if not backend.allocates and (unknown := [v for node in match.nodes for v in node.outputs if late(v)]):
        return _late_shape(unknown[0])
    try:
        with blame(where):
            reason = check(match)
    except UnknownShapeError as error:
        return str(error)
    if reason is not None and not isinstance(reason, str):
        raise BackendError(f"{where()} gave {reason!r}; expected None, or why not as text")
    return reason


def _late_shape(value: ir.Value) -> str:
    return (
        f"the shape of `{value.name}` is not known before the model runs (it is {value.shape}); "
        "name the dims of the graph's inputs, declare the shape in the model's value_info, or add a backend "
        "that allocates such outputs"
    )


_LISTED = 5  # nodes that an error lists
_KINDS = 10  # operators that it names for the other nodes


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


def _unsupported(
    missing: Sequence[ir.Node], refusals: Refusals, backends: Sequence[Claims]
) -> UnsupportedOperatorError:
    names = ", ".join(f"`{backend.name}`" for backend in backends)
    count = "1 node" if len(missing) == 1 else f"{len(missing):,} nodes"
    lines = [f"no backend takes {count} (asked: {names})"]
    for node in missing[:_LISTED]:
        lines.append(f"  {describe_node(node)}")
        lines += [f"    {name}: {reason}" for name, reason in refusals.get(node, [])]
    if len(missing) > _LISTED:
        kinds = sorted({node.op_type for node in missing[_LISTED:]})
        more = ", ".join(kinds[:_KINDS]) + (", ..." if len(kinds) > _KINDS else "")
        lines.append(f"  and {len(missing) - _LISTED:,} more: {more}")
    lines.append("add a backend that takes them, or change the model")
    return UnsupportedOperatorError("\n".join(lines))
