"""Libraries without code: written for any machine, and mapped by this one's dynamic linker."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest

from farcall.errors import ToolchainError
from farcall.library._elf import Elf, parse_library
from farcall.library._elf_writer import write_library
from farcall.toolchain import Target

DATA = {"numbers": b"0123456789" * 20, "more": bytes(range(256)), "none": b""}


def written(triple: str) -> bytes:
    return write_library(Target.parse(triple), DATA, {"variable": 8, "other": 4}, {".note.text": b"hello"})


@pytest.mark.parametrize(
    ("triple", "machine", "bits", "big", "flags"),
    [
        ("x86_64-linux-gnu", "x86_64", 64, False, 0),
        ("aarch64-linux-musl", "aarch64", 64, False, 0),
        ("arm-linux-musleabihf", "arm (32-bit)", 32, False, 0x5000400),
        ("arm-linux-gnueabi", "arm (32-bit)", 32, False, 0x5000200),
        ("riscv64-linux-musl", "riscv64", 64, False, 4),
        ("riscv32-linux-musl", "riscv32", 32, False, 4),
        ("s390x-linux-musl", "s390x", 64, True, 0),
        ("hexagon-linux-musl", "hexagon", 32, False, 0x60),
    ],
)
def test_each_machine(triple: str, machine: str, bits: int, big: bool, flags: int) -> None:
    data = written(triple)
    header = parse_library(data)
    assert (machine.startswith(header.architecture), header.bits, header.big_endian) == (True, bits, big)
    order, offset = ">" if big else "<", 48 if bits == 64 else 36
    assert struct.unpack_from(f"{order}I", data, offset) == (flags,)
    elf = Elf(data)
    assert [symbol.name for symbol in elf.dynamic_symbols()] == [*DATA, "variable", "other"]
    note, rodata = elf.section(".note.text"), elf.section(".rodata")
    assert note is not None and bytes(elf.content(note)) == b"hello"
    assert rodata is not None and rodata.offset % 64 == 0
    assert bytes(elf.content(rodata)).startswith(DATA["numbers"])


def test_the_dynamic_linker_maps_it(tmp_path: Path) -> None:
    path = tmp_path / "data.so"
    path.write_bytes(written("host"))
    library = ctypes.CDLL(str(path))
    for name, content in DATA.items():
        at = ctypes.addressof(ctypes.c_char.in_dll(library, name))
        assert at % 64 == 0
        assert ctypes.string_at(at, len(content)) == content
    variable = ctypes.c_int64.in_dll(library, "variable")
    assert variable.value == 0
    variable.value = 7  # may be written
    with pytest.raises(ValueError, match="nothing"):
        ctypes.c_char.in_dll(library, "nothing")


def test_machines_that_it_does_not_know() -> None:
    with pytest.raises(ToolchainError, match=r"m68k.*let a compiler build it"):
        written("m68k-linux-gnu")
