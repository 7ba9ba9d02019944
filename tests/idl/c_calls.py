"""Calls functions with the parameters of a method, by ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

from farcall.idl._types import Scalar, Sequence, Text, Type, fixed_size
from farcall.idl._values import _get, _put

_NUMBERS = {
    "b": ctypes.c_int8, "B": ctypes.c_uint8, "h": ctypes.c_int16, "H": ctypes.c_uint16,
    "i": ctypes.c_int32, "I": ctypes.c_uint32, "q": ctypes.c_int64, "Q": ctypes.c_uint64, "f": ctypes.c_float,
    "d": ctypes.c_double,
}  # fmt: skip


class Row(ctypes.Structure):
    """A sequence inside a sequence."""

    _fields_ = (("data", ctypes.c_void_p), ("dataLen", ctypes.c_int32))


class Arguments:
    """The arguments of one call of a stub. Memory of results is filled with 0xee before it."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._kept: list[Any] = []

    def memory(self, data: bytes) -> Any:
        made = ctypes.create_string_buffer(data, max(1, len(data)))
        self._kept.append(made)
        return made

    def add_in(self, kind: Type, value: Any) -> None:
        match kind:
            case Scalar():
                self.values.append(_NUMBERS[kind.code](value))
            case Text(unit):
                self.values.append(self.memory(encoded(unit, value)))
            case Sequence(Text() | Sequence() as element, _):
                parts = [
                    encoded(1, one) if isinstance(element, Text) else items(element, one) for one in value
                ]
                self._add_rows([(self.memory(part), len(part) // unit_of(element)) for part in parts])
            case Sequence():
                data = items(kind, value)
                self.values += [self.memory(data), ctypes.c_int32(len(value))]
            case _:
                self.values.append(self.memory(fixed(kind, value)))

    def add_out(self, kind: Type, room: Any) -> Any:
        """Room for a result; returns what reads it."""
        match kind:
            case Text(unit):
                memory = self.memory(b"\xee" * (room * unit))
                self.values += [memory, ctypes.c_int32(room)]
                return lambda: decoded(unit, memory.raw)
            case Sequence(Text() | Sequence() as element, _):
                memories = [self.memory(b"\xee" * (one * unit_of(element))) for one in room]
                self._add_rows(list(zip(memories, room, strict=True)))
                return lambda: [
                    from_row(element, memory.raw, n) for memory, n in zip(memories, room, strict=True)
                ]
            case Sequence():
                memory = self.memory(b"\xee" * (room * fixed_size(kind.element)))
                self.values += [memory, ctypes.c_int32(room)]
                return lambda: from_row(kind, memory.raw, room)
            case _:
                memory = self.memory(b"\xee" * fixed_size(kind))
                self.values.append(memory)
                return lambda: _get(kind, memory.raw, 0)

    def add_inrout(self, kind: Type, value: Any) -> Any:
        data = items(kind, value) if isinstance(kind, Sequence) else fixed(kind, value)
        memory = self.memory(data)
        self.values.append(memory)
        if isinstance(kind, Sequence):
            self.values.append(ctypes.c_int32(len(value)))
            return lambda: from_row(kind, memory.raw, len(value))
        return lambda: _get(kind, memory.raw, 0)

    def _add_rows(self, parts: list[tuple[Any, int]]) -> None:
        rows = (Row * max(1, len(parts)))(*[Row(ctypes.addressof(memory), n) for memory, n in parts])
        self._kept.append(rows)
        self.values += [rows, ctypes.c_int32(len(parts))]


def unit_of(element: Type) -> int:
    return element.unit if isinstance(element, Text) else fixed_size(element.element)  # type: ignore[union-attr]


def encoded(unit: int, value: str) -> bytes:
    return value.encode("utf-8" if unit == 1 else "utf-16-le") + b"\0" * unit


def decoded(unit: int, data: bytes) -> str:
    return data.decode("utf-8" if unit == 1 else "utf-16-le").partition("\0")[0]


def fixed(kind: Type, value: Any) -> bytes:
    packed = bytearray(fixed_size(kind))
    _put(kind, packed, 0, value)
    return bytes(packed)


def items(kind: Type, values: Any) -> bytes:
    return b"".join(fixed(kind.element, value) for value in values)  # type: ignore[union-attr]


def from_row(kind: Type, data: bytes, count: int) -> Any:
    if isinstance(kind, Text):
        return decoded(1, data[:count])
    size = fixed_size(kind.element)  # type: ignore[union-attr]
    return [_get(kind.element, data, index * size) for index in range(count)]  # type: ignore[union-attr]


def plain(value: Any) -> Any:
    """A result without its container: lists for sequences, tuples for structs."""
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return tuple(plain(one) for one in value)
    return [plain(one) for one in value]
