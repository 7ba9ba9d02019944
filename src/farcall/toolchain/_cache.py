"""The cache of compiled objects: a folder of files, each named by a hash of all its inputs.

The cache builds a file beside its place and then renames it, so a reader sees a complete file or none. What a
power cut or a full disk left of one does not match the checksum beside it, and is made again. Several
processes may build the same file at once: the last one wins, with equal contents. The cache uses no locks.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

_FORMAT = "farcall objects 1"  # part of every key: change it when the format of the files changes


def cache_folder() -> Path:
    """The folder of compiled objects.

    It is ``$FARCALL_CACHE_DIR``, else ``$XDG_CACHE_HOME/farcall``, else ``~/.cache/farcall``. If that folder
    cannot be written, it is a temporary folder, which is deleted when this process ends.
    """
    if wanted := os.environ.get("FARCALL_CACHE_DIR"):
        return _usable(Path(wanted).absolute())
    return user_cache("farcall")


def user_cache(name: str) -> Path:
    """The folder ``name`` among the user's caches; one of this process when it cannot be written."""
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:  # XDG base directory specification: a path that is not absolute is ignored
        return _usable((root if root.is_absolute() else Path.home() / ".cache") / name)
    except RuntimeError:  # no home
        return _temporary_folder()


@functools.cache
def _usable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return _temporary_folder()


@functools.cache
def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="farcall-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def content_key(parts: Iterable[str | bytes]) -> str:
    """A key for the result of ``parts``. Only equal lists of parts have the same key."""
    digest = hashlib.sha256(_FORMAT.encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def cached(key: str, suffix: str, make: Callable[[Path], None]) -> Path:
    """The file of ``key``. If it does not exist yet, or is damaged, ``make(path)`` makes it.

    Raises:
        OSError: the file cannot be written, for example because the disk is full.
        Exception: an error of ``make``, after which no file is left behind.
    """
    place = cache_folder() / "objects" / key[:2] / (key[2:] + suffix)
    if _is_whole(place):
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".new-") as beside:
        new = Path(beside) / place.name
        make(new)
        checksum = Path(beside) / "checksum"
        checksum.write_text(_checksum(new))
        checksum.replace(_checksum_of(place))
        new.replace(place)
    return place


def _is_whole(place: Path) -> bool:
    try:
        return _checksum_of(place).read_text() == _checksum(place)
    except (OSError, UnicodeDecodeError):
        return False


def _checksum_of(place: Path) -> Path:
    return place.with_name(f"{place.name}.crc32")


def _checksum(file: Path) -> str:
    return f"{zlib.crc32(file.read_bytes()):08x}"
