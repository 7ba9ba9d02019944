"""Stamps: small files beside the libraries, by which a later build finds the library of its sources.

The name of a library is a hash of its contents, and the library never changes. The name of a stamp is a
hash of the build's inputs. The stamp names the library, and lists the headers that the compilers read. A
rename replaces a stamp in one step. A reader therefore never sees a half-written library, or one of other
sources, on any file system and without locks.
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
        """Whether the file is unchanged, by size and time, or else (after a fresh checkout) by contents."""
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
    """The current state of each header, without duplicates."""
    out = []
    for path in dict.fromkeys(paths):
        status = Path(path).stat()
        out.append(Header(path, status.st_size, status.st_mtime_ns, file_digest(Path(path))))
    return tuple(out)


def find_built(stamp: Path) -> Path | None:
    """The library of a stamp, or None if the library is damaged or one of its headers has changed."""
    try:
        known = json.loads(stamp.read_bytes())
        library = stamp.with_name(known["file"])  # ValueError: not a file name
        whole: bool = file_digest(library) == known["sha256"]
        headers = [Header(*fields) for fields in known["headers"]]
    except (OSError, ValueError, KeyError, TypeError):  # there is no valid stamp: build the library
        return None
    return library if whole and all(header.is_same() for header in headers) else None


def write_stamp(stamp: Path, library: Path, sha256: str, headers: tuple[Header, ...]) -> None:
    """Write the stamp of a library.

    Raises:
        UsageError: the file cannot be written.
    """
    text = json.dumps({"file": library.name, "sha256": sha256, "headers": headers})
    write_beside(stamp, text.encode())
