"""The cache of compiled objects: a folder of files, each named by a hash of all its inputs.

The cache builds a file beside its place and then renames it, so a reader sees a complete file or none.
Several processes may build the same file at once: the last one wins, with equal contents. The cache uses no
locks.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
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
    """The file of ``key``. If it does not exist yet, ``make(path)`` makes it.

    Raises:
        OSError: the file cannot be written, for example because the disk is full.
        Exception: an error of ``make``, after which no file is left behind.
    """
    place = cache_folder() / "objects" / key[:2] / (key[2:] + suffix)
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".new-") as beside:
        new = Path(beside) / place.name
        make(new)
        new.replace(place)
    return place
