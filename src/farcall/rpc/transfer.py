"""Files on their way to a server: not sent where the content is there, with a progress bar when long."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from farcall import _core
from farcall.abi import Signature
from farcall.abi.attaching import read_signatures
from farcall.errors import ArtifactError, UsageError
from farcall.rpc.remote import Remote
from farcall.rpc.store import hint_of

_WORTH_ASKING = 64 * 1024  # bytes; below, asking costs as much as sending
_WORTH_SHOWING = 8 * 1024 * 1024
_PIECE = 512 * 1024  # of a file for a farcall server


def read(path: Path) -> bytes:
    """The bytes of a file of this machine.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give the path of a file on this machine") from None


def upload_library(
    remote: Remote, file: Path, features: frozenset[str]
) -> tuple[str, Mapping[str, Signature]]:
    """Store a library on the server; answers its name there, and what its manifest says of its functions.

    The content's hash keeps two files of one name apart; the suffix chooses the loader (TVM's rule).
    """
    data = read(file)
    digest = hashlib.sha256(data).hexdigest()
    name = f"{file.stem[:64]}-{digest[:16]}{file.suffix or '.so'}"
    upload(remote, data, name, features)
    try:
        return name, read_signatures(data, str(file))
    except ArtifactError:
        return name, {}  # the server says what is wrong with it


def upload(remote: Remote, data: bytes, name: str, features: frozenset[str]) -> None:
    """Store bytes in the session's folder; where the server has them already, they are not sent."""
    shares = "files" in features and len(data) >= _WORTH_ASKING
    hint = hint_of(data) if shares else ""
    if shares and _there_already(remote, name, data, hint):
        return
    send = _send_pieces if shares and len(data) > _PIECE else _send_whole
    if len(data) < _WORTH_SHOWING or not sys.stderr.isatty():
        send(remote, name, data)
    else:
        with _progress(remote, name, len(data)):
            send(remote, name, data)
    if shares:
        remote.call("farcall.rpc.share", name, hint)


def _there_already(remote: Remote, name: str, data: bytes, hint: str) -> bool:
    """The whole content is hashed only where a file that looks like it is there."""
    if not remote.call("farcall.rpc.known", hint):
        return False
    return bool(remote.call("farcall.rpc.have", name, hashlib.sha256(data).hexdigest(), hint))


def _send_whole(remote: Remote, name: str, data: bytes) -> None:
    remote.call("tvm.rpc.server.upload", name, data)


def _send_pieces(remote: Remote, name: str, data: bytes) -> None:
    """The server writes a piece while the next is on its way, and needs memory for one."""
    write, view, total = remote.helper("farcall.rpc.write"), memoryview(data), len(data)
    with _core.Pipeline(remote.endpoint) as pipeline:
        pipeline.map(write, ((name, at, total, view[at : at + _PIECE]) for at in range(0, total, _PIECE)))


@contextmanager
def _progress(remote: Remote, name: str, size: int) -> Iterator[None]:
    """A bar on stderr, which follows the session's counter of bytes."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("upload {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=size)
        before = remote.endpoint.sent
        done = threading.Event()

        def follow() -> None:
            while not done.wait(0.1):
                progress.update(task, completed=min(remote.endpoint.sent - before, size))

        watcher = threading.Thread(target=follow, daemon=True)
        watcher.start()
        try:
            yield
            progress.update(task, completed=size)
        finally:
            done.set()
            watcher.join()
