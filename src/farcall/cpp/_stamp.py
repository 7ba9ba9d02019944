"""What was built from what: a small file beside a library, by which a later build finds it.

A library is named by its own content, and never changes. A stamp is named by what it was built from, says
which library that gave, and lists the headers that were read. It is replaced in one step. So no reader, on
whatever file system, meets a library that is torn, or belongs to other sources; and there is nothing to lock.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from farcall._files import write_beside


class Header(NamedTuple):
    """A header as it was when it was read."""

    path: str
    size: int
    mtime_ns: int
    sha256: str

    def is_same(self) -> bool:
        """Whether the file is still that: by size and time, or else by content (a fresh checkout, say)."""
        try:
            now = os.stat(self.path)  # noqa: PTH116 - dozens on the way of every load
            if (now.st_size, now.st_mtime_ns) == (self.size, self.mtime_ns):
                return True
            return now.st_size == self.size and file_digest(Path(self.path)) == self.sha256
        except OSError:
            return False


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_headers(paths: Iterable[str]) -> tuple[Header, ...]:
    """The headers as they are now, each once."""
    out = []
    for path in dict.fromkeys(paths):
        status = Path(path).stat()
        out.append(Header(path, status.st_size, status.st_mtime_ns, file_digest(Path(path))))
    return tuple(out)


def find_built(stamp: Path) -> Path | None:
    """The library of a stamp, when it is whole and its headers are what they were."""
    try:
        known = json.loads(stamp.read_bytes())
        library = stamp.with_name(known["file"])  # ValueError: it is no file name
        whole: bool = file_digest(library) == known["sha256"]
        headers = [Header(*fields) for fields in known["headers"]]
    except (OSError, ValueError, KeyError, TypeError):  # not there, or not a stamp: build it
        return None
    return library if whole and all(header.is_same() for header in headers) else None


def write_stamp(stamp: Path, library: Path, sha256: str, headers: tuple[Header, ...]) -> None:
    """Say which library ``stamp`` stands for.

    Raises:
        UsageError: the file cannot be written.
    """
    text = json.dumps({"file": library.name, "sha256": sha256, "headers": headers})
    write_beside(stamp, text.encode())
