"""The rooms of native/: their files, and the object files that zig compiles from them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from farcall.library._elf import Elf, Symbol

from ..tree import ROOT

NATIVE = ROOT / "native"
WARNINGS = ("-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Wno-format-truncation")


def files_of(room: str, *endings: str) -> list[Path]:
    """The files of a room, without those of the rooms below it."""
    return sorted(path for ending in endings for path in (NATIVE / room).glob(f"*{ending}"))


def all_rooms() -> list[str]:
    """Every folder below native/ that contains files."""
    folders = {path.parent for path in NATIVE.rglob("*") if path.is_file()}
    return sorted(str(folder.relative_to(NATIVE)) for folder in folders)


@dataclass(frozen=True)
class Compiled:
    """The objects of a room."""

    room: str
    objects: tuple[tuple[Symbol, ...], ...]

    @classmethod
    def of(cls, room: str, archive: Path) -> Compiled:
        objects = (Elf(data).object_symbols() for data in members(archive.read_bytes()))
        return cls(room, tuple(objects))

    def defined(self) -> set[str]:
        return {symbol.name for symbols in self.objects for symbol in symbols if symbol.defined}

    def wanted(self) -> set[str]:
        """The undefined symbols of the room's objects, whether the room or another one defines them."""
        return {symbol.name for symbols in self.objects for symbol in symbols if not symbol.defined}


def compile_room(room: str, target: str, folder: Path, *flags: str) -> Path:
    """An archive of the room's objects, compiled without Python's headers. zig caches its results."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs the ziglang package")
    archive = folder / f"{room.replace('/', '_')}.{target}.a"
    command = [sys.executable, "-m", "ziglang", "build-lib", "-static", "-lc", "-fPIC", "-O", "ReleaseSmall"]
    command += ["-target", target, f"-femit-bin={archive}", f"-I{NATIVE}", f"-I{ROOT / 'include'}"]
    command += ["-cflags", "-std=gnu11", "-D_GNU_SOURCE", "-DFARCALL_BUILDING_CORE", *WARNINGS, *flags, "--"]
    command += map(str, files_of(room, ".c"))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return archive


def members(archive: bytes) -> Iterator[bytes]:
    """The members of a Unix archive: each follows a header of 60 bytes and starts at an even offset."""
    at = len(b"!<arch>\n")
    while at + 60 <= len(archive):
        size = int(archive[at + 48 : at + 58])
        if archive[at + 60 : at + 64] == b"\x7fELF":
            yield archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def compiled(rooms: Iterable[str], target: str, folder: Path) -> dict[str, Compiled]:
    return {room: Compiled.of(room, compile_room(room, target, folder)) for room in rooms}
