"""The namedtuples and dataclasses of results.

A Signature names a class by text, which may come from a file, so farcall never imports a class by that
text. It uses the class if this process has registered it, and otherwise makes a class with the same fields.
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
    """The name of a class in Signatures, which includes its module. This also registers the class."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    _registered[name] = cls
    return name


def register_class(cls: C) -> C:
    """Register a namedtuple or dataclass, so that results become its instances. Usable as a decorator.

    Raises:
        TypeError: the class is neither.
    """
    if not dataclasses.is_dataclass(cls) and not (issubclass(cls, tuple) and hasattr(cls, "_fields")):
        raise TypeError(f"register_class: expected a namedtuple or a dataclass, got {cls!r}")
    class_name(cls)
    return cls


def class_of(node: Fields) -> type:
    """The class of a namedtuple or dataclass node: the registered one, if it has the same fields."""
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
