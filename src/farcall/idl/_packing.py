"""The model of packing: where each value of a call is.

A call is a word (the *scalars*) and an array of buffers: the in buffers, the out buffers, the handles. Fixed
values travel together, in the first in buffer (*primIn*) and in the first out buffer (*primROut*), at their
natural alignment. Each sequence and string is a buffer of its own; its count, or its capacity when it comes
back, is in primIn. The generators of C and Python follow the layouts that this module makes, and so does the
Python stub at run time.

Source: the rules of FastRPC, as public headers and the stubs of public programs show them (docs/fastrpc.md).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, TypeAlias

from farcall.idl._declarations import Method, Mode
from farcall.idl._types import (
    DmaHandle,
    Sequence,
    Struct,
    Text,
    Type,
    fixed_align,
    fixed_size,
    is_fixed,
    placed,
)

BUFFERS_MAX = 255
HANDLES_MAX = 15
LONG_ID = 31  # in the word: the id is in the first four bytes of primIn
OPEN, CLOSE = 0, 1  # the first methods of an interface with handles
UNIT_ALIGN = 4

Role: TypeAlias = Literal["value", "count", "id"]
Part: TypeAlias = "tuple[Role, Leaf | None]"


def scalars(method_id: int, ins: int, outs: int, in_handles: int = 0, out_handles: int = 0) -> int:
    """The word of a call with so many buffers and handles."""
    return min(method_id, LONG_ID) << 24 | ins << 16 | outs << 8 | in_handles << 4 | out_handles


@dataclass(frozen=True)
class Leaf:
    """A value that is packed by itself: a parameter, or a field of one that is a struct with sequences.

    Attributes:
        parameter: index of the parameter.
        field: name of the field, or None.
        name: of the parameter.
    """

    parameter: int
    name: str
    field: str | None
    mode: Mode
    type: Type

    @property
    def goes_in(self) -> bool:
        """Whether the caller passes the value."""
        return self.mode != "rout"

    @property
    def comes_out(self) -> bool:
        """Whether the callee returns the value."""
        return self.mode != "in"

    @property
    def nested(self) -> bool:
        """Whether it is a sequence of sequences or strings."""
        return isinstance(self.type, Sequence) and not is_fixed(self.type.element)

    @property
    def unit(self) -> tuple[int, int]:
        """Size and alignment of one element of a sequence, of a nested one's sequences, or of a string."""
        match self.type:
            case Sequence(Sequence(inner, _) | inner, _) if is_fixed(inner):
                return fixed_size(inner), fixed_align(inner)
            case Sequence(Text(size), _) | Text(size):
                return size, size
        raise AssertionError(self.type)


@dataclass(frozen=True)
class Slot:
    """A place in primIn or primROut: the value of a leaf, its count, or the id of the method."""

    role: Role
    leaf: Leaf | None
    offset: int
    size: int


@dataclass(frozen=True)
class Prim:
    """A buffer of fixed values; it is absent from the call if it has no slots."""

    slots: tuple[Slot, ...]
    size: int

    def slot(self, leaf: Leaf) -> Slot:
        """The place of a leaf."""
        return next(slot for slot in self.slots if slot.leaf is leaf)


@dataclass(frozen=True)
class Layout:
    """The layout of a method's calls.

    Attributes:
        leaves: in the order of the parameters.
        in_buffers: least number of in buffers; sequences of sequences add to it.
        out_buffers: least number of out buffers.
        handles: number of in handles.
    """

    id: int
    leaves: tuple[Leaf, ...]
    prim_in: Prim
    prim_out: Prim
    in_buffers: int
    out_buffers: int
    handles: int

    @property
    def nested(self) -> bool:
        """Whether the number of buffers depends on the values."""
        return any(leaf.nested for leaf in self.leaves)


@functools.lru_cache(maxsize=1024)
def layout_of(method: Method) -> Layout:
    """The layout of the calls of a method."""
    leaves = tuple(leaf for index in range(len(method.parameters)) for leaf in _leaves(method, index))
    buffers = [leaf for leaf in leaves if isinstance(leaf.type, Sequence | Text)]
    fixed = [leaf for leaf in leaves if is_fixed(leaf.type)]
    named: list[Part | None] = [("id", None)] if method.id >= LONG_ID else []
    prim_in = _prim([*named, *(_in_slot(leaf) for leaf in leaves)])
    prim_out = _prim([("value", leaf) for leaf in fixed if leaf.comes_out])
    # A nested sequence always has an in buffer: the lengths or capacities of its elements.
    ins = sum(leaf.goes_in or leaf.nested for leaf in buffers)
    outs = sum(leaf.comes_out and not leaf.nested for leaf in buffers)
    return Layout(
        method.id,
        leaves,
        prim_in,
        prim_out,
        ins + bool(prim_in.slots),
        outs + bool(prim_out.slots),
        sum(isinstance(leaf.type, DmaHandle) for leaf in leaves),
    )


def _leaves(method: Method, index: int) -> list[Leaf]:
    parameter = method.parameters[index]
    if isinstance(parameter.type, Struct) and not is_fixed(parameter.type):
        parts = parameter.type.fields
        return [Leaf(index, parameter.name, name, parameter.mode, kind) for name, kind in parts]
    return [Leaf(index, parameter.name, None, parameter.mode, parameter.type)]


def _in_slot(leaf: Leaf) -> Part | None:
    """What a leaf has in primIn."""
    if not is_fixed(leaf.type):
        return "count", leaf
    return ("value", leaf) if leaf.goes_in else None


def _prim(parts: list[Part | None]) -> Prim:
    present = [part for part in parts if part]
    sizes = [
        (fixed_size(leaf.type), fixed_align(leaf.type)) if role == "value" and leaf else (4, 4)
        for role, leaf in present
    ]
    offsets, size = placed(sizes)
    slots = [
        Slot(role, leaf, offset, width)
        for (role, leaf), offset, (width, _) in zip(present, offsets, sizes, strict=True)
    ]
    return Prim(tuple(slots), size if slots else 0)
