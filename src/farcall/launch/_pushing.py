"""Puts files onto a device: beside their place, checked, and then renamed."""

from __future__ import annotations

import hashlib
import posixpath
import secrets
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from farcall._files import unusable
from farcall.errors import ConnectError, RemoteError
from farcall.launch import _scripts
from farcall.launch._launcher import Launcher

_CURES = (
    ("No space left", "free space there, or remove old files of farcall's folder"),
    ("quota", "free space there, or remove old files of farcall's folder"),
    ("Permission denied", "name a folder that you may write to"),
    ("Read-only", "name a folder that you may write to"),
    ("o such file or directory", "name a folder that exists there"),
    ("nonexistent", "name a folder that exists there"),
)


def push(launcher: Launcher, source: Path, path: str, *, timeout: float) -> None:
    """Copy a file of this machine to an absolute path on the device.

    Raises:
        MissingFileError, UsageError: the file cannot be read.
        ConnectError: it did not arrive whole; nothing is left behind there.
    """
    try:
        with source.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            info = source.stat()
    except OSError as error:
        raise unusable(error, f"cannot push {str(source)!r}: {error.strerror or error}") from None
    temporary = posixpath.join(posixpath.dirname(path), f".new-{secrets.token_hex(8)}")
    script = _scripts.settle(temporary, path, info.st_size, sha256, info.st_mode & 0o777)
    try:
        launcher.put(source, temporary, timeout=timeout)
        done = launcher.run(script, timeout=timeout)
        if done.code:
            raise ConnectError(done.stderr.strip() or f"status {done.code}")
    except BaseException as error:
        with suppress(RemoteError):
            launcher.run(_scripts.remove(temporary), timeout=timeout)
        if isinstance(error, ConnectError):
            _refuse(launcher, source, path, error)
        raise


def _refuse(launcher: Launcher, source: Path, path: str, error: ConnectError) -> NoReturn:
    said = str(error).removeprefix(f"{launcher.url}: ")
    cure = next((cure for phrase, cure in _CURES if phrase in said), "")
    raise type(error)(
        f"{launcher.url}: cannot push {source.name!r} to {path!r}: {said}{f'; {cure}' if cure else ''}"
    ) from None
