"""Errors for files that a build cannot write: they name the folders and the cure."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from farcall.errors import UsageError
from farcall.toolchain._cache import cache_folder

_CURES = {
    errno.ENOSPC: "free space there, or set these variables to folders on another disk",
    errno.EDQUOT: "free space there, or set these variables to folders on another disk",
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f)",
}


@contextmanager
def room_to(act: str) -> Iterator[None]:
    """Raise a UsageError if the body cannot write its files: no space left, a limit, no permission.

    Args:
        act: the action of the body, as in ``cannot {act}``.

    Raises:
        UsageError: the body raised an OSError.
    """
    try:
        yield
    except OSError as error:
        cure = _CURES.get(error.errno or 0, "set these variables to folders that you may write to")
        raise UsageError(
            f"cannot {act}: {error.strerror or error}; temporary files go to {_name(tempfile.gettempdir)} "
            f"(TMPDIR), compiled objects to {_name(cache_folder)} (FARCALL_CACHE_DIR): {cure}"
        ) from error


def _name(folder: Callable[[], str | Path]) -> str:
    try:
        return repr(str(folder()))
    except OSError:
        return "no folder, since none is writable"
