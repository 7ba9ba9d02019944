"""Structures: they map Python's nested values onto a flat list of leaves.

A node refers to leaves by index, so the order of the raw arguments may differ from the order in Python. The
nodes are ``Items`` (list, tuple), ``Fields`` (dict, namedtuple, dataclass), ``Slot`` (one leaf), and
``Nothing`` (None: a place without a leaf).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

DEEPEST = 64
"""The maximum number of nested levels in a structure."""

ItemsKind: TypeAlias = Literal["list", "tuple"]
FieldsKind: TypeAlias = Literal["dict", "namedtuple", "dataclass"]


class Slot(msgspec.Struct, frozen=True, tag_field="node", tag="slot"):
    """The leaf with this index."""

    index: int


class Nothing(msgspec.Struct, frozen=True, tag_field="node", tag="nothing"):
    """None: a gap in the arguments, or the result of a function without results."""


class Items(msgspec.Struct, frozen=True, tag_field="node", tag="items"):
    """A list or tuple of fixed length."""

    kind: ItemsKind
    items: tuple[Node, ...] = ()


class Fields(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="node", tag="fields"):
    """A dict, namedtuple or dataclass of fixed keys, in order.

    ``name`` is the name of the class, with its module; see :func:`farcall.abi.register_class`.
    """

    kind: FieldsKind
    fields: tuple[tuple[str, Node], ...] = ()
    name: str = ""


class Repeated(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="node", tag="repeated"):
    """A list or tuple of any length, with equal items; occurs only as the node of a :class:`ListSpec`."""

    kind: ItemsKind = "list"


Node: TypeAlias = Slot | Nothing | Items | Fields | Repeated


def slots(node: Node) -> Iterator[tuple[str, int]]:
    """The leaves below a node in Python's order, each with its path: ``("[0]", 3), ('["ids"]', 1)``."""
    if isinstance(node, Slot):
        yield "", node.index
    for step, child in children(node):
        for path, index in slots(child):
            yield step + path, index


def children(node: Node) -> Iterator[tuple[str, Node]]:
    """The children of a node, each with its step of the path."""
    if isinstance(node, Items):
        for i, child in enumerate(node.items):
            yield f"[{i}]", child
    elif isinstance(node, Fields):
        for key, child in node.fields:
            yield field_step(node.kind, key), child


def _below(node: Node) -> Iterable[Node]:
    """The same without the steps, whose texts would dominate the time to check a long Signature."""
    if isinstance(node, Items):
        return node.items
    return [child for _, child in node.fields] if isinstance(node, Fields) else ()


def field_step(kind: FieldsKind, key: str) -> str:
    """The step of a path to a field: ``["ids"]`` of a dict, ``.ids`` of the others."""
    return f"[{json.dumps(key, ensure_ascii=False)}]" if kind == "dict" else f".{key}"


def structure_text(node: Node, types: Sequence[str]) -> str:
    """The structure with the types of its leaves: ``{"ids": [int64[n], int64[n]]}``."""
    if isinstance(node, Slot):
        return types[node.index]
    if isinstance(node, Nothing):
        return "None"
    if isinstance(node, Repeated):
        return _bracketed(node.kind, [types[0], "..."])
    if isinstance(node, Items):
        return _bracketed(node.kind, [structure_text(child, types) for child in node.items])
    texts = [(key, structure_text(child, types)) for key, child in node.fields]
    if node.kind == "dict":
        return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {text}" for key, text in texts) + "}"
    name = node.name.rsplit(".", 1)[-1] or node.kind
    return f"{name}({', '.join(f'{key}: {text}' for key, text in texts)})"


def _bracketed(kind: ItemsKind, texts: list[str]) -> str:
    if kind == "list":
        return f"[{', '.join(texts)}]"
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def check_cover(nodes: Sequence[Node], count: int, what: str, *, repeats: bool = False) -> None:
    """Refuse nodes that do not name each of ``count`` leaves exactly once, or that nest too deep.

    Args:
        repeats: whether nodes may name a leaf more than once. A result can be at two places in Python; of
            an argument at two places, one of the two values would be lost.

    Raises:
        ValueError: a leaf is out of range, named twice or lost; keys repeat; nested deeper than 64 levels.
    """
    seen: set[int] = set()
    pending = [(node, 1) for node in reversed(nodes)]
    while pending:
        node, depth = pending.pop()
        if not isinstance(node, Slot):
            _check_node(node, depth, what)
            pending += [(child, depth + 1) for child in _below(node)]
            continue
        if not 0 <= node.index < count:
            raise ValueError(f"{what}: slot {node.index} is not one of its {count} leaves")
        if node.index in seen and not repeats:
            raise ValueError(f"{what}: slot {node.index} is named twice")
        seen.add(node.index)
    if len(seen) != count:
        lost = ", ".join(str(i) for i in range(count) if i not in seen)
        raise ValueError(f"{what}: its structure leaves out slot {lost}")


def _check_node(node: Node, depth: int, what: str) -> None:
    if depth > DEEPEST:
        raise ValueError(f"{what}: nested deeper than {DEEPEST} levels")
    if isinstance(node, Repeated):
        raise ValueError(f"{what}: a repeated item travels as one list; give its leaf as a ListSpec")
    if not isinstance(node, Fields):
        return
    keys = [key for key, _ in node.fields]
    if len(set(keys)) != len(keys):
        raise ValueError(f"{what}: a {node.kind} with the keys {keys} names one twice")
    if node.kind != "dict" and not all(key.isidentifier() for key in keys):
        raise ValueError(f"{what}: the fields {keys} of a {node.kind} must be identifiers")
