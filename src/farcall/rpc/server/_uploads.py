"""Uploads into a session's folder: each is written under a temporary name, and renamed when it is whole."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from farcall import _core
from farcall.errors import UsageError
from farcall.rpc.server._files import Workdir, charge
from farcall.rpc.server._store import NEW_FILE, ContentStore


@dataclass
class _Part:
    """A file that is not whole yet."""

    fd: int
    beside: Path
    target: Path
    total: int
    next: int = 0  # where its next piece begins

    def finish(self) -> None:
        try:
            os.ftruncate(self.fd, self.total)  # an older file that was written over may be longer
        finally:
            os.close(self.fd)
        self.beside.replace(self.target)

    def drop(self) -> None:
        os.close(self.fd)
        self.beside.unlink(missing_ok=True)


class Uploads:
    """The uploads of one session. No file is written in place, so a loaded library keeps its old file.

    Args:
        files: the session's folder.
        store: returns the store, whose old contents are written over; None: there is no store.
        limit: bytes of all the session's files.
    """

    def __init__(
        self, files: Workdir, store: Callable[[], ContentStore] | None, limit: int = 32 << 30
    ) -> None:
        self._files = files
        self._store = store
        self._limit = limit
        self._used = 0  # bytes; an upper bound: removed files count until the limit is reached
        self._parts: dict[str, _Part] = {}

    def reserve(self, name: str, size: int) -> None:
        """Count a file before it is written.

        Raises:
            OSError: the session's files would exceed the limit.
        """
        self._used += charge(size)
        if self._used > self._limit:
            awaited = sum(part.total - part.next for part in self._parts.values())
            self._used = self._files.total() + awaited + charge(size)
        if self._used > self._limit:
            self._used -= charge(size)
            raise OSError(
                errno.EDQUOT,
                f"file {name[:80]!r} has {size} bytes, and the files of this session take {self._used} of at "
                f"most {self._limit} (Limits.files_bytes of the server); remove some",
            )

    def writer(self) -> _core.Function:
        """The function that receives files: see :func:`farcall._core.file_writer`."""
        return _core.file_writer(self._files.discreet(self._begin), self._files.discreet(self._end))

    def _begin(self, name: str, offset: int, size: int, total: int) -> int:
        part = self._create(name, total) if offset == 0 else self._parts.get(name)
        if part is None or (part.next, part.total) != (offset, total):
            raise UsageError(
                f"file {name[:80]!r}: no piece is awaited at byte {offset} of {total}; "
                "send the pieces in order, from the beginning"
            )
        part.next += size
        return part.fd

    def _create(self, name: str, total: int) -> _Part:
        if (before := self._parts.pop(name, None)) is not None:
            before.drop()
        target = Path(self._files.place(name))
        self.reserve(name, total)
        beside = target.with_name(f".{secrets.token_hex(8)}.part")
        fd = None if self._store is None else self._store().take(name, total, beside)
        if fd is None:
            fd = os.open(beside, NEW_FILE, 0o700)
        self._parts[name] = part = _Part(fd, beside, target, total)
        return part

    def _end(self, name: str, whole: bool) -> None:
        part = self._parts.pop(name)
        if not whole:
            part.drop()
            return
        try:
            part.finish()
        except OSError as error:
            part.beside.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, name) from None
