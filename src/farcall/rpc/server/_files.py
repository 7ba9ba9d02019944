"""Files of one session: a client's file names resolve to paths in the session's folder only."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import ParamSpec, TypeVar

from farcall.errors import FarcallError, UsageError

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

_NAME_BYTES = 1024
_NAME_PARTS = 32  # shutil.rmtree holds one descriptor for each
_ANSWER_BYTES = 4 << 20
_BLOCK = 4096


def charge(size: int) -> int:
    """The bytes that a file counts against the limit: even an empty file takes space on the disk."""
    return max(size, _BLOCK)


class Workdir:
    """The folder of one session."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def path(self, name: str) -> Path:
        """The path of ``name`` in the folder. The file need not exist.

        Raises:
            UsageError: the name is absolute, contains ``..`` or a NUL, or leads out through a link.
        """
        reason = self._objection(name)
        path = self.root / name
        if reason is None and not path.parent.resolve().is_relative_to(self.root):
            reason = "it leads out through a link"
        if reason is None and path.is_symlink():
            reason = "it is a link"
        if reason is not None:
            raise UsageError(f"file name {name[:80]!r}: {reason}; give a plain name such as 'model.so'")
        return path

    @staticmethod
    def _objection(name: str) -> str | None:
        parts = PurePosixPath(name).parts
        if not name.strip() or "\0" in name or len(name.encode(errors="replace")) > _NAME_BYTES:
            return f"it is empty, contains a NUL or is longer than {_NAME_BYTES} bytes"
        if name.startswith(("/", "~")) or "\\" in name or ":" in parts[0] if parts else True:
            return "it is absolute, or has a drive or a backslash"
        if len(parts) > _NAME_PARTS:
            return f"it has more than {_NAME_PARTS} parts"
        return "it contains '..'" if ".." in parts else None

    def discreet(self, function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
        """Wrap a function so that its errors name files as the client does: they do not show the folder's
        path, nor names beside it.
        """

        @functools.wraps(function)
        def call(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
            try:
                return function(*args, **kwargs)
            except (OSError, FarcallError) as error:
                words = str(error).replace(f"{self.root}/", "").replace(f"{self.root.parent}/", "")
                raise type(error)(words) from error

        return call

    def place(self, name: str) -> str:
        """The path at which to write a file of this name; makes the folders in the name."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        return self.existing(name).read_bytes()

    def read_piece(self, name: str, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes of a file from ``offset`` on, at most 4 MiB."""
        with self.existing(name).open("rb", buffering=0) as file:
            return os.pread(file.fileno(), min(size, _ANSWER_BYTES), offset)

    def size(self, name: str) -> int:
        """The size of a file in bytes."""
        return self.existing(name).stat().st_size

    def total(self) -> int:
        """Bytes of all files; each counts as 4 KiB at least."""
        size = 0
        for folder, _, names in os.walk(self.root):
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # a process of the session removed it meanwhile
                    size += charge(Path(folder, name).lstat().st_size)
        return size

    def remove(self, name: str) -> None:
        """Delete a file."""
        self.existing(name).unlink()

    def listdir(self, name: str) -> str:
        """Names in a folder, sorted, separated by commas (the form that TVM's clients expect)."""
        folder = self.root if name in ("", ".", "/") else self.path(name)
        if not folder.is_dir():
            raise FileNotFoundError(f"no folder {name!r} in this session")
        return ",".join(sorted(entry.name for entry in folder.iterdir()))

    def existing(self, name: str) -> Path:
        """The path of a file that must exist."""
        path = self.path(name)
        if not path.is_file():
            raise FileNotFoundError(f"no file {name!r} in this session; upload it first")
        return path
