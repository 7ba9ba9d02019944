"""What the user of :func:`farcall.partition` says about who gets which nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import onnx_ir as ir

from farcall._suggest import did_you_mean
from farcall.errors import UsageError
from farcall.graph._annotate import Answer, Claims
from farcall.graph._model import GONE
from farcall.library._why import CONTROL, matching

if TYPE_CHECKING:
    from farcall.graph._partition import Partition

_T = TypeVar("_T")


@dataclass(frozen=True)
class Rules:
    """Pins, exclusions and least sizes.

    Nodes are given by name, or by a pattern of names as a shell has them: ``"/layer1/*"``.
    """

    pin: Mapping[str, str] = field(default_factory=dict)  # nodes -> the backend that must take them
    exclude: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  # backend -> nodes that it does not get
    min_nodes: Mapping[str, int] = field(
        default_factory=dict
    )  # backend -> nodes that its regions have at least


def check_types(rules: Rules) -> None:
    """Refuse rules that are no mappings of the right kinds.

    Raises:
        UsageError: The message has the form that is expected.
    """
    for what, given, form in (
        ("pin", rules.pin, '{"/layer1/*": "c"}'),
        ("exclude", rules.exclude, '{"npu": ["conv1"]}'),
        ("min_nodes", rules.min_nodes, '{"npu": 3}'),
    ):
        if not isinstance(given, Mapping):
            raise UsageError(f"{what}: expected a dict such as {form}, got {given!r}")
    for backend, nodes in rules.exclude.items():
        if not isinstance(nodes, Sequence) or not all(isinstance(node, str) for node in nodes):
            raise UsageError(f"exclude: expected names of nodes for `{backend}`, got {nodes!r}")


def resolve(
    rules: Rules,
    nodes: Sequence[ir.Node],
    backends: Sequence[Claims],
    expanded: Mapping[str, Sequence[ir.Node]],
    gone: Collection[str] = (),
    *,
    part: bool = False,
) -> tuple[list[dict[ir.Node, Answer]], list[int], set[ir.Node]]:
    """For each backend, the nodes that it cannot get, and its least size; and the nodes that are pinned.

    ``expanded`` has the names of nodes that were replaced by several, which a rule means then. ``gone`` are
    the names of nodes that the model no longer has. ``part``: the model has more nodes, in graphs inside of
    nodes or around them, of which rules may speak, too.

    Raises:
        UsageError: A rule names a backend or a node that is not there, or two pins are at odds.
    """
    names = [backend.name for backend in backends]
    if part and CONTROL not in names:  # whatever is said of it, there is nothing for it in this graph
        rules = _without(rules, CONTROL)
    find = _Finder(nodes, expanded, gone, part)
    bans: list[dict[ir.Node, Answer]] = [{} for _ in backends]
    for backend, wanted in rules.exclude.items():
        index = _index(names, backend, "exclude")
        for node in find.each([wanted] if isinstance(wanted, str) else wanted, "exclude"):
            bans[index][node] = Answer(backend, "excluded", "the node is excluded")
    pinned: dict[ir.Node, str] = {}
    for text, backend in rules.pin.items():
        _index(names, backend, "pin")
        for node in find.each([text], "pin"):
            if pinned.setdefault(node, backend) != backend:
                raise UsageError(
                    f"pin: node `{node.name}` is pinned to `{pinned[node]}` and to `{backend}`; "
                    "expected one of them"
                )
            for index, name in enumerate(names):
                if name != backend:
                    bans[index][node] = Answer(name, "pinned", f"the node is pinned to `{backend}`")
    return bans, _least(rules, names, backends), set(pinned)


def check_names(rules: Rules, partition: Partition) -> None:
    """Check that each rule means a node, here or in a graph inside of a node.

    Raises:
        UsageError: A rule names a node that is not there.
    """
    if not (rules.pin or rules.exclude):
        return
    parts = [partition, *(body.partition for body in partition.bodies())]
    names = {name: name for part in parts for name in _names(part)}
    gone = {name for part in parts for name in part.model.meta.get(GONE, ())}
    for what, texts in (("pin", [list(rules.pin)]), ("exclude", rules.exclude.values())):
        for wanted in texts:
            for text in [wanted] if isinstance(wanted, str) else wanted:
                _find(text, names, gone, f"{what}: ")


def refuse_gone(name: str, gone: Collection[str], where: str = "") -> None:
    """Refuse the name of a node that the model no longer has.

    Raises:
        UsageError: The node is gone; the message says why, and begins with ``where``.
    """
    if name in gone:
        raise UsageError(
            f"{where}node `{name}` is in no region: when the model was loaded, it was computed (what it "
            "reads is constant), replaced by what is inside of it, or left out (nothing reads its results)"
        )


def _find(text: str, named: Mapping[str, _T], gone: Collection[str], where: str) -> list[_T]:
    if text not in named:
        refuse_gone(text, gone, where)
    return matching(text, named, where)


def _names(part: Partition) -> Iterator[str]:
    yield from (node.name or "" for node in part.model.graph)
    yield from part.expansions


def _without(rules: Rules, name: str) -> Rules:
    return Rules(
        {node: one for node, one in rules.pin.items() if one != name},
        {one: nodes for one, nodes in rules.exclude.items() if one != name},
        {one: number for one, number in rules.min_nodes.items() if one != name},
    )


def _least(rules: Rules, names: Sequence[str], backends: Sequence[Claims]) -> list[int]:
    least = [backend.min_nodes for backend in backends]
    for backend, number in rules.min_nodes.items():
        least[_index(names, backend, "min_nodes")] = number
    for name, number in zip(names, least, strict=True):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise UsageError(f"min_nodes of backend `{name}`: expected a number from 1, got {number!r}")
    return least


def _index(names: Sequence[str], name: str, what: str) -> int:
    if name not in names:
        given = ", ".join(f"`{one}`" for one in names)
        raise UsageError(
            f"{what}: no backend `{name}` takes part (given: {given}){did_you_mean(str(name), names)}"
        )
    return names.index(name)


class _Finder:
    def __init__(
        self,
        nodes: Sequence[ir.Node],
        expanded: Mapping[str, Sequence[ir.Node]],
        gone: Collection[str],
        part: bool,
    ) -> None:
        self._gone, self._part = gone, part
        self._by_name = {node.name or "": (node,) for node in nodes} | {
            name: tuple(parts) for name, parts in expanded.items()
        }

    def each(self, texts: Sequence[str], what: str) -> Iterator[ir.Node]:
        """The nodes of names and patterns of names, each of which must match one, unless there are more."""
        for text in texts:
            try:
                found = _find(text, self._by_name, self._gone, f"{what}: ")
            except UsageError:
                if not self._part:
                    raise
                continue
            yield from dict.fromkeys(node for nodes in found for node in nodes)
