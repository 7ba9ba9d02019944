"""The loader of shared objects for machines without a dynamic loader (native/runtime/image)."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..fuzz.fuzz_image import FLAGS, SOURCES
from ..tree import ROOT
from ..wire.building import compiler, packed

SEEDS = ROOT / "tests/fuzz/corpus/fuzz_image"
GOOD = SEEDS / "functions_and_data"
DYNAMIC, RELA, JMPREL = 2, 7, 23


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The oracle of the fuzz target as a program, with sanitizers."""
    program = tmp_path_factory.mktemp("image") / "reader"
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover", "-g", "-O1", "-DFC_PROGRAM"]
    subprocess.run([*compiler(), *FLAGS, *sanitize, *SOURCES, "-o", program], check=True)
    return program


def accepted(reader: Path, cases: list[bytes]) -> int:
    """How many of the cases it accepts, all of which it reads without a fault."""
    done = subprocess.run([reader], input=packed(cases), capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return int(done.stdout)


def segments(data: bytes) -> Iterator[tuple[int, ...]]:
    """Type, flags, offset, address, physical address, bytes in the file and in memory, alignment."""
    at, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    for i in range(count):
        yield struct.unpack_from("<IIQQQQQQ", data, at + 56 * i)


def file_offset(data: bytes, address: int) -> int:
    for kind, _, offset, start, _, size, *_ in segments(data):
        if kind == 1 and start <= address < start + size:
            return offset + address - start
    raise AssertionError(hex(address))


def first_relocation(data: bytes) -> int:
    """The offset of the type of the first relocation."""
    dynamic = next(segment for segment in segments(data) if segment[0] == DYNAMIC)
    for at in range(dynamic[2], dynamic[2] + dynamic[5], 16):
        tag, value = struct.unpack_from("<QQ", data, at)
        if tag == RELA:
            return file_offset(data, value) + 8
    raise AssertionError("no relocations")


def test_any_cut_is_refused(reader: Path) -> None:
    data = GOOD.read_bytes()
    needed = max(offset + size for kind, _, offset, _, _, size, *_ in segments(data) if kind == 1)
    assert accepted(reader, [data[:end] for end in range(needed)]) == 0
    assert accepted(reader, [data[:needed], data]) == 2  # the table of sections is not needed


def test_any_flipped_bit_does_no_harm(reader: Path) -> None:
    data = bytearray(GOOD.read_bytes())
    cases = []
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        cases.append(bytes(data))
        data[bit // 8] ^= 1 << bit % 8
    assert 0 < accepted(reader, cases) < len(cases)


def test_any_number_in_a_header_may_be_extreme(reader: Path) -> None:
    data = GOOD.read_bytes()
    dynamic = next(segment for segment in segments(data) if segment[0] == DYNAMIC)
    places = [*range(16, 64 + 56 * 12, 2), *range(dynamic[2], dynamic[2] + dynamic[5], 8)]
    cases = []
    for at in places:
        for number in (0, 1, 2**16, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 1):
            cases.append(data[:at] + number.to_bytes(8, "little") + data[at + 8 :])
    assert accepted(reader, cases) < len(cases)


# ---- loading, here ----


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that loads files as images: tests/native/image_checks.c."""
    program = tmp_path_factory.mktemp("image") / "checks"
    native = ROOT / "native"
    rooms = [native / room for room in ("platform", "runtime", "runtime/image", "runtime/image/posix")]
    files = [file for room in rooms for file in room.glob("*.c") if file.name != "bare.c"]
    flags = [
        "-DFARCALL_BUILDING_CORE",
        "-Wno-missing-field-initializers",
        "-Wno-format-truncation",
        "-O1",
        "-g",
    ]
    command = [
        *compiler(),
        *FLAGS,
        *flags,
        *files,
        ROOT / "tests/native/image_checks.c",
        "-lm",
        "-o",
        program,
    ]
    subprocess.run(command, check=True)
    return program


def refusal(checks: Path, data: bytes, folder: Path) -> str:
    (folder / "x.so").write_bytes(data)
    done = subprocess.run([checks, folder / "x.so"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3, (done.returncode, done.stderr)
    return done.stderr


@pytest.mark.parametrize(
    ("number", "name"),
    [(37, "type 37 IRELATIVE of x86_64"), (5, "type 5 COPY"), (18, "TPOFF64"), (99, "type 99 of")],
)
def test_a_relocation_that_is_not_known_is_named(
    checks: Path, tmp_path: Path, number: int, name: str
) -> None:
    data = bytearray(GOOD.read_bytes())
    struct.pack_into("<I", data, first_relocation(bytes(data)), number)
    assert name in refusal(checks, bytes(data), tmp_path)


def test_what_an_image_cannot_have_is_named(checks: Path, tmp_path: Path) -> None:
    assert "ArtifactError: the image: it has thread-local storage" in refusal(
        checks, (SEEDS / "thread_local").read_bytes(), tmp_path
    )
    refused = refusal(checks, (SEEDS / "for_aarch64").read_bytes(), tmp_path)
    assert (
        "built for aarch64 (ELF machine 183, 64 bits, little-endian), and this is x86_64; build it" in refused
    )
    assert "not a whole ELF file" in refusal(checks, b"", tmp_path)
    assert "needs the function `twice`" in refusal(checks, GOOD.read_bytes(), tmp_path)


def test_a_segment_that_is_writable_and_executable_is_refused(checks: Path, tmp_path: Path) -> None:
    data = bytearray(GOOD.read_bytes())
    at = struct.unpack_from("<Q", data, 32)[0]
    for i, segment in enumerate(segments(bytes(data))):
        if segment[0] == 1 and segment[1] & 1:
            struct.pack_into("<I", data, at + 56 * i + 4, 7)
    assert "both writable and executable" in refusal(checks, bytes(data), tmp_path)
