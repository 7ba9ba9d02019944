"""The ELF reader: any bytes parse or raise ArtifactError."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farcall.errors import ArtifactError
from farcall.library._elf import Elf, parse_header
from farcall.toolchain import Source, compile_shared


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small real library."""
    path: Path = tmp_path_factory.mktemp("elf") / "small.so"
    text = (
        "#include <farcall/c_api.h>\n"
        '__attribute__((section("mine"), used)) static const char note[] = "hello";\n'
        "#pragma weak TVMFFIObjectDecRef\n"
        "FARCALL_KERNEL(f) { return TVMFFIObjectDecRef ? TVMFFIObjectDecRef(self) : 0; }\n"
    )
    compile_shared([Source("small.c", text)], path)
    return path.read_bytes()


def read_all(data: bytes) -> None:
    """Calls every method of the reader."""
    elf = Elf(data)
    elf.dynamic_symbols()
    elf.object_symbols()
    for section in elf.sections:
        assert len(elf.content(section)) == section.size


def test_what_is_in_a_library(library: bytes) -> None:
    elf = Elf(library)
    symbols = {symbol.name: symbol for symbol in elf.dynamic_symbols()}
    assert symbols["__tvm_ffi_f"].defined
    assert not symbols["TVMFFIObjectDecRef"].defined
    assert symbols["TVMFFIObjectDecRef"].weak
    section = elf.section("mine")
    assert section is not None
    assert bytes(elf.content(section)) == b"hello\0"
    assert elf.section("not there") is None
    assert elf.header.type == 3


def make(bits: int, order: str, machine: int) -> bytes:
    """A file of an ELF header and two section headers: the reserved one, and the names."""
    ident = b"\x7fELF" + bytes([bits // 32, 1 if order == "<" else 2, 1]) + bytes(9)
    address = "I" if bits == 32 else "Q"
    header_size, entry = (52, 40) if bits == 32 else (64, 64)
    names = b"\0.names\0"
    fields = (3, machine, 1, 0, 0, header_size + len(names), 0, header_size, 0, 0, entry, 2, 1)
    header = ident + struct.pack(f"{order}HHI{address * 3}IHHHHHH", *fields)
    layout = f"{order}II{address * 4}II{address * 2}"
    section = struct.pack(layout, 1, 3, 0, 0, header_size, len(names), 0, 0, 1, 0)
    return header + names + bytes(entry) + section


@pytest.mark.parametrize(
    ("bits", "order", "machine", "architecture"),
    [
        (64, "<", 62, "x86_64"),
        (64, "<", 183, "aarch64"),
        (32, "<", 40, "arm"),
        (64, ">", 22, "s390x"),
        (32, ">", 8, "mips"),
        (32, "<", 164, "hexagon"),
        (64, "<", 243, "riscv64"),
        (32, "<", 243, "riscv32"),
        (64, "<", 999, "ELF machine 999"),
    ],
)
def test_all_classes_and_byte_orders(bits: int, order: str, machine: int, architecture: str) -> None:
    elf = Elf(make(bits, order, machine))
    assert elf.header.architecture == architecture
    assert (elf.header.bits, elf.header.big_endian) == (bits, order == ">")
    assert [section.name for section in elf.sections] == ["", ".names"]


@pytest.mark.parametrize(
    "data", [b"", b"\x7fEL", b"not an elf file at all", b"\x7fELF", b"\x7fELF\x03\x01" + bytes(60)]
)
def test_other_files_are_refused_by_what_they_are(data: bytes) -> None:
    with pytest.raises(ArtifactError, match=r"model\.so: "):
        parse_header(data, "model.so")


@pytest.mark.parametrize("bits", [32, 64])
def test_every_truncation_is_seen(bits: int) -> None:
    data = make(bits, "<", 62)
    for size in range(len(data)):
        with pytest.raises(ArtifactError):
            Elf(data[:size])


def test_every_truncation_of_a_real_library_is_seen(library: bytes) -> None:
    for size in range(0, len(library), 7):  # the section table comes last, so every cut hits it
        with pytest.raises(ArtifactError, match=r"truncated|not a shared library"):
            Elf(library[:size])


def test_every_bit_of_the_header_flipped(library: bytes) -> None:
    for bit in range(64 * 8):
        changed = bytearray(library)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            read_all(bytes(changed))
        except ArtifactError:
            continue


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    for prefix in (b"", b"\x7fELF\x02\x01", b"\x7fELF\x01\x02"):
        try:
            read_all(prefix + data)
        except ArtifactError:
            continue


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 2**32), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4
    )
)
def test_any_damage_to_a_library(library: bytes, edits: list[tuple[int, bytes]]) -> None:
    changed = bytearray(library)
    table = struct.unpack_from("<Q", library, 40)[0]
    for place, data in edits:  # half of them where the structure is: the header and the section table
        start = (place % (len(library) - table) + table) if place % 2 else place % len(library)
        changed[start : start + len(data)] = data[: len(library) - start]
    try:
        read_all(bytes(changed))
    except ArtifactError:
        return
