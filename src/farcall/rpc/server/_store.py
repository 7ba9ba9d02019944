"""Files that the sessions of one server uploaded, kept so that the next session need not send them again."""

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
_EACH = 2  # contents kept of one name: the latest, which a session may use, and the one before it
_COUNT = 64  # contents in all
_SHARE = 10  # a store takes at most 1/10 of the free space on the disk
_PIECE = 512 * 1024  # bytes to copy at a time
_WORTH = 64 * 1024  # bytes; writing over a smaller file saves nothing


class _Entry(NamedTuple):
    """A file of the store, named ``HINT.LABEL``."""

    changed: int  # ns
    size: int
    hint: str
    label: str
    path: Path


class ContentStore:
    """The last contents of each name that the sessions of one owner uploaded.

    An entry is a hard link to a file in a session's folder, which that session may still write to. So the
    store checks the hash of a content before use, and copies the file while any session still has it.

    A new content is written over the oldest one of its name. That bounds the space that a hundred builds of
    one library take; and on a virtual machine, new memory for a file can cost several times as much as
    sending its bytes.

    Args:
        root: folder of the store; made when it is needed. Several processes may use it at a time.
        limit: bytes of all contents; fewer where the disk has little room. The oldest are removed first.
    """

    def __init__(self, root: Path, limit: int = 1 << 30) -> None:
        self._root = root
        self._limit = limit

    def size(self, hint: str) -> int | None:
        """The size in bytes of the file with this hint; None: there is none."""
        entry = self._find(hint)
        return None if entry is None else entry.size

    def fetch(self, hint: str, sha256: str, target: Path) -> bool:
        """Make the file with this hint appear as ``target`` if it has this hash; return whether it had."""
        if (entry := self._find(hint)) is None:
            return False
        beside = target.with_name(f".{secrets.token_hex(8)}.part")
        try:
            if (_move(entry.path, beside) or _copy(entry.path, beside)) != sha256:
                return False
            os.utime(entry.path)  # so that it is removed last
            beside.replace(target)
        except FileNotFoundError:  # another session has taken or removed it
            return False
        finally:
            beside.unlink(missing_ok=True)
        return True

    def add(self, hint: str, name: str, file: Path) -> None:
        """Link a file into the store. Without room, or where the disk cannot link, do nothing."""
        check_hint(hint)
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            if file.stat().st_size <= self._bound([]):
                self._link(file, self._root / f"{hint}.{_label(name)}")
                self._tidy()

    def take(self, name: str, size: int, beside: Path) -> int | None:
        """Take out the file that a new content replaces, so that the caller writes over it.

        Args:
            name: of the new content.
            size: of the new content, in bytes.
            beside: the path to which the file is renamed.

        Returns:
            The file's descriptor, which the caller owns; None: no file can be written over.
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
        """All entries, the newest first, without those that another process removes meanwhile."""
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
        beside.unlink(missing_ok=True)  # rename does nothing when both names already link to one file

    def _tidy(self) -> None:
        """Remove entries beyond the bounds, the oldest first, and the older of two with the same hint."""
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
    """A label that all builds of one library share."""
    return hashlib.sha256(name_of_all_builds(os.path.normpath(name)).encode()).hexdigest()[:32]


def _take(path: Path, beside: Path) -> int | None:
    """Rename a file to ``beside`` and open it, if nothing else on this machine refers to it."""
    try:
        if path.stat(follow_symlinks=False).st_nlink != 1:
            return None
        path.replace(beside)  # only one of several competing processes succeeds
    except OSError:
        return None
    with contextlib.suppress(OSError):  # the kernel refuses to open a running program for writing
        fd = os.open(beside, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        if _core.file_is_ours(fd):
            os.fchmod(fd, 0o700)
            return fd
        os.close(fd)
    beside.replace(path)
    return None


def _move(path: Path, beside: Path) -> str | None:
    """Move a file that no session has any more, without a copy; return its hash. None: a session has it."""
    fd = _take(path, beside)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with contextlib.suppress(FileExistsError):  # another session uploaded it meanwhile
        os.link(beside, path)
    return digest


def _copy(path: Path, beside: Path) -> str:
    """Copy a file; return the hash of the copy."""
    digest = hashlib.sha256()
    with path.open("rb") as source, os.fdopen(os.open(beside, NEW_FILE, 0o700), "wb") as copy:
        while piece := source.read(_PIECE):
            digest.update(piece)
            copy.write(piece)
    return digest.hexdigest()


class SharedFiles:
    """Copies files between a session's folder and the store: the feature ``files`` (docs/spec/wire.md).

    Args:
        files: the session's folder.
        store: returns the store.
        reserve: counts a file of a name and a size among those of the session, or raises.
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
