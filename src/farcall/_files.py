"""Files: writes one beside its destination and renames it, so that a reader never sees half a file."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

from farcall.errors import MissingFileError, UsageError

_PIECE = 8 << 20


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a file that :func:`write_beside` could not write, before the work for its contents begins.

    Raises:
        UsageError: the folder of the file is missing or not writable.
    """
    folder = Path(path).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"cannot write {str(path)!r}: {'no access to' if folder.is_dir() else 'there is no'} folder "
            f"{str(folder)!r}; name a file in an existing folder that you may write to"
        )


def write_beside(path: str | os.PathLike[str], data: bytes, mode: int = 0o644) -> None:
    """Write ``data`` to ``path`` in one step.

    Args:
        path: the file to create or replace; its folder must exist.
        data: the complete contents.
        mode: permission bits of the new file.

    Raises:
        UsageError: the file cannot be written; no partial file is left behind.
    """
    _fill_beside(Path(path), lambda file: file.write(data), mode)


def copy_beside(path: str | os.PathLike[str], source: Path, mode: int = 0o644) -> None:
    """The same with the contents of the file ``source``.

    Large pieces of memory make large pages of the system's cache, by which a mapped file is read faster:
    copies that the system makes by itself have small ones.

    Raises:
        UsageError: the file cannot be written; no partial file is left behind.
    """
    with source.open("rb") as content:
        _fill_beside(Path(path), lambda file: shutil.copyfileobj(content, file, _PIECE), mode)


def link_beside(path: str | os.PathLike[str], source: Path, mode: int = 0o644) -> bool:
    """Give the file ``source`` the second name ``path`` in one step, and these permissions.

    False where that is not possible, for example on another file system: :func:`copy_beside` then writes the
    file, or says why it cannot.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name[:64]}.{secrets.token_hex(8)}")
    try:
        os.link(source, beside)
    except OSError:
        return False
    try:
        beside.chmod(mode)
        beside.replace(target)
    except OSError:
        beside.unlink(missing_ok=True)
        return False
    return True


def _fill_beside(target: Path, fill: Callable[[BinaryIO], object], mode: int) -> None:
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:64]}.", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            fill(file)
            os.fchmod(file.fileno(), mode)
        Path(temporary).replace(target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise UsageError(
            f"cannot write {str(target)!r}: {error.strerror or error}; "
            "name a file in an existing folder that you may write to"
        ) from None


def mapped(path: Path) -> memoryview:
    """The bytes of a file that is not empty; they show what is written to it later."""
    with path.open("rb") as file:
        return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))


def unusable(error: OSError, message: str) -> UsageError:
    """The error of farcall for a file that cannot be opened."""
    return (MissingFileError if isinstance(error, FileNotFoundError) else UsageError)(message)
