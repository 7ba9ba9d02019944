"""Payloads are little-endian, number by number, whatever machine sends and takes them."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .building import compiler

SIZE = 64
# (DLPack code, bits, lanes): bytes of its numbers. Halves of complex numbers, and lanes, stay where they are.
TYPES = {
    (0, 8, 1): 1,
    (1, 16, 1): 2,
    (0, 32, 1): 4,
    (0, 64, 1): 8,
    (2, 16, 1): 2,
    (2, 32, 1): 4,
    (2, 64, 1): 8,
    (4, 16, 1): 2,  # bfloat16
    (5, 64, 1): 4,  # complex64
    (5, 128, 1): 8,
    (5, 32, 1): 2,
    (6, 8, 1): 1,  # bool
    (0, 4, 1): 1,  # packed: two to a byte
    (0, 4, 8): 1,
    (1, 1, 1): 1,
    (10, 8, 1): 1,  # an 8-bit float
    (15, 6, 1): 1,
    (2, 16, 4): 2,
    (2, 32, 4): 4,
    (5, 64, 2): 4,
    (1, 8, 16): 1,
}
BIG_ENDIAN = {"ppc": "powerpc-linux-none", "s390x": "s390x-linux-none"}
Build = Callable[..., Path]


def check(command: list[str]) -> None:
    given = b"".join(struct.pack("<BBH", *type_) for type_ in TYPES)
    done = subprocess.run(command, input=given, capture_output=True, check=True)
    assert len(done.stdout) == 2 * SIZE * len(TYPES)
    for at, (type_, width) in enumerate(TYPES.items()):
        numbers = ((i + 1) * 0x0102030405060708 % 256**width for i in range(SIZE // width))
        expected = b"".join(number.to_bytes(width, "little") for number in numbers)
        said = done.stdout[2 * SIZE * at : 2 * SIZE * (at + 1)]
        assert said[:SIZE].hex() == expected.hex(), type_
        assert said[SIZE:].hex() == expected.hex(), type_


def test_this_machine(build: Build) -> None:
    check([str(build(compiler(), "payload.c"))])


@pytest.mark.parametrize("machine", BIG_ENDIAN)
def test_a_big_endian_machine(build: Build, machine: str) -> None:
    qemu = shutil.which(f"qemu-{machine}") or shutil.which(f"qemu-{machine}-static")
    if not qemu or importlib.util.find_spec("ziglang") is None:
        pytest.skip(f"needs qemu-{machine} and the ziglang package")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", BIG_ENDIAN[machine]]
    alone = ["-DWIRE_BARE", "-ffreestanding", "-nostdlib", "-static", "-Wno-unused-function"]
    check([qemu, str(build(zig, "payload.c", *alone))])
