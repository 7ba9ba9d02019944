"""Files: writes one beside its destination and renames it, so that a reader never sees half a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from farcall.errors import MissingFileError, UsageError


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
    target = Path(path)
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:64]}.", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
        Path(temporary).replace(target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise UsageError(
            f"cannot write {str(target)!r}: {error.strerror or error}; "
            "name a file in an existing folder that you may write to"
        ) from None


def unusable(error: OSError, message: str) -> UsageError:
    """The error of farcall for a file that cannot be opened."""
    return (MissingFileError if isinstance(error, FileNotFoundError) else UsageError)(message)
