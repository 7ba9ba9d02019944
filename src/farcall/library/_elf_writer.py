"""Writes shared libraries that contain no code: data that a dynamic linker maps, and symbols for it.

Two segments are loaded: one that is only read, and one that may be written, for the dynamic section (older C
libraries relocate it in place) and for variables. There are no relocations and no needed libraries, so every
dynamic linker loads the file, and so does farcall's loader of images.

Layouts: System V ABI, chapters 4 and 5; DT_GNU_HASH as the GNU and LLVM linkers write it. Both hash tables
are there: farcall's loader of images reads the first, and the C libraries of s390x expect wider words in it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from farcall.errors import ToolchainError
from farcall.library._elf import MACHINES
from farcall.toolchain import Target

ALIGNMENT = 64  # of each read-only symbol
_PAGE = 0x10000  # the largest page of any machine
_NUMBERS = {name: number for number, name in MACHINES.items()} | {"riscv64": 243, "riscv32": 243}
_BITS_32 = {"x86", "arm", "hexagon", "riscv32", "mips", "powerpc"}
# e_flags: what a dynamic linker or farcall's loader compares. ARM: EABI 5, and the kind of floats (below);
# RISC-V and LoongArch: floats in double registers; PowerPC: ABI version 2; Hexagon: the oldest CPU.
_FLAGS = {"riscv64": 4, "riscv32": 4, "loongarch64": 0x43, "powerpc64": 2, "hexagon": 0x60, "arm": 0x5000000}
_ARM_HARD_FLOAT, _ARM_SOFT_FLOAT = 0x400, 0x200

_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ, _WRITE = 4, 2
_HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _GNU_HASH = 4, 5, 6, 10, 11, 0x6FFFFEF5
_PROGBITS, _STRING_TABLE, _HASH_TABLE, _DYNAMIC_TABLE, _DYNSYM, _GNU_HASH_TABLE = 1, 3, 5, 6, 11, 0x6FFFFFF6


@dataclass
class _Section:
    name: str
    kind: int
    data: bytes
    flags: int = 0  # SHF_ALLOC is 2, SHF_WRITE is 1
    align: int = 1
    link: int = 0
    info: int = 0
    entry: int = 0
    offset: int = 0
    address: int = 0


def write_library(
    target: Target, data: Mapping[str, bytes], variables: Mapping[str, int], notes: Mapping[str, bytes]
) -> bytes:
    """A shared library without code.

    Args:
        target: the machine whose dynamic linker will load it.
        data: the content of each symbol that is only read; aligned to 64 bytes.
        variables: the size in bytes of each symbol that may be written; zeros at first.
        notes: the content of sections that are not loaded, by name.

    Returns:
        The file.

    Raises:
        ToolchainError: libraries for this machine cannot be written.
    """
    return _Writer(target, data, variables, notes).write()


class _Writer:
    def __init__(
        self,
        target: Target,
        data: Mapping[str, bytes],
        variables: Mapping[str, int],
        notes: Mapping[str, bytes],
    ) -> None:
        if target.arch not in _NUMBERS:
            raise ToolchainError(
                f"{target}: a library without code can be written for {', '.join(sorted(_NUMBERS))}; "
                "for other machines let a compiler build it: add a backend that gives C"
            )
        self.target, self.data, self.variables, self.notes = target, data, variables, notes
        self.order = ">" if target.big_endian else "<"
        self.wide = target.arch not in _BITS_32
        self.word = "Q" if self.wide else "I"
        self.size = 8 if self.wide else 4
        self.names = [*data, *variables]

    def pack(self, layout: str, *values: int) -> bytes:
        return struct.pack(self.order + layout.replace("W", self.word), *values)

    def write(self) -> bytes:
        self.strings = b"\0" + b"".join(name.encode() + b"\0" for name in self.names)
        blob, places = self._lay_out_data()
        sections = [
            _Section(".hash", _HASH_TABLE, self._hash(), 2, 8, link=3, entry=4),
            _Section(".gnu.hash", _GNU_HASH_TABLE, self._gnu_hash(), 2, 8, link=3),
            _Section(
                ".dynsym",
                _DYNSYM,
                bytes(self._symbol_size * (len(self.names) + 1)),
                2,
                8,
                4,
                1,
                self._symbol_size,
            ),
            _Section(".dynstr", _STRING_TABLE, self.strings, 2),
            _Section(".rodata", _PROGBITS, blob, 2, ALIGNMENT),
            _Section(".dynamic", _DYNAMIC_TABLE, bytes(7 * 2 * self.size), 3, 8, link=4, entry=2 * self.size),
            _Section(".data", _PROGBITS, bytes(sum(self._padded(n) for n in self.variables.values())), 3, 8),
            *(_Section(name, _PROGBITS, content) for name, content in self.notes.items()),
        ]
        names = b"\0" + b"".join(section.name.encode() + b"\0" for section in sections) + b".shstrtab\0"
        sections.append(_Section(".shstrtab", _STRING_TABLE, names))
        end = self._place(sections)
        self._fill(sections, places)
        return self._file(sections, names, end)

    @staticmethod
    def _padded(size: int) -> int:
        return -(-size // 8) * 8

    def _lay_out_data(self) -> tuple[bytes, dict[str, int]]:
        """The read-only data, and the offset of each symbol in its section."""
        blob, places = bytearray(), {}
        for name, content in self.data.items():
            blob += bytes(-len(blob) % ALIGNMENT)
            places[name] = len(blob)
            blob += content
        at = 0
        for name, size in self.variables.items():
            places[name] = at
            at += self._padded(size)
        return bytes(blob), places

    # ---- tables ----

    @property
    def _symbol_size(self) -> int:
        return 24 if self.wide else 16

    def _hash(self) -> bytes:
        """One bucket: a chain of all symbols."""
        count = len(self.names) + 1
        chain = [0, *(i + 1 for i in range(1, count - 1)), 0][:count]
        return self.pack(f"{3 + count}I", 1, count, 1 if count > 1 else 0, *chain)

    def _gnu_hash(self) -> bytes:
        """One bucket, and a filter that lets every name through."""
        hashes = [_gnu_hash_of(name) & ~1 for name in self.names]
        if hashes:
            hashes[-1] |= 1
        filled = (1 << (8 * self.size)) - 1
        return self.pack(f"4IWI{len(hashes)}I", 1, 1, 1, 0, filled, 1 if hashes else 0, *hashes)

    def _fill(self, sections: list[_Section], places: Mapping[str, int]) -> None:
        """Fill in what refers to addresses."""
        found = {section.name: section for section in sections}
        dynamic = [
            (_HASH, found[".hash"].address),
            (_GNU_HASH, found[".gnu.hash"].address),
            (_STRTAB, found[".dynstr"].address),
            (_SYMTAB, found[".dynsym"].address),
            (_STRSZ, len(self.strings)),
            (_SYMENT, self._symbol_size),
        ]
        found[".dynamic"].data = b"".join(self.pack("WW", *entry) for entry in [*dynamic, (0, 0)])
        symbols = [bytes(self._symbol_size)]
        name_at = 1
        for name in self.names:
            section = found[".rodata" if name in self.data else ".data"]
            size = len(self.data[name]) if name in self.data else self.variables[name]
            symbols.append(
                self._symbol(name_at, section.address + places[name], size, sections.index(section) + 1)
            )
            name_at += len(name) + 1
        found[".dynsym"].data = b"".join(symbols)

    def _symbol(self, name: int, value: int, size: int, section: int) -> bytes:
        info = 0x11  # global, an object
        if self.wide:
            return self.pack("IBBHQQ", name, info, 0, section, value, size)
        return self.pack("IIIBBH", name, value, size, info, 0, section)

    # ---- the file ----

    @property
    def _head(self) -> int:
        return 64 if self.wide else 52

    @property
    def _segment_size(self) -> int:
        return 56 if self.wide else 32

    def _place(self, sections: list[_Section]) -> int:
        """Give each section its place. What may be written is on other pages than what may not."""
        at = self._head + 4 * self._segment_size
        for section in sections:
            at += -at % section.align
            section.offset = at
            if section.flags:
                section.address = at + (_PAGE if section.flags & 1 else 0)
            at += len(section.data)
        return at

    def _segment(self, kind: int, flags: int, place: tuple[int, int, int], align: int) -> bytes:
        """A program header; ``place`` is the offset, the address and the size."""
        offset, address, size = place
        if self.wide:
            return self.pack("IIQQQQQQ", kind, flags, offset, address, address, size, size, align)
        return self.pack("IIIIIIII", kind, offset, address, address, size, size, flags, align)

    def _file(self, sections: list[_Section], names: bytes, end: int) -> bytes:
        table = end + -end % 8
        head = b"\x7fELF" + bytes([2 if self.wide else 1, 2 if self.order == ">" else 1, 1, 0]) + bytes(8)
        fields = (3, _NUMBERS[self.target.arch], 1, 0, self._head, table, self._flags())
        counts = (
            self._head,
            self._segment_size,
            4,
            64 if self.wide else 40,
            len(sections) + 1,
            len(sections),
        )
        constant, dynamic, variable = sections[4], sections[5], sections[6]
        tables = (dynamic.offset, dynamic.address, len(dynamic.data))
        written = (dynamic.offset, dynamic.address, variable.offset + len(variable.data) - dynamic.offset)
        parts = [
            head + self.pack("HHIWWWI6H", *fields, *counts),
            self._segment(_LOAD, _READ, (0, 0, constant.offset + len(constant.data)), _PAGE),
            self._segment(_LOAD, _READ | _WRITE, written, _PAGE),
            self._segment(_DYNAMIC, _READ | _WRITE, tables, 8),
            self._segment(_STACK, _READ | _WRITE, (0, 0, 0), 16),
        ]
        file = bytearray(b"".join(parts))
        for section in sections:
            file += bytes(section.offset - len(file)) + section.data
        file += bytes(table - len(file) + (64 if self.wide else 40))
        name_at = 1
        for section in sections:
            file += self._section_header(section, name_at)
            name_at += len(section.name) + 1
        return bytes(file)

    def _section_header(self, section: _Section, name: int) -> bytes:
        return self.pack(
            "IIWWWWIIWW",
            name,
            section.kind,
            section.flags,
            section.address,
            section.offset,
            len(section.data),
            section.link,
            section.info,
            section.align,
            section.entry,
        )

    def _flags(self) -> int:
        arch = self.target.arch
        if arch == "arm":
            return _FLAGS[arch] | (_ARM_HARD_FLOAT if self.target.abi.endswith("hf") else _ARM_SOFT_FLOAT)
        return _FLAGS.get(arch, 0)


def _gnu_hash_of(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
