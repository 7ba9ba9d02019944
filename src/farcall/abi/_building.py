"""Builds Signatures from nested Python values that contain leaves, or texts for leaves."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from farcall.abi import _dims as dims
from farcall.abi._classes import class_name
from farcall.abi._leaves import Leaf, ListSpec, RefSpec, ScalarSpec, TensorSpec, is_ref_kind
from farcall.abi._signature import Parameter, ParameterKind, Signature
from farcall.abi._structure import (
    Fields,
    FieldsKind,
    Items,
    ItemsKind,
    Node,
    Nothing,
    Repeated,
    Slot,
    field_step,
)

_LEAF_CLASSES = (TensorSpec, ScalarSpec, RefSpec, ListSpec)
_TENSOR = re.compile(r"([\w?]+)\[(.*)\]", re.DOTALL)
_INTEGER = re.compile(r"\d+\Z")


class Arg(msgspec.Struct, frozen=True):
    """A parameter with more than a type: ``Arg("float32", default=1.0)``."""

    type: Any
    default: Any = msgspec.UNSET
    kind: ParameterKind = "positional_or_keyword"
    doc: str = ""


def build(parameters: Mapping[str, Any], result: Any, destinations: bool = False) -> Signature:
    """See :meth:`farcall.abi.Signature.of`."""
    inputs = _Collector()
    outputs = _Collector()
    made = []
    for name, value in parameters.items():
        arg = value if isinstance(value, Arg) else Arg(value)
        made.append(Parameter(name, inputs.node(arg.type, name), arg.default, arg.kind, arg.doc))
    node = outputs.node(result, "")
    return Signature(tuple(inputs.leaves), tuple(outputs.leaves), tuple(made), node, destinations)


def parse_leaf(text: str, name: str = "") -> Leaf:
    """Make the leaf that a text describes.

    Args:
        text: ``float32[batch, 128]``, ``float32[]`` (rank 0), ``float32[...]`` (any rank), ``?[n]`` (any
            dtype), ``int64`` (a number), ``str``, ``function``, ...; and `` | None`` after any of them.
        name: the name of the leaf.

    Raises:
        ValueError: the text has another form.
    """
    body, _, none = text.strip().partition("|")
    body, optional = body.strip(), none.strip() == "None"
    if none and not optional:
        raise ValueError(f"`{text}`: expected `| None` at the end")
    if match := _TENSOR.fullmatch(body):
        return TensorSpec(name, match[1], _parse_dims(match[2]), optional=optional)
    if "[" in body:
        raise ValueError(f"`{text}`: expected `]` after the dims, as in float32[n, 128]")
    if is_ref_kind(body):
        return RefSpec(name, body, optional)
    return ScalarSpec(name, body, optional)


def _parse_dims(text: str) -> tuple[int | str, ...] | None:
    if text.strip() == "...":
        return None
    if not text.strip():
        return ()
    return tuple(int(dim) if _INTEGER.match(dim) else _checked(dim) for dim in map(str.strip, _split(text)))


def _checked(dim: str) -> str:
    """A dim that is not a number. A dim that no size can satisfy is an error."""
    if dims.is_expression(dim):
        sizes = {name: place for place, name in enumerate(dims.symbols([dim]), 97)}
        if (size := dims.evaluate(dim, sizes)) < 0 and not sizes:
            raise ValueError(f'the dim {dim} is {size}; write "?" for any size')
    return dim


def _split(text: str) -> list[str]:
    """Split at the commas outside parentheses: ``Max(a, b), n``."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


class _Collector:
    """Collects leaves in the order of the structure."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []

    def node(self, value: Any, path: str) -> Node:
        if value is None:
            return Nothing()
        if isinstance(value, (str, *_LEAF_CLASSES)):
            return self._slot(value, path)
        if isinstance(value, (list, tuple)) and len(value) == 2 and value[1] is ...:
            return self._slot(_repeated(value, path), path)
        if isinstance(value, Mapping):
            return self._fields("dict", value, "", path)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return self._fields("dataclass", named, class_name(type(value)), path)
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return self._fields("namedtuple", value._asdict(), class_name(type(value)), path)
        if isinstance(value, (list, tuple)):
            kind: ItemsKind = "list" if isinstance(value, list) else "tuple"
            return Items(kind, tuple(self.node(item, f"{path}[{i}]") for i, item in enumerate(value)))
        raise ValueError(
            f"`{path or 'result'}`: expected a leaf, a text for one, or a structure, got {value!r:.80}"
        )

    def _slot(self, value: str | Leaf, path: str) -> Slot:
        if isinstance(value, str):
            value = parse_leaf(value, path)
        elif not value.name:
            value = msgspec.structs.replace(value, name=path)
        self.leaves.append(value)
        return Slot(len(self.leaves) - 1)

    def _fields(self, kind: FieldsKind, values: Mapping[str, Any], name: str, path: str) -> Fields:
        nodes = [(key, self.node(value, path + field_step(kind, key))) for key, value in values.items()]
        return Fields(kind, tuple(nodes), name)


def _repeated(value: list[Any] | tuple[Any, ...], path: str) -> ListSpec:
    inner = _Collector()
    node = inner.node(value[0], "")
    leaf = inner.leaves[0] if node == Slot(0) else ListSpec("", tuple(inner.leaves), node)
    return ListSpec(path, (leaf,), Repeated("list" if isinstance(value, list) else "tuple"))
