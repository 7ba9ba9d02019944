"""The cache of compiled objects: a folder of files named by the hash of everything that made them.

A file is built beside its place and then renamed, so a reader sees a whole file or none, also when several
processes build the same one at once: the last one wins, with equal content. Nothing is ever locked.
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

_FORMAT = "farcall objects 1"  # part of every key: change it when what is in the files changes


def cache_folder() -> Path:
    """Where compiled objects are kept.

    ``$FARCALL_CACHE_DIR``, else ``$XDG_CACHE_HOME/farcall``, else ``~/.cache/farcall``. When it cannot be
    written, a folder of this process that goes away with it.
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
    """A name for what is made from ``parts``: two lists of parts share it only when they are equal."""
    digest = hashlib.sha256(_FORMAT.encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def cached(key: str, suffix: str, make: Callable[[Path], None]) -> Path:
    """The file of ``key``, made by ``make(path)`` when it is not there yet.

    Raises:
        OSError: the file cannot be written (no space left).
        Exception: whatever ``make`` raises; nothing is left behind then.
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
