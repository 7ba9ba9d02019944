"""What this user has started by `farcall device start`: one small file for each device.

A record says where a server runs. Whether it still does, the device is asked.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from farcall._files import write_beside
from farcall.errors import UsageError


@dataclass(frozen=True)
class Place:
    """Where a server runs.

    Attributes:
        url: of its sessions, from this machine.
        url_there: at which it listens on the device; empty for a server on standard streams.
        folder: of farcall on the device, an absolute path.
        run: the name of its folder in there; empty for a server on standard streams.
        log: its log, a file in ``folder``.
    """

    url: str
    url_there: str
    folder: str
    run: str
    log: str


@dataclass(frozen=True)
class Started:
    """A server that stays until it is stopped.

    Attributes:
        device: the URL of the device.
        target: the machine that it is built for.
        program: the hash of the server's program.
        since: when it was started, in seconds of ``time.time``.
        place: where it runs.
    """

    device: str
    target: str
    program: str
    since: float
    place: Place


def run_folder() -> Path:
    """The folder of this user's running servers: ``$XDG_RUNTIME_DIR/farcall``, else one below /tmp.

    It is not in the cache, because a socket's path has at most 107 bytes, and because it should be gone when
    the machine starts again.

    Raises:
        UsageError: another user has made it.
    """
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute() and runtime.is_dir():
        folder = runtime / "farcall"
    else:
        folder = Path(f"/tmp/farcall-{os.getuid()}")  # noqa: S108  checked below
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UsageError(
            f"{str(folder)!r} is not a folder that only you can enter; remove it, or set XDG_RUNTIME_DIR"
        )
    return folder


@contextlib.contextmanager
def lock(device: str) -> Iterator[None]:
    """While one process of this user starts a server that stays on a device, others wait."""
    with _file(device).with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remember(started: Started) -> None:
    """Keep a record, in place of an earlier one of the same device."""
    write_beside(_file(started.device), json.dumps(asdict(started)).encode(), mode=0o600)


def forget(device: str) -> None:
    """Drop the record of a device, if there is one."""
    _file(device).unlink(missing_ok=True)


def find(device: str) -> Started | None:
    """The record of a device; None: nothing was started there."""
    return _read(_file(device))


def records() -> Iterator[Started]:
    """All records, the oldest first."""
    found = [record for file in run_folder().glob("started-*.json") if (record := _read(file))]
    yield from sorted(found, key=lambda record: record.since)


def _file(device: str) -> Path:
    return run_folder() / f"started-{hashlib.sha256(device.encode()).hexdigest()[:16]}.json"


def _read(file: Path) -> Started | None:
    try:
        values = json.loads(file.read_bytes())
        return Started(**{**values, "place": Place(**values["place"])})
    except (OSError, ValueError, TypeError, KeyError):  # gone, or of another version of farcall
        return None
