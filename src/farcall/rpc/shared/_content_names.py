"""Names by which client and server recognise the content of a file, so that it is not sent twice."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from farcall.errors import UsageError

HINT_ENDS = 64 * 1024  # bytes at either end that a hint covers
_HINT = re.compile(r"[0-9]{1,20}-[0-9a-f]{32}")
_DIGEST = re.compile(r"-[0-9a-f]{16}(?=\.[^./]*$)")  # in the name of a library: see library_name


def hint_of(size: int, first: bytes, last: bytes) -> str:
    """A cheap fingerprint of a content: its size, and a hash of its two ends.

    Args:
        size: of the content, in bytes.
        first: its first 64 KiB; all of a shorter content.
        last: its last 64 KiB.
    """
    return f"{size}-{hashlib.sha256(first + last).hexdigest()[:32]}"


def check_hint(hint: str) -> None:
    """Refuse a text that :func:`hint_of` cannot have written.

    Raises:
        UsageError: the text is not SIZE-HASH.
    """
    if not _HINT.fullmatch(hint):
        raise UsageError(f"{hint[:80]!r} is no hint of a content; expected SIZE-HASH")


def library_name(file: Path, sha256: str) -> str:
    """The name of a library on a server.

    The hash distinguishes two libraries with the same file name; the suffix chooses the loader (TVM's rule).
    """
    return f"{file.stem[:64]}-{sha256[:16]}{file.suffix or '.so'}"


def name_of_all_builds(name: str) -> str:
    """The name of a library without its hash, which all its builds share."""
    return _DIGEST.sub("", name)
