"""What sessions of one server uploaded, so that the next one need not send it again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from farcall import _core
from farcall.rpc.server._files import Workdir
from farcall.rpc.shared._content_names import check_hint, name_of_all_builds

NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_EACH = 2  # contents of one name: the one that a session may have, and the one before
_COUNT = 64  # contents in all
_SHARE = 10  # of what is free on the disk, a store takes one part in so many
_PIECE = 512 * 1024  # of a file that is copied
_WORTH = 64 * 1024  # bytes of a file, from which on its memory is worth keeping


class _Entry(NamedTuple):
    """A file of the store; its name there is ``HINT.LABEL``."""

    changed: int  # ns
    size: int
    hint: str
    label: str
    path: Path


class ContentStore:
    """The last contents of each name that the sessions of one owner uploaded.

    What is here are further names of files in sessions' folders. Their sessions may write to them: so a
    content counts only where its hash is right, and a session gets a copy, unless no other has the file.

    A new content is written over the oldest one of its name. That bounds what a hundred builds of one library
    take; and new memory for a file can cost several times what sending its bytes does, on a virtual machine.

    Args:
        root: folder of the store; made when it is needed. Several processes may use it at a time.
        limit: bytes, in all; fewer where the disk has little room. The oldest contents go first.
    """

    def __init__(self, root: Path, limit: int = 1 << 30) -> None:
        self._root = root
        self._limit = limit

    def size(self, hint: str) -> int | None:
        """Bytes of the file that may be it; None: there is none."""
        entry = self._find(hint)
        return None if entry is None else entry.size

    def fetch(self, hint: str, sha256: str, target: Path) -> bool:
        """Make the file appear as ``target`` if it is the one with this hash."""
        if (entry := self._find(hint)) is None:
            return False
        beside = target.with_name(f".{secrets.token_hex(8)}.part")
        try:
            if (_move(entry.path, beside) or _copy(entry.path, beside)) != sha256:
                return False
            os.utime(entry.path)  # what is asked for goes last
            beside.replace(target)
        except FileNotFoundError:  # another session was faster
            return False
        finally:
            beside.unlink(missing_ok=True)
        return True

    def add(self, hint: str, name: str, file: Path) -> None:
        """Take a file in. Without room, or where the disk cannot link, nothing happens."""
        check_hint(hint)
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            if file.stat().st_size <= self._bound([]):
                self._link(file, self._root / f"{hint}.{_label(name)}")
                self._tidy()

    def take(self, name: str, size: int, beside: Path) -> int | None:
        """Take out what a new content will replace, to be written over; None: nothing can be.

        Args:
            name: of the new content.
            size: its bytes.
            beside: where the file is from now on.

        Returns:
            Its descriptor.
        """
        entries = self._entries() if size >= _WORTH else []
        alike = [entry for entry in entries if entry.label == _label(name)]
        if len(alike) >= _EACH:
            return _take(alike[-1].path, beside)
        if entries and (len(entries) >= _COUNT or _bytes(entries) + size > self._bound(entries)):
            return _take(entries[-1].path, beside)
        return None

    # ---- the folder

    def _entries(self) -> list[_Entry]:
        """The newest first. What another process removes meanwhile is none."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for path in self._root.iterdir():
                hint, _, label = path.name.partition(".")
                if label:
                    with contextlib.suppress(FileNotFoundError):
                        about = path.lstat()
                        if stat.S_ISREG(about.st_mode):
                            found.append(_Entry(about.st_mtime_ns, about.st_size, hint, label, path))
        return sorted(found, reverse=True)

    def _find(self, hint: str) -> _Entry | None:
        check_hint(hint)
        return next((entry for entry in self._entries() if entry.hint == hint), None)

    def _link(self, file: Path, path: Path) -> None:
        beside = self._root / secrets.token_hex(8)
        os.link(file, beside, follow_symlinks=False)
        beside.replace(path)
        beside.unlink(missing_ok=True)  # both were names of one file already: then renaming does nothing

    def _tidy(self) -> None:
        """Remove what is too much, the oldest first, and the older one of two that share a hint."""
        entries, kept = self._entries(), list[_Entry]()
        bound = self._bound(entries)
        for entry in entries:
            alike = sum(other.label == entry.label for other in kept)
            double = any(other.hint == entry.hint for other in kept)
            if double or alike == _EACH or len(kept) == _COUNT or _bytes([*kept, entry]) > bound:
                entry.path.unlink(missing_ok=True)
            else:
                kept.append(entry)

    def _bound(self, entries: list[_Entry]) -> int:
        """Bytes that all contents may take, where these are there."""
        disk = os.statvfs(self._root)
        return min(self._limit, (disk.f_bavail * disk.f_frsize + _bytes(entries)) // _SHARE)


def _bytes(entries: Iterable[_Entry]) -> int:
    return sum(entry.size for entry in entries)


def _label(name: str) -> str:
    """The same for all builds of one library."""
    return hashlib.sha256(name_of_all_builds(os.path.normpath(name)).encode()).hexdigest()[:32]


def _take(path: Path, beside: Path) -> int | None:
    """Rename a file to ``beside`` and open it, if nothing else in this machine refers to it."""
    try:
        if path.stat(follow_symlinks=False).st_nlink != 1:
            return None
        path.replace(beside)  # of several who want it, one gets it
    except OSError:
        return None
    with contextlib.suppress(OSError):  # a program that runs cannot be opened so
        fd = os.open(beside, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        if _core.file_is_ours(fd):
            os.fchmod(fd, 0o700)
            return fd
        os.close(fd)
    beside.replace(path)
    return None


def _move(path: Path, beside: Path) -> str | None:
    """The hash of a file that no session has any more: it needs no copy. None: one has it."""
    fd = _take(path, beside)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with contextlib.suppress(FileExistsError):  # another session uploaded it meanwhile
        os.link(beside, path)
    return digest


def _copy(path: Path, beside: Path) -> str:
    """The hash of the copy."""
    digest = hashlib.sha256()
    with path.open("rb") as source, os.fdopen(os.open(beside, NEW_FILE, 0o700), "wb") as copy:
        while piece := source.read(_PIECE):
            digest.update(piece)
            copy.write(piece)
    return digest.hexdigest()


class SharedFiles:
    """A session's folder beside the store: what the feature ``files`` offers (docs/rpc.md).

    Args:
        files: the folder.
        store: gives the store.
        reserve: counts a file among those of the session, by name and size, or raises.
    """

    def __init__(
        self, files: Workdir, store: Callable[[], ContentStore], reserve: Callable[[str, int], None]
    ) -> None:
        self._files = files
        self._store = store
        self._reserve = reserve

    def known(self, hint: str) -> bool:
        """``farcall.rpc.known``"""
        return self._store().size(hint) is not None

    def have(self, name: str, sha256: str, hint: str) -> bool:
        """``farcall.rpc.have``"""
        store, target = self._store(), Path(self._files.place(name))
        if (size := store.size(hint)) is None:
            return False
        self._reserve(name, size)
        return store.fetch(hint, sha256, target)

    def share(self, name: str, hint: str) -> None:
        """``farcall.rpc.share``"""
        self._store().add(hint, name, self._files.existing(name))
