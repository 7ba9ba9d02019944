"""Finds the libraries that an artifact needs, and loads them before it.

An artifact names a library by its soname, and nothing else. The dynamic linker takes a library of that soname
that is already loaded, so farcall loads the right one first: the one that the process has, the one that the
artifact brings, the one of a Python package, or the one that the dynamic linker finds, in this order.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import re
from importlib import metadata
from pathlib import Path

from farcall._texts import count
from farcall.errors import ArtifactError
from farcall.library._elf import Elf
from farcall.library._manifest import LIBRARIES_SECTION, LibraryInfo, Manifest

_LISTED = 5  # symbols that an error names


class LibraryNotFoundError(Exception):
    """No library of that name is fit; the text says what was looked for, and why each was not taken.

    Attributes:
        lacks: the functions that a library which was found lacks, as text; empty: none was found.
    """

    def __init__(self, text: str, lacks: str = "") -> None:
        super().__init__(text)
        self.lacks = lacks


def load_libraries(manifest: Manifest, elf: Elf) -> None:
    """Load the libraries that an artifact needs.

    Args:
        manifest: the artifact's manifest.
        elf: the artifact, which may bring some of them.

    Raises:
        ArtifactError: a library is missing or too old.
    """
    for info in manifest.libraries:
        try:
            open_library(info, _shipped(info, elf))
        except LibraryNotFoundError as error:
            cure = info.cure or "install it, or name its folder in LD_LIBRARY_PATH"
            raise ArtifactError(f"{elf.what}: {info.users} needs the library {error}; {cure}") from None


def _shipped(info: LibraryInfo, elf: Elf) -> bytes:
    if not info.size:
        return b""
    section = elf.section(LIBRARIES_SECTION)
    if section is None or not 0 <= info.offset <= info.offset + info.size <= section.size:
        raise ArtifactError(f"{elf.what}: its copy of the library {info.soname} is gone; build it again")
    return bytes(elf.content(section)[info.offset : info.offset + info.size])


def open_library(info: LibraryInfo, data: bytes = b"") -> ctypes.CDLL:
    """Load the library ``info``, or return the one that is loaded.

    Args:
        info: what the artifact says of it.
        data: the file that the artifact brings; empty: none.

    Raises:
        LibraryNotFoundError: there is none, or those that are there are too old.
    """
    reasons: list[str] = []
    missing = ""
    for look in (_look_in_process, _look_in_artifact, _look_in_package, _look_in_system):
        try:
            library = look(info, data)
        except (OSError, LibraryNotFoundError) as error:
            reasons.append(str(error))
            continue
        if library is None:
            continue
        missing = missing_symbols(library, info.symbols)
        if not missing:
            return library
        reasons.append(f"{library._name} lacks {missing}")
        if look is _look_in_process:
            break  # the dynamic linker would take it all the same
        _ctypes.dlclose(library._handle)  # so that it does not take this one
    raise LibraryNotFoundError(f"`{info.soname}`: {'; '.join(reasons)}", missing)


def missing_symbols(library: ctypes.CDLL, symbols: tuple[str, ...]) -> str:
    """Those of ``symbols`` that a library does not export, as text; empty if it has all."""
    missing = [f"`{name}`" for name in symbols if not hasattr(library, name)]
    more = f" and {count(len(missing) - _LISTED, 'other')}" if len(missing) > _LISTED else ""
    return ", ".join(missing[:_LISTED]) + more


def _look_in_process(info: LibraryInfo, data: bytes) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(info.soname, os.RTLD_NOLOAD | os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError:
        return None


def _look_in_artifact(info: LibraryInfo, data: bytes) -> ctypes.CDLL | None:
    if not data:
        return None
    import tempfile

    with tempfile.TemporaryDirectory(prefix="farcall-library-") as folder:
        path = Path(folder) / info.soname
        path.write_bytes(data)
        return ctypes.CDLL(str(path), os.RTLD_NOW | os.RTLD_LOCAL)


def _look_in_package(info: LibraryInfo, data: bytes) -> ctypes.CDLL | None:
    if not info.package:
        return None
    try:
        package = metadata.distribution(info.package)
    except metadata.PackageNotFoundError:
        raise LibraryNotFoundError(f"the package {info.package} is not installed") from None
    if _numbers(package.version) < _numbers(info.version):
        raise LibraryNotFoundError(
            f"the package {info.package} is version {package.version}, expected {info.version} or later"
        )
    for file in package.files or ():
        if file.name == info.soname:
            path = Path(str(package.locate_file(file))).resolve()
            return ctypes.CDLL(str(path), os.RTLD_NOW | os.RTLD_LOCAL)
    raise LibraryNotFoundError(f"the package {info.package} {package.version} has no such file")


def _look_in_system(info: LibraryInfo, data: bytes) -> ctypes.CDLL:
    return ctypes.CDLL(info.soname, os.RTLD_NOW | os.RTLD_LOCAL)


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version as numbers: ``0.3.34`` is later than ``0.3.9``."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()
