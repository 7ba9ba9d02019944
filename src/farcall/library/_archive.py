"""Reads and writes static libraries: renames symbols, so that several libraries fit into one program.

An object's symbols are renamed in the object, not when it is compiled: the cache keeps one object for all
libraries, and an object of any language or assembler will do.
Layouts: System V ABI, chapter 4; archives as GNU's and LLVM's linkers read them (ar(5), System V variant).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

from farcall.errors import ArtifactError
from farcall.library._elf import Elf

_MAGIC = b"!<arch>\n"
_HEADER_SIZE = 60  # bytes, of a member
_SYMBOLS = 2  # SHT_SYMTAB
_SECTIONS_AT = {32: ("I", 0x20, 0x2E), 64: ("Q", 0x28, 0x3A)}  # e_shoff's type and place, e_shentsize's place
_PLACE = {32: ("II", 16), 64: ("QQ", 24)}  # types and place of sh_offset and sh_size
_INFO = {32: 12, 64: 4}  # the place of st_info


def rename_symbols(data: bytes, names: Mapping[str, str]) -> bytes:
    """The object ``data``, whose global symbols have new names where ``names`` maps their old ones.

    The table of names is written again behind the object, with the new names at its end.
    """
    elf = Elf(data, "an object")
    bits, order = elf.header.bits, ">" if elf.header.big_endian else "<"
    out = bytearray(data)
    kind, at, size_at = _SECTIONS_AT[bits]
    (headers,) = struct.unpack_from(order + kind, data, at)
    (header_size,) = struct.unpack_from(order + "H", data, size_at)
    for table in (section for section in elf.sections if section.type == _SYMBOLS):
        texts = bytearray(elf.content(elf.sections[table.link]))
        for place in range(table.offset, table.offset + table.size, table.entry_size):
            (start,) = struct.unpack_from(order + "I", data, place)
            old = bytes(texts[start : texts.index(b"\0", start)]).decode("utf-8", "replace")
            if data[place + _INFO[bits]] >> 4 and old in names:  # binding 0 is a local symbol
                struct.pack_into(order + "I", out, place, len(texts))
                texts += names[old].encode() + b"\0"
        fields, field_at = _PLACE[bits]
        struct.pack_into(
            order + fields, out, headers + table.link * header_size + field_at, len(out), len(texts)
        )
        out += texts
    return bytes(out)


def archive(members: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """A static library of objects, with the index of symbols that linkers want.

    Returns:
        The library, and the offset of each object in it. Equal objects give equal bytes.
    """
    defined = [
        [symbol.name for symbol in Elf(data, "an object").object_symbols() if symbol.defined]
        for data in members
    ]
    texts = b"".join(name.encode() + b"\0" for names in defined for name in names)
    index_size = 4 + 4 * sum(map(len, defined)) + len(texts)
    places = []
    end = len(_MAGIC) + _HEADER_SIZE + index_size + index_size % 2
    for data in members:
        places.append(end)
        end += _HEADER_SIZE + len(data) + len(data) % 2
    offsets = [place for place, names in zip(places, defined, strict=True) for _ in names]
    index = struct.pack(f">I{len(offsets)}I", len(offsets), *offsets) + texts
    parts = [_MAGIC, _member("/", index)]
    parts += [_member(f"{i}.o/", data) for i, data in enumerate(members)]
    return b"".join(parts), [place + _HEADER_SIZE for place in places]


def members_of(data: bytes, what: str) -> Iterator[tuple[int, bytes]]:
    """The objects of a static library, each with its offset.

    Raises:
        ArtifactError: the bytes are no such library.
    """
    at = len(_MAGIC)
    if data[:at] != _MAGIC:
        raise ArtifactError(f"{what}: not a static library: it does not begin with `!<arch>`")
    while at < len(data):
        head = data[at : at + _HEADER_SIZE]
        digits = head[48:58].strip()
        size = int(digits) if digits.isdigit() else len(data)
        at += _HEADER_SIZE
        if head[58:] != b"`\n" or at + size > len(data):
            raise ArtifactError(f"{what}: truncated or corrupted: a member is not whole; build it again")
        if data[at : at + 4] == b"\x7fELF":
            yield at, data[at : at + size]
        at += size + size % 2


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n"  # no time, no owner
    return head.encode() + data + b"\n" * (len(data) % 2)
