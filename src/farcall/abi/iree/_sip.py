"""SIP ("structured index path") signatures: the nesting of the arguments and results of a raw signature.

This module reads and writes trees of lists and dicts whose leaves are indices into the raw list.
_reflection.py turns a tree into the structure of a Signature.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple, TypeAlias

from farcall.abi._structure import DEEPEST
from farcall.abi.iree import _lexer as lexer
from farcall.abi.iree._lexer import Field, Source
from farcall.errors import SignatureError

Key: TypeAlias = int | str
Kind: TypeAlias = Literal["list", "dict"]


@dataclasses.dataclass(slots=True)
class Branch:
    """A list (keys are ints) or a dict (keys are texts). The keys of a list may have gaps."""

    kind: Kind
    children: dict[Key, Tree] = dataclasses.field(default_factory=dict)


Tree: TypeAlias = int | Branch


_KEYS: dict[str, Kind] = {"k": "list", "K": "dict"}
_BRANCHES: dict[str, Kind] = {"S": "list", "D": "dict"}


class Sip(NamedTuple):
    """The two trees; None for no inputs, or no result."""

    inputs: Tree | None
    results: Tree | None


# reading


def parse(text: str | bytes) -> Sip:
    """Read a SIP signature.

    Raises:
        SignatureError: the text is malformed. The message has the position and an excerpt.
    """
    source = lexer.source(text, "SIP signature")
    inputs, results = lexer.halves(source, "struct")
    return Sip(_root(source, inputs), _root(source, results))


def _root(source: Source, half: Field) -> Tree | None:
    root: Tree | None = None
    for field in lexer.fields(source, half[2], half[3]):
        if field[0] in _KEYS:
            raise source.error(field[1], "Struct key not allowed here: the root has no keys")
        value = _value(source, field, 1)
        if root is not None:
            raise source.error(field[1], "Attempt to unpack multiple roots: a second value beside the first")
        root = value
    return root


def _value(source: Source, field: Field, depth: int) -> Tree:
    tag, at, value, _ = field
    if tag == "_":
        if value < 0:
            raise source.error(at, "Raw result index out of range: it is negative")
        return value
    if tag not in _BRANCHES:
        raise source.error(at, "Unrecognized tag: a value is `_` (index), `S` (list) or `D` (dict)")
    if depth > DEEPEST:
        raise source.error(at, f"nested deeper than {DEEPEST} levels")
    return _branch(source, field, depth)


def _branch(source: Source, opened: Field, depth: int) -> Branch:
    branch = Branch(_BRANCHES[opened[0]])
    children, tag_of_keys = branch.children, "k" if branch.kind == "list" else "K"
    key: Key | None = None
    for field in lexer.fields(source, opened[2], opened[3]):
        tag, at, value, end = field
        if tag == tag_of_keys:
            if key is not None:
                raise source.error(
                    at, f"Struct key not allowed here: the key {key!r:.40} before it has no value"
                )
            key = source.text(value, end) if end else value
            if key in children or (not end and value < 0):
                raise _wrong_key(source, field, branch)
        elif tag in _KEYS:
            raise _wrong_key(source, field, branch)
        elif key is None:
            raise source.error(at, "Value not allowed here: a key comes first")
        else:
            children[key] = value if tag == "_" and value >= 0 else _value(source, field, depth + 1)
            key = None
    if key is not None:
        raise source.error(opened[1], f"the last key, {key!r:.40}, has no value")
    return branch


def _wrong_key(source: Source, field: Field, branch: Branch) -> SignatureError:
    tag, at, value, end = field
    mismatch = "Signature/data type mismatch: "
    if _KEYS[tag] != branch.kind:
        return source.error(at, f"{mismatch}this is the key of a {_KEYS[tag]}, in a {branch.kind}")
    if not end and value < 0:
        return source.error(at, f"{mismatch}the index of a list is negative")
    key = source.text(value, end) if end else value
    return source.error(at, f"the key {key!r:.40} is there already")


# writing


def emit(sip: Sip) -> str:
    """Write a SIP signature, with keys in the order of their numbers, or of their bytes."""
    halves = (("I", sip.inputs), ("R", sip.results))
    data = b"".join(lexer.span(tag, b"" if tree is None else _emit(tree)) for tag, tree in halves)
    return data.decode()


def _emit(tree: Tree) -> bytes:
    if isinstance(tree, int):
        return lexer.integer("_", tree)
    # Python orders texts by code points, which is the order of their UTF-8 bytes.
    keys = sorted(tree.children)  # all ints or all texts
    content = b"".join(_emit_key(key) + _emit(tree.children[key]) for key in keys)
    return lexer.span("S" if tree.kind == "list" else "D", content)


def _emit_key(key: Key) -> bytes:
    return lexer.integer("k", key) if isinstance(key, int) else lexer.text_span("K", key)
