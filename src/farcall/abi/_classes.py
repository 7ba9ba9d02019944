"""Which namedtuples and dataclasses the results of calls become.

A Signature names a class by text, and that text may come from a file: a class is never imported by it. One
that this process registered is used; for others, one with the same fields is made.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from functools import lru_cache
from typing import Any, TypeVar

from farcall.abi._structure import Fields

C = TypeVar("C", bound=type)

_registered: dict[str, type] = {}


def class_name(cls: type) -> str:
    """How Signatures name a class: with its module. It is registered on the way."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    _registered[name] = cls
    return name


def register_class(cls: C) -> C:
    """Let results whose Signature names this namedtuple or dataclass be of it. Usable as a decorator.

    Raises:
        TypeError: it is neither.
    """
    if not dataclasses.is_dataclass(cls) and not (issubclass(cls, tuple) and hasattr(cls, "_fields")):
        raise TypeError(f"register_class: expected a namedtuple or a dataclass, got {cls!r}")
    class_name(cls)
    return cls


def class_of(node: Fields) -> type:
    """The class of a namedtuple or dataclass node: the registered one where its fields are these."""
    keys = tuple(key for key, _ in node.fields)
    registered = _registered.get(node.name)
    if registered is not None and _field_names(registered) == keys:
        return registered
    return _made(node.kind, node.name.rsplit(".", 1)[-1] or "Result", keys)


def _field_names(cls: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls) if field.init)
    return tuple(cls._fields)


@lru_cache(maxsize=1024)
def _made(kind: str, name: str, keys: tuple[str, ...]) -> type:
    name = name if name.isidentifier() else "Result"
    if kind == "dataclass":
        return dataclasses.make_dataclass(name, keys, frozen=True)
    return namedtuple(name, keys)
