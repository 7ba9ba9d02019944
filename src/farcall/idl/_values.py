"""Packs the values of a call into buffers, and unpacks them, by the layouts of ``_packing``."""

from __future__ import annotations

import array
import struct
from collections.abc import Sequence as Values
from typing import Any

from farcall.errors import ArgumentError
from farcall.idl._declarations import Method
from farcall.idl._packing import BUFFERS_MAX, Layout, Leaf, Prim, layout_of, scalars
from farcall.idl._types import (
    Array,
    DmaHandle,
    Enum,
    Scalar,
    Sequence,
    Struct,
    Text,
    Type,
    fixed_size,
    is_fixed,
)

_COUNT_MAX = (1 << 31) - 1


class Call:
    """A call, packed.

    Attributes:
        scalars: the word.
        ins: the in buffers.
        outs: the out buffers, which the transport fills.
        handles: descriptor and offset of each in handle.
    """

    def __init__(self, method: Method, values: Values[object]) -> None:
        """Pack ``values``: one for each parameter, in order; see :func:`farcall.idl.compile`'s page.

        Raises:
            ArgumentError: a value does not fit its parameter.
        """
        self._method, self._layout = method, layout_of(method)
        self.ins: list[bytes | memoryview] = []
        self.outs: list[bytearray] = []
        self.handles: list[tuple[int, int]] = []
        leaves = list(zip(self._layout.leaves, _by_leaf(self._layout, values), strict=True))
        self._pack_prims(leaves)
        for leaf, value in leaves:
            self._pack_buffers(leaf, value)
        counts = len(self.ins), len(self.outs)
        if max(counts) > BUFFERS_MAX:
            raise self._wrong(
                f"{max(counts)} buffers, and a call has at most {BUFFERS_MAX}; pass fewer elements"
            )
        self.scalars = scalars(method.id, *counts, len(self.handles))

    def _wrong(self, problem: str, leaf: Leaf | None = None) -> ArgumentError:
        which = f"`{_name(leaf)}` of " if leaf else ""
        return ArgumentError([f"{which}`{self._method.name}`: {problem}"])

    def _pack_prims(self, leaves: Values[tuple[Leaf, Any]]) -> None:
        packed, given = bytearray(self._layout.prim_in.size), {id(leaf): value for leaf, value in leaves}
        for slot in self._layout.prim_in.slots:
            if slot.leaf is None:
                struct.pack_into("<I", packed, slot.offset, self._layout.id)
                continue
            value = given[id(slot.leaf)]
            try:
                if slot.role == "value":
                    _put(slot.leaf.type, packed, slot.offset, value)
                else:
                    struct.pack_into("<I", packed, slot.offset, self._count(slot.leaf, value))
            except (struct.error, TypeError, ValueError, OverflowError) as error:
                if isinstance(error, ArgumentError):
                    raise
                raise self._wrong(f"{error}; got {value!r:.60}", slot.leaf) from None
        if self._layout.prim_in.slots:
            self.ins.append(bytes(packed))
        if self._layout.prim_out.slots:
            self.outs.append(bytearray(self._layout.prim_out.size))

    def _count(self, leaf: Leaf, value: Any) -> int:
        """What stands in primIn for a value without a fixed size."""
        if isinstance(leaf.type, DmaHandle):
            return int(value[2])
        if leaf.nested or (isinstance(leaf.type, Sequence) and leaf.goes_in):
            return _elements(leaf.type, value)
        if isinstance(leaf.type, Text) and leaf.goes_in:
            return len(_text(leaf, value)) // leaf.unit[0]
        return _capacity(value)

    def _pack_buffers(self, leaf: Leaf, value: Any) -> None:
        if is_fixed(leaf.type):
            return
        try:
            if isinstance(leaf.type, DmaHandle):
                descriptor, offset, _ = value
                self.handles.append((int(descriptor), int(offset)))
            elif leaf.nested:
                self._pack_nested(leaf, value)
            else:
                self._pack_one(leaf, value)
        except (struct.error, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, ArgumentError):
                raise
            raise self._wrong(f"{error}; got {value!r:.60}", leaf) from None

    def _pack_one(self, leaf: Leaf, value: Any) -> None:
        if not leaf.goes_in:
            self.outs.append(bytearray(_capacity(value) * leaf.unit[0]))
            return
        data = _text(leaf, value) if isinstance(leaf.type, Text) else _items(leaf.type, value)
        self.ins.append(data)
        if leaf.comes_out:
            self.outs.append(bytearray(len(data)))

    def _pack_nested(self, leaf: Leaf, value: Any) -> None:
        assert isinstance(leaf.type, Sequence)  # noqa: S101
        unit = leaf.unit[0]
        if leaf.goes_in:
            element = leaf.type.element
            parts = [_text(leaf, one) if isinstance(element, Text) else _items(element, one) for one in value]
            sizes = [len(part) for part in parts]
        else:
            parts, sizes = [], [_capacity(one) * unit for one in value]
        self.ins.append(struct.pack(f"<{len(sizes)}I", *(size // unit for size in sizes)))
        self.ins += parts
        if leaf.comes_out:
            self.outs += [bytearray(size) for size in sizes]

    def results(self) -> object:
        """The values that came back: none, one, or a tuple of them, in the order of their parameters."""
        outs = iter(self.outs)
        fixed = _unpack_prim(self._layout.prim_out, next(outs)) if self._layout.prim_out.slots else {}
        found = dict[int, list[object]]()
        for leaf in self._layout.leaves:
            if not leaf.comes_out:
                continue
            if is_fixed(leaf.type):
                value = fixed[id(leaf)]
            elif leaf.nested:
                assert isinstance(leaf.type, Sequence)  # noqa: S101
                number = len(self.ins_lengths(leaf))
                value = [_unpack_buffer(leaf.type.element, next(outs)) for _ in range(number)]
            else:
                value = _unpack_buffer(leaf.type, next(outs))
            found.setdefault(leaf.parameter, []).append(value)
        values = [self._joined(index, parts) for index, parts in found.items()]
        return None if not values else values[0] if len(values) == 1 else tuple(values)

    def ins_lengths(self, leaf: Leaf) -> memoryview:
        """The array of lengths of a nested leaf, among the in buffers."""
        at = int(bool(self._layout.prim_in.slots))
        for other in self._layout.leaves:
            if other is leaf:
                break
            if other.nested:
                number = len(memoryview(self.ins[at]).cast("B")) // 4
                at += 1 + (number if other.goes_in else 0)
            elif isinstance(other.type, Sequence | Text) and other.goes_in:
                at += 1
        return memoryview(self.ins[at]).cast("B").cast("I")

    def _joined(self, index: int, parts: list[object]) -> object:
        kind = self._method.parameters[index].type
        return kind.make(*parts) if isinstance(kind, Struct) and not is_fixed(kind) else parts[0]


def _name(leaf: Leaf) -> str:
    return leaf.name if leaf.field is None else f"{leaf.name}.{leaf.field}"


def _by_leaf(layout: Layout, values: Values[Any]) -> list[Any]:
    """The value for each leaf; None for one that only comes back."""
    given, found = list(values), list[Any]()
    at = 0
    for leaf in layout.leaves:
        if leaf.field is None:
            takes = leaf.goes_in or not is_fixed(leaf.type)
            found.append(given[at] if takes else None)
            at += takes
            continue
        first = leaf is next(one for one in layout.leaves if one.parameter == leaf.parameter)
        at += first
        whole = [one for one in layout.leaves if one.parameter == leaf.parameter]
        wanted = [one for one in whole if one.goes_in or not is_fixed(one.type)]
        parts = tuple(given[at - 1])
        if len(parts) != len(wanted):
            names = ", ".join(one.field or "" for one in wanted)
            raise ArgumentError([f"`{leaf.name}`: expected {len(wanted)} values ({names}), got {len(parts)}"])
        found.append(parts[wanted.index(leaf)] if leaf in wanted else None)
    if at != len(given):
        raise ArgumentError([f"expected {at} values, got {len(given)}"])
    return found


def _capacity(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _COUNT_MAX:
        raise ValueError(f"expected the room for the result, a number of elements from 0 to {_COUNT_MAX}")
    return value


def _elements(kind: Type, value: Any) -> int:
    """The number of elements of a sequence."""
    if isinstance(kind, Sequence) and is_fixed(kind.element) and not isinstance(value, list | tuple):
        return len(_items(kind, value)) // fixed_size(kind.element)
    return len(value)


def _text(leaf: Leaf, value: Any) -> bytes:
    """A text with its NUL. One that also comes back is a text and its room, in units."""
    kind, room = leaf.type, 0
    unit = leaf.unit[0]
    if isinstance(kind, Text) and leaf.comes_out:
        value, room = value
        _capacity(room)
    if not isinstance(value, str) or "\0" in value:
        raise TypeError("expected a text without NUL")
    data = value.encode("utf-8" if unit == 1 else "utf-16-le") + b"\0" * unit
    if room and len(data) > room * unit:
        raise ValueError(f"the text has {len(data) // unit} units with its NUL, and room for {room}")
    return data.ljust(room * unit, b"\0")


def _items(kind: Type, value: Any) -> bytes | memoryview:
    """The bytes of a sequence's elements."""
    assert isinstance(kind, Sequence)  # noqa: S101
    element = kind.element
    size = fixed_size(element)
    if isinstance(value, list | tuple):
        if isinstance(element, Scalar | Enum):
            return struct.pack(f"<{len(value)}{element.code}", *value)
        packed = bytearray(size * len(value))
        for index, one in enumerate(value):
            _put(element, packed, index * size, one)
        return bytes(packed)
    view = memoryview(value)
    if not view.c_contiguous or view.itemsize not in (1, size):
        raise TypeError(f"expected contiguous elements of {size} bytes, or bytes")
    if view.nbytes % size:
        raise ValueError(f"{view.nbytes} bytes are no whole number of elements of {size} bytes")
    return view.tobytes() if view.readonly or not view.nbytes else view.cast("B")


def _put(kind: Type, packed: bytearray, at: int, value: Any) -> None:
    """Write a fixed value."""
    match kind:
        case Scalar() | Enum():
            struct.pack_into(f"<{kind.code}", packed, at, value)
        case Array(element, number):
            if len(value) != number:
                raise ValueError(f"expected {number} elements, got {len(value)}")
            for index, one in enumerate(value):
                _put(element, packed, at + index * fixed_size(element), one)
        case Struct():
            if len(value) != len(kind.fields):
                raise ValueError(f"expected the {len(kind.fields)} fields of {kind.name}, got {len(value)}")
            for (_, part), offset, one in zip(kind.fields, kind.offsets(), value, strict=True):
                _put(part, packed, at + offset, one)


def _get(kind: Type, data: bytes | bytearray, at: int) -> object:
    """Read a fixed value."""
    match kind:
        case Scalar() | Enum():
            return struct.unpack_from(f"<{kind.code}", data, at)[0]
        case Array(element, number):
            return [_get(element, data, at + index * fixed_size(element)) for index in range(number)]
        case Struct():
            parts = zip(kind.fields, kind.offsets(), strict=True)
            return kind.make(*(_get(part, data, at + offset) for (_, part), offset in parts))
    raise AssertionError(kind)


def _unpack_prim(prim: Prim, data: bytearray) -> dict[int, object]:
    return {id(slot.leaf): _get(slot.leaf.type, data, slot.offset) for slot in prim.slots if slot.leaf}


def _unpack_buffer(kind: Type, data: bytearray) -> object:
    """Bytes as ``bytes``, a sequence of other numbers as an array, of structs as a list; a string as text."""
    match kind:
        case Text(1):
            return data.partition(b"\0")[0].decode(errors="replace")
        case Text():
            return data.decode("utf-16-le", errors="replace").partition("\0")[0]
        case Sequence(Scalar(size=1), _):
            return bytes(data)
        case Sequence(Scalar() | Enum() as element, _):
            return array.array(element.code, bytes(data))
        case Sequence(element, _):
            size = fixed_size(element)
            return [_get(element, data, at) for at in range(0, len(data), size)]
    raise AssertionError(kind)
