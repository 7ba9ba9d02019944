"""What an interface file declares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from farcall.idl._types import Enum, Struct, Type

Mode: TypeAlias = Literal["in", "rout", "inrout"]


@dataclass(frozen=True)
class Constant:
    """A named value; ``c`` is its name in C. ``type`` is None for a string."""

    name: str
    c: str
    type: Type | None
    value: int | float | str


@dataclass(frozen=True)
class Typedef:
    """Another name for a type, or the name of a sequence."""

    name: str
    c: str
    type: Type


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method."""

    mode: Mode
    name: str
    type: Type


@dataclass(frozen=True)
class Method:
    """A method; ``id`` is its number on the wire."""

    name: str
    id: int
    parameters: tuple[Parameter, ...]


@dataclass
class Interface:
    """An interface with its methods, inherited ones first. ``handle``: each call names an open handle."""

    name: str
    handle: bool = False
    methods: list[Method] = field(default_factory=list)
    types: dict[str, Declared] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        """The URI by which the vendor's driver finds the library and its entry."""
        entry = f"{self.name}_skel_{'handle_' if self.handle else ''}invoke"
        return f"file:///lib{self.name}_skel.so?{entry}&_modver=1.0"


Declared: TypeAlias = "Constant | Typedef | Enum | Struct | Interface"


@dataclass
class Unit:
    """A file: what it includes, and what it declares, in order."""

    name: str
    stem: str
    includes: list[str] = field(default_factory=list)
    declarations: list[Declared] = field(default_factory=list)

    @property
    def interfaces(self) -> list[Interface]:
        """The interfaces that this file declares itself."""
        return [one for one in self.declarations if isinstance(one, Interface)]
