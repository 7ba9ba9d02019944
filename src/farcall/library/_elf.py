"""A small reader of ELF files: the machine of a library, its sections, and the symbols that it exports.

It reads only the parts that a check before ``dlopen`` needs. Any bytes either parse or raise
:class:`ArtifactError`: before the reader uses an offset, size or count of the file, it compares it with the
length of the file.
Layouts: System V ABI, chapters 4 and 5 (https://www.sco.com/developers/gabi/latest/contents.html).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from farcall.errors import ArtifactError

Buffer: TypeAlias = "bytes | memoryview"

MACHINES = {
    3: "x86",
    8: "mips",
    20: "powerpc",
    21: "powerpc64",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    164: "hexagon",
    183: "aarch64",
    243: "riscv",
    258: "loongarch64",
}
SHARED_LIBRARY = 3  # ET_DYN
NEEDED, SONAME, RPATH, RUNPATH = 1, 14, 15, 29  # tags of the dynamic section

_NO_BITS = 8  # SHT_NOBITS: has a size, but no bytes in the file
_SYMBOLS = 2  # SHT_SYMTAB: all of an object's symbols
_DYNAMIC_SYMBOLS = 11  # SHT_DYNSYM: those that the dynamic linker sees
_MOST_SYMBOLS = 1 << 20
_NAME_LIMIT = 4096
_HEADER = {32: "HHIIIIIHHHHHH", 64: "HHIQQQIHHHHHH"}
_SECTION = {32: "IIIIIIIIII", 64: "IIQQQQIIQQ"}
_SYMBOL = {32: "IIIBBH", 64: "IBBHQQ"}


@dataclass(frozen=True)
class Header:
    """The machine and the kind of a file."""

    bits: int  # 32 or 64
    big_endian: bool
    machine: int
    type: int

    @property
    def architecture(self) -> str:
        """The machine by name: ``x86_64``, ``aarch64``, ``riscv64``, ..."""
        name = MACHINES.get(self.machine, f"ELF machine {self.machine}")
        if name == "riscv":
            return f"riscv{self.bits}"
        return f"{name} ({self.bits}-bit)" if (name, self.bits) == ("x86_64", 32) else name

    def __str__(self) -> str:
        return f"{self.architecture}, {self.bits}-bit, {'big' if self.big_endian else 'little'}-endian"


class Section(NamedTuple):
    """A named range of the file."""

    name: str
    type: int
    offset: int
    size: int
    link: int
    entry_size: int
    address: int


class Symbol(NamedTuple):
    """A symbol that a file defines for others, or (``defined`` is False) imports."""

    name: str
    defined: bool
    weak: bool
    section: int
    value: int


class Elf:
    """The parsed headers of an ELF file, over its bytes."""

    def __init__(self, data: Buffer, what: str = "file") -> None:
        """Parse ``data``.

        Args:
            data: the whole file.
            what: the name of the file in errors.

        Raises:
            ArtifactError: the bytes are not a whole, well-formed ELF file.
        """
        self.data = memoryview(data)
        self.what = what
        self.header = parse_header(self.data, what)
        self._order = ">" if self.header.big_endian else "<"
        self.sections = self._parse_sections()

    def section(self, name: str) -> Section | None:
        """The section ``name``. Two sections of that name are an error."""
        found = [section for section in self.sections if section.name == name]
        if len(found) > 1:
            raise self._broken(f"has {len(found)} sections {name!r}")
        return found[0] if found else None

    def content(self, section: Section) -> memoryview:
        """The bytes of ``section``."""
        return self.data[section.offset : section.offset + section.size]

    def dynamic_symbols(self) -> tuple[Symbol, ...]:
        """The symbols that the dynamic linker sees in a library, in order of the file."""
        return self._global_symbols(_DYNAMIC_SYMBOLS)

    def object_symbols(self) -> tuple[Symbol, ...]:
        """The symbols that the linker sees in an object file, in order of the file."""
        return self._global_symbols(_SYMBOLS)

    def place_of(self, name: str) -> range | None:
        """The bytes of the file from the exported symbol ``name`` to the end of its section.

        None: the library does not export it, or its section has no bytes in the file.
        """
        for symbol in self.dynamic_symbols():
            if symbol.name == name and 0 < symbol.section < len(self.sections):
                section = self.sections[symbol.section]
                start, end = section.offset + symbol.value - section.address, section.offset + section.size
                return range(start, end) if section.offset <= start <= end else None
        return None

    def dynamic_texts(self, tag: int) -> tuple[str, ...]:
        """What a library's dynamic section says under ``tag``, such as the sonames that it needs."""
        section, texts = self.section(".dynamic"), self.section(".dynstr")
        if section is None or texts is None:
            return ()
        names, word = bytes(self.content(texts)), "i" if self.header.bits == 32 else "q"
        data = self.content(section)[: section.size - section.size % struct.calcsize(f"<2{word}")]
        entries = struct.iter_unpack(f"{self._order}2{word}", data)
        return tuple(self._name(names, start) for kind, start in entries if kind == tag)

    def _global_symbols(self, kind: int) -> tuple[Symbol, ...]:
        tables = [section for section in self.sections if section.type == kind]
        return tuple(symbol for section in tables for symbol in self._symbols(section))

    def _parse_sections(self) -> tuple[Section, ...]:
        fields = self._unpack(_HEADER[self.header.bits], 16)
        offset, entry, count, names_index = fields[5], fields[10], fields[11], fields[12]
        wanted = struct.calcsize("<" + _SECTION[self.header.bits])
        if not offset or not count:
            raise self._broken("has no section table; do not strip it away")
        if entry != wanted:
            raise self._broken(f"has section headers of {entry} bytes, expected {wanted}")
        if offset + count * entry > len(self.data):
            raise self._broken(
                f"ends at byte {len(self.data)}, but its section table reaches to {offset + count * entry}"
            )
        table = self.data[offset : offset + count * entry]
        raw = list(struct.iter_unpack(self._order + _SECTION[self.header.bits], table))
        if names_index >= count:
            raise self._broken(f"names section {names_index} of {count} as its table of names")
        names = bytes(self._bounded(raw[names_index][4], raw[names_index][5], "the table of section names"))
        return tuple(self._make_section(fields, names) for fields in raw)

    def _make_section(self, fields: tuple[int, ...], names: bytes) -> Section:
        name, kind, offset, size = self._name(names, fields[0]), fields[1], fields[4], fields[5]
        if kind == _NO_BITS:
            size = 0
        elif offset + size > len(self.data):
            self._bounded(offset, size, f"section {name!r}")
        return Section(name, kind, offset, size, fields[6], fields[9], fields[3])

    def _symbols(self, section: Section) -> Iterator[Symbol]:
        layout = _SYMBOL[self.header.bits]
        size = struct.calcsize("<" + layout)
        count = section.size // size
        if section.entry_size != size or section.size % size or count > _MOST_SYMBOLS:
            entries = f"in entries of {section.entry_size}"
            raise self._broken(f"has a symbol table of {section.size} bytes {entries}")
        if section.link >= len(self.sections):
            raise self._broken(f"names section {section.link} of {len(self.sections)} as symbol names")
        names = bytes(self.content(self.sections[section.link]))
        for i in range(1, count):  # the first entry is reserved
            fields = self._unpack(layout, section.offset + i * size)
            wide = self.header.bits == 64
            info, index, value = [fields[i] for i in ((1, 3, 4) if wide else (3, 5, 1))]
            if binding := info >> 4:  # 0 is a local symbol
                yield Symbol(self._name(names, fields[0]), index != 0, binding == 2, index, value)

    def _name(self, names: bytes, start: int) -> str:
        end = names.find(b"\0", start, start + _NAME_LIMIT)
        if end < 0:
            raise self._broken(f"has a name at {start} of its {len(names)} bytes of names that never ends")
        return names[start:end].decode("utf-8", "replace")

    def _unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        layout = self._order + layout
        self._bounded(offset, struct.calcsize(layout), "a header")
        return struct.unpack_from(layout, self.data, offset)

    def _bounded(self, offset: int, size: int, what: str) -> memoryview:
        if offset + size > len(self.data):
            raise self._broken(f"ends at byte {len(self.data)}, but {what} reaches to {offset + size}")
        return self.data[offset : offset + size]

    def _broken(self, problem: str) -> ArtifactError:
        return ArtifactError(f"{self.what}: truncated or corrupted: {problem}; copy or build it again")


def parse_library(data: Buffer, what: str = "file") -> Header:
    """The header of a complete shared library. The section table, which ends the file, must be there.

    Raises:
        ArtifactError: ``data`` is not an ELF file, not a shared library, or truncated.
    """
    header = parse_header(data, what)
    if header.type != SHARED_LIBRARY:
        raise ArtifactError(f"{what}: an ELF file, but not a shared library; link it with -shared")
    order = ">" if header.big_endian else "<"
    fields = struct.unpack_from(order + _HEADER[header.bits], data, 16)
    end = fields[5] + fields[10] * fields[11]
    if end > len(data):
        reaches = f"ends at byte {len(data)}, but its section table reaches to {end}"
        raise ArtifactError(f"{what}: truncated or corrupted: {reaches}; copy or build it again")
    return header


def parse_header(data: Buffer, what: str = "file") -> Header:
    """The ELF header at the start of ``data`` (64 bytes are enough).

    Raises:
        ArtifactError: ``data`` is not an ELF file, or too short.
    """
    head = bytes(data[:64])
    if not head.startswith(b"\x7fELF"):
        shown = f"begins with {head[:8]!r}" if head else "is empty"
        raise ArtifactError(f"{what}: not a shared library (ELF): it {shown}; build it with farcall build")
    if len(head) < 20 or (bits := {1: 32, 2: 64}.get(head[4])) is None or head[5] not in (1, 2):
        raise ArtifactError(f"{what}: truncated or corrupted: its ELF header is broken; build it again")
    if len(head) < 16 + struct.calcsize("<" + _HEADER[bits]):
        raise ArtifactError(f"{what}: truncated or corrupted: it ends at byte {len(head)}, in the ELF header")
    kind, machine = struct.unpack_from(">HH" if head[5] == 2 else "<HH", head, 16)
    return Header(bits, head[5] == 2, machine, kind)
