"""Binds Python's arguments to parameters, and each argument to its leaves.

One report lists everything that is missing, superfluous or of another structure, with its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from farcall.abi._leaves import Leaf
from farcall.abi._signature import Parameter, Signature
from farcall.abi._structure import Fields, Items, Node, Nothing, Slot, field_step, structure_text
from farcall.abi.calls._report import Report
from farcall.abi.calls._values import describe


class Found(NamedTuple):
    """The value of one leaf, and its path."""

    slot: int
    path: str
    value: Any


class Walker:
    """Takes nested values apart, and reports each value of another structure as a problem."""

    def __init__(self, leaves: Sequence[Leaf], report: Report) -> None:
        self._types = [leaf.type for leaf in leaves]
        self.report = report

    def walk(self, node: Node, value: Any, path: str) -> Iterator[Found]:
        """The leaves of one value, in Python's order."""
        if isinstance(node, Slot):
            yield Found(node.index, path, value)
        elif isinstance(node, Items):
            yield from self._items(node, value, path)
        elif isinstance(node, Fields):
            yield from self._fields(node, value, path)
        elif isinstance(node, Nothing) and value is not None:
            self.report.add(
                path, f"expected None, since the function does not take it, got {describe(value)}"
            )

    def _items(self, node: Items, value: Any, path: str) -> Iterator[Found]:
        count = len(node.items)
        if not isinstance(value, list | tuple) or len(value) != count:
            expected = f"a {node.kind} of {count} items {structure_text(node, self._types)}"
            self.report.add(path, f"expected {expected}, got {describe(value)}")
            return
        for i, (child, item) in enumerate(zip(node.items, value, strict=True)):
            yield from self.walk(child, item, f"{path}[{i}]")

    def _fields(self, node: Fields, value: Any, path: str) -> Iterator[Found]:
        values = _field_values(node, value)
        if values is None:
            text = structure_text(node, self._types)
            self.report.add(path, f"expected a {node.kind} {text}, got {describe(value)}")
            return
        for key, child in node.fields:
            step = path + field_step(node.kind, key)
            if key in values:
                yield from self.walk(child, values[key], step)
            else:
                self.report.add(step, f"missing; expected {structure_text(child, self._types)}")
        known = dict(node.fields)
        for key in values:
            if key not in known:
                step = field_step("dict", key) if isinstance(key, str) else f"[{key!r:.60}]"
                self.report.add(path + step, f"not expected; the keys are {', '.join(known) or 'none'}")


def _field_values(node: Fields, value: Any) -> Mapping[Any, Any] | None:
    """The fields of a value by name; None if it has another structure."""
    if node.kind == "dict":
        return value if isinstance(value, Mapping) else None
    names = [key for key, _ in node.fields]
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return dict(zip(names, value, strict=True)) if len(value) == len(names) else None
    if isinstance(value, Mapping | list | str | bytes | type) or not any(
        hasattr(value, key) for key in names
    ):
        return {} if not names and not isinstance(value, Mapping | list | str | bytes | type) else None
    return {key: getattr(value, key) for key in names if hasattr(value, key)}


def bind(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], walker: Walker) -> list[Found]:
    """The leaves of a call in the order of the parameters. Problems go to ``walker``."""
    values = _by_position(signature, args, walker)
    _by_name(signature, kwargs, values, walker)
    found: list[Found] = []
    for one in signature.parameters:
        if one.name in values:
            found += walker.walk(one.node, values[one.name], one.name)
        elif one.required:
            walker.report.add(one.name, f"missing; expected {signature.parameter_type(one)}")
        elif one.default is not msgspec.UNSET:
            found += walker.walk(one.node, one.default, one.name)
        else:
            found += walker.walk(one.node, (), one.name)
    return found


def _by_position(signature: Signature, args: Sequence[Any], walker: Walker) -> dict[str, Any]:
    positional = [one for one in signature.parameters if one.kind.startswith("positional")]
    values = {one.name: value for one, value in zip(positional, args, strict=False)}
    rest = args[len(positional) :]
    several = next((one for one in signature.parameters if one.kind == "var_positional"), None)
    if several is not None:
        values[several.name] = tuple(rest)
    else:
        for i, value in enumerate(rest, len(positional)):
            at_most = f"at most {len(positional)} go by position"
            walker.report.add(str(i + 1), f"not expected, {at_most}; got {describe(value)}")
    return values


def _by_name(signature: Signature, kwargs: Mapping[str, Any], values: dict[str, Any], walker: Walker) -> None:
    known = {one.name: one for one in signature.parameters}
    for name, value in kwargs.items():
        one = known.get(name)
        if one is None or one.kind == "var_positional":
            names = ", ".join(_keywords(signature.parameters)) or "none"
            walker.report.add(name, f"not expected; the parameters that go by name are {names}")
        elif one.kind == "positional_only":
            walker.report.add(name, "given by name, but it goes by position only")
        elif name in values:
            walker.report.add(name, "given twice, by position and by name")
        else:
            values[name] = value


def _keywords(parameters: Sequence[Parameter]) -> list[str]:
    return [one.name for one in parameters if one.kind in ("positional_or_keyword", "keyword_only")]
