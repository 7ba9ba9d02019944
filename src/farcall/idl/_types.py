"""The types of the interface language, and the bytes that their values have on the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

SIZE_MAX = 1 << 16  # bytes of a fixed value: skels keep copies on the stack, which is small on a DSP


@dataclass(frozen=True)
class Scalar:
    """A number.

    Attributes:
        name: in the interface language.
        c: its type in C.
        code: its letter in Python's ``struct``.
        size: in bytes, which is also its alignment.
    """

    name: str
    c: str
    code: str
    size: int

    @property
    def align(self) -> int:
        """Its alignment in bytes."""
        return self.size


OCTET = Scalar("octet", "uint8_t", "B", 1)
WCHAR = Scalar("wchar", "uint16_t", "H", 2)
LONG = Scalar("long", "int32_t", "i", 4)
BUILTIN = {
    scalar.name: scalar
    for scalar in (
        OCTET,
        Scalar("boolean", "uint8_t", "B", 1),
        Scalar("char", "char", "b", 1),
        WCHAR,
        Scalar("short", "int16_t", "h", 2),
        Scalar("unsigned short", "uint16_t", "H", 2),
        LONG,
        Scalar("unsigned long", "uint32_t", "I", 4),
        Scalar("long long", "int64_t", "q", 8),
        Scalar("unsigned long long", "uint64_t", "Q", 8),
        Scalar("float", "float", "f", 4),
        Scalar("double", "double", "d", 8),
    )
}
# What AEEStdDef.idl declares.
STANDARD = {
    f"{prefix}int{8 * size}": Scalar(f"{prefix}int{8 * size}", f"{prefix}int{8 * size}_t", code, size)
    for size, letter in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))
    for prefix, code in (("", letter), ("u", letter.upper()))
} | {"AEEResult": Scalar("AEEResult", "int32_t", "i", 4)}


@dataclass(frozen=True)
class Enum:
    """A named set of 32-bit numbers. ``c`` is the name in C; so are the names of the members."""

    name: str
    c: str
    members: tuple[tuple[str, int], ...]
    code: str = field(default="i", init=False)
    size: int = field(default=4, init=False)
    align: int = field(default=4, init=False)


@dataclass(frozen=True)
class Text:
    """A string whose units have ``unit`` bytes: ``string`` 1, ``wstring`` 2. Its count includes the NUL."""

    unit: int

    @property
    def c(self) -> str:
        """The type of a unit in C."""
        return "char" if self.unit == 1 else WCHAR.c


@dataclass(frozen=True)
class Sequence:
    """A pointer and a count. ``c`` is the struct for one inside another, if a typedef names it."""

    element: Type
    c: str = ""


@dataclass(frozen=True)
class Array:
    """A fixed number of elements, without padding between them."""

    element: Type
    count: int

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        return fixed_size(self.element) * self.count

    @property
    def align(self) -> int:
        """The alignment of an element."""
        return fixed_align(self.element)


def _as_tuple(*values: object) -> object:
    """The value of a struct that has no class: its ``values``."""
    return values


@dataclass(frozen=True)
class Struct:
    """Named fields at their natural alignment.

    Attributes:
        name: in the interface language.
        c: the name in C.
        fields: name and type of each.
        make: makes a value in Python from the values of the fields, in order.
    """

    name: str
    c: str
    fields: tuple[tuple[str, Type], ...]
    make: Callable[..., object] = field(default_factory=lambda: _as_tuple, compare=False)

    @property
    def size(self) -> int:
        """Bytes of all fields and their padding."""
        return placed([(fixed_size(kind), fixed_align(kind)) for _, kind in self.fields])[1]

    @property
    def align(self) -> int:
        """The strictest alignment of a field."""
        return max(fixed_align(kind) for _, kind in self.fields)

    def offsets(self) -> list[int]:
        """Where each field begins."""
        return placed([(fixed_size(kind), fixed_align(kind)) for _, kind in self.fields])[0]


@dataclass(frozen=True)
class DmaHandle:
    """A buffer of the system's: its descriptor, an offset in it, and a size."""


Type: TypeAlias = "Scalar | Enum | Text | Sequence | Array | Struct | DmaHandle"
Fixed: TypeAlias = "Scalar | Enum | Array | Struct"


def is_fixed(kind: Type) -> bool:
    """Whether every value of a type has the same size."""
    match kind:
        case Scalar() | Enum():
            return True
        case Array(element, _):
            return is_fixed(element)
        case Struct():
            return all(is_fixed(part) for _, part in kind.fields)
        case _:
            return False


def fixed_size(kind: Type) -> int:
    """Bytes of a value of a fixed type."""
    assert isinstance(kind, Scalar | Enum | Array | Struct)  # noqa: S101
    return kind.size


def fixed_align(kind: Type) -> int:
    """The alignment of a fixed type."""
    assert isinstance(kind, Scalar | Enum | Array | Struct)  # noqa: S101
    return kind.align


def placed(parts: list[tuple[int, int]]) -> tuple[list[int], int]:
    """Place (size, alignment) one after another; their offsets, and the size rounded to the strictest."""
    offsets, at, strictest = list[int](), 0, 1
    for size, align in parts:
        at = -(-at // align) * align
        offsets.append(at)
        at += size
        strictest = max(strictest, align)
    return offsets, -(-at // strictest) * strictest
