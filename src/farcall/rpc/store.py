"""What sessions of one server uploaded, so that the next one need not send it again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
from pathlib import Path

from farcall.errors import UsageError
from farcall.rpc.files import Workdir

_ENDS = 64 * 1024  # bytes at either end that a hint covers
_HINT = re.compile(r"[0-9]{1,20}-[0-9a-f]{32}")


def hint_of(data: bytes) -> str:
    """What is cheap to know of a content: its size, and a hash over both ends."""
    digest = hashlib.sha256(data[:_ENDS] + data[-_ENDS:]).hexdigest()
    return f"{len(data)}-{digest[:32]}"


class ContentStore:
    """Files by the hint of their content, the newest of each.

    What is here are further names of files in sessions' folders. Their sessions may write to them: so a file
    is copied first, and the copy is what must have the hash.

    Args:
        root: folder of the store; made when it is needed.
        limit: bytes, in all; the oldest files go first.
    """

    def __init__(self, root: Path, limit: int = 4 << 30) -> None:
        self._root = root
        self._limit = limit

    def known(self, hint: str) -> bool:
        """Whether there is a file that may be it."""
        return self._path(hint).is_file()

    def fetch(self, hint: str, sha256: str, target: Path) -> bool:
        """Copy the file to ``target`` if it is the one with this hash."""
        beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            shutil.copyfile(self._path(hint), beside, follow_symlinks=False)
            with beside.open("rb") as file:
                same = hashlib.file_digest(file, "sha256").hexdigest() == sha256
            if same:
                beside.chmod(0o700)
                beside.replace(target)
            return same
        except FileNotFoundError:
            return False
        finally:
            beside.unlink(missing_ok=True)

    def add(self, hint: str, file: Path) -> None:
        """Take a file in. Without room, or where the disk cannot link, nothing happens."""
        if file.stat().st_size > self._limit:
            return
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self._root / secrets.token_hex(8)
        with contextlib.suppress(OSError):
            os.link(file, beside, follow_symlinks=False)
            beside.replace(self._path(hint))
            self._shrink()
        beside.unlink(
            missing_ok=True
        )  # also when both were names of one file already: rename does nothing then

    def _shrink(self) -> None:
        files = sorted((entry.stat().st_mtime, entry.stat().st_size, entry) for entry in self._root.iterdir())
        total = sum(size for _, size, _ in files)
        for _, size, entry in files:
            if total <= self._limit:
                return
            entry.unlink(missing_ok=True)
            total -= size

    def _path(self, hint: str) -> Path:
        if not _HINT.fullmatch(hint):
            raise UsageError(f"{hint[:80]!r} is no hint of a content; expected SIZE-HASH")
        return self._root / hint


class SharedFiles:
    """A session's folder beside the store: what the feature ``files`` offers (docs/rpc.md)."""

    def __init__(self, files: Workdir, store: ContentStore) -> None:
        self._files = files
        self._store = store

    def known(self, hint: str) -> bool:
        """``farcall.rpc.known``"""
        return self._store.known(hint)

    def have(self, name: str, sha256: str, hint: str) -> bool:
        """``farcall.rpc.have``"""
        return self._store.fetch(hint, sha256, Path(self._files.place(name)))

    def share(self, name: str, hint: str) -> None:
        """``farcall.rpc.share``"""
        self._store.add(hint, self._files.existing(name))
