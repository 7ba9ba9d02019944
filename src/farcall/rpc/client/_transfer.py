"""Uploads and downloads: files travel in pieces, and are not sent if the server already has the content."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from farcall import _core
from farcall._files import unusable
from farcall._progress import Phase, Report
from farcall.abi import Signature
from farcall.errors import ArtifactError, RemoteError, UsageError
from farcall.library._attaching import read_signatures
from farcall.rpc.client._remote import Remote
from farcall.rpc.shared._content_names import HINT_ENDS, hint_of, library_name
from farcall.rpc.shared._limits import Limits

_WORTH_ASKING = 64 * 1024  # bytes; for smaller files, asking the server costs as much as sending
_PIECE = 512 * 1024  # bytes; a piece of this size stays in the processors' caches
_SMALLEST_PIECE = 1024  # bytes; a server with less room for a call refuses it, and says so
_READ, _WHOLE = "farcall.rpc.read", "tvm.rpc.server.download"
_AHEAD = 32  # pieces in flight; as many are wasted when the server's disk is full


class Carrier(NamedTuple):
    """How files travel to a server and back."""

    features: frozenset[str]  # of the server
    piece: int  # bytes of a file in one call

    @classmethod
    def of(cls, features: frozenset[str], limits: Mapping[str, Any]) -> Carrier:
        """For a server with these features and limits. It must hold a call with a piece, and its reply."""
        room = limits.get("call_bytes")
        piece = min(_PIECE, room // 2) if isinstance(room, int) else _PIECE
        return cls(features, max(piece, _SMALLEST_PIECE))


def upload_library(
    remote: Remote, file: Path, carrier: Carrier, progress: Report | None = None
) -> tuple[str, Mapping[str, Signature]]:
    """Store a library on the server; returns its name on the server, and the Signatures of its manifest."""
    with _open(file) as opened:
        data = opened.read()
    sha256 = hashlib.sha256(data).hexdigest()
    name = library_name(file, sha256)
    upload(remote, data, name, carrier, sha256, progress)
    try:
        return name, read_signatures(data, str(file))
    except ArtifactError:
        return name, {}  # the server reports the problem when it loads the library


def upload(
    remote: Remote,
    source: bytes | Path,
    name: str,
    carrier: Carrier,
    sha256: str | None = None,
    progress: Report | None = None,
) -> None:
    """Store bytes, or a file, in the session's folder. Content that the server already has is not sent.

    A file is sent to a farcall server while it is read.

    Args:
        remote: the server.
        source: the bytes, or the file's path.
        name: of the file on the server.
        carrier: how files travel to it.
        sha256: of the content; None: not known yet.
        progress: told about the phase ``upload``.

    Raises:
        UsageError: the file cannot be read, or becomes shorter meanwhile.
    """
    in_pieces = "files" in carrier.features
    with _content(source, streams=in_pieces) as content:
        phase = Phase(progress, "upload", content.size, "bytes", name)
        shares = in_pieces and content.size >= _WORTH_ASKING
        hint = _hint(content) if shares else ""
        if shares and _there_already(remote, name, content, hint, sha256):
            phase.end(f"{name}, which the server had")
            return
        if in_pieces and content.size > carrier.piece:
            _send_pieces(remote, name, content, carrier.piece, phase)
        else:
            remote.call("tvm.rpc.server.upload", name, content.part(0, content.size))
    if shares:
        remote.call("farcall.rpc.share", name, hint)
    phase.end(name)


def download(remote: Remote, name: str, carrier: Carrier, progress: Report | None = None) -> bytes:
    """The bytes of a file in the session's folder; a farcall server sends them while it reads them.

    ``progress`` is told about the phase ``download``.

    Raises:
        RemoteError: the file has more than 1 GiB, the limit of a call's values, or it changed meanwhile.
    """
    phase = Phase(progress, "download", None, "bytes", name)
    if "files" in carrier.features:
        data = _download(remote, name, carrier.piece, phase)
    else:
        data = remote.call_for(bytes, _WHOLE, name)
    phase.total = len(data)
    phase.end(name)
    return data


def _download(remote: Remote, name: str, piece: int, phase: Phase) -> bytes:
    first = remote.call_for(bytes, _READ, name, 0, piece)
    if len(first) < piece:
        return first
    phase.total = size = remote.call_for(int, "farcall.rpc.size", name)
    if size > Limits.string_bytes:
        raise RemoteError(
            f"{remote.url}: file {name[:80]!r} has {size} bytes, the limit is {Limits.string_bytes}"
        )
    phase.step(name, piece)
    return _read_rest(remote, name, first, size, phase)


def _read_rest(remote: Remote, name: str, first: bytes, size: int, phase: Phase) -> bytes:
    piece = len(first)
    data, places = io.BytesIO(first), range(piece, size, piece)
    data.seek(piece)
    pieces = _in_turn(remote, _READ, ((name, at, min(piece, size - at)) for at in places))
    for at, part in zip(places, pieces, strict=True):
        expected = min(piece, size - at)
        if data.write(remote.check(bytes, _READ, part)) != expected:
            raise RemoteError(
                f"{remote.url}: file {name[:80]!r} changed while it was read; download it again"
            )
        if phase.done + expected < size:  # download() reports the end
            phase.step(name, expected)
    return data.getvalue()


# ---- the content


class _Content(NamedTuple):
    size: int
    part: Callable[[int, int], bytes | memoryview]  # part(offset, size)

    def parts(self, piece: int = _PIECE) -> Iterator[tuple[int, bytes | memoryview]]:
        return ((at, self.part(at, min(piece, self.size - at))) for at in range(0, self.size, piece))


@contextmanager
def _content(source: bytes | Path, *, streams: bool) -> Iterator[_Content]:
    """A file's content, read at once unless it ``streams`` and has a size (pipes and /proc have none)."""
    if isinstance(source, bytes):
        yield _Content(len(source), _slices(source))
        return
    with _open(source) as file:
        about = os.fstat(file.fileno())
        if streams and stat.S_ISREG(about.st_mode) and about.st_size != 0:
            yield _Content(about.st_size, _reads(file, source))
        else:
            data = file.read()
            yield _Content(len(data), _slices(data))


def _open(path: Path) -> io.FileIO:
    try:
        return io.FileIO(path)
    except OSError as error:
        raise unusable(error, f"{path}: {error.strerror}; give the path of a file on this machine") from None


def _slices(data: bytes) -> Callable[[int, int], memoryview]:
    return lambda at, size: memoryview(data)[at : at + size]


def _reads(file: io.FileIO, path: Path) -> Callable[[int, int], bytes]:
    def read(at: int, size: int) -> bytes:
        part = os.pread(file.fileno(), size, at)
        if len(part) != size:
            raise UsageError(f"{path}: it became shorter while it was read; upload it again")
        return part

    return read


def _hint(content: _Content) -> str:
    size = min(content.size, HINT_ENDS)
    first, last = content.part(0, size), content.part(content.size - size, size)
    return hint_of(content.size, bytes(first), bytes(last))


# ---- the transfer


def _there_already(remote: Remote, name: str, content: _Content, hint: str, sha256: str | None) -> bool:
    """Whether the server already has the content. Hashes it only if the server has one with the same hint."""
    if not remote.call_for(bool, "farcall.rpc.known", hint):
        return False
    return remote.call_for(bool, "farcall.rpc.have", name, sha256 or _sha256(content), hint)


def _sha256(content: _Content) -> str:
    digest = hashlib.sha256()
    for _, part in content.parts():
        digest.update(part)
    return digest.hexdigest()


def _send_pieces(remote: Remote, name: str, content: _Content, piece: int, phase: Phase) -> None:
    """Send a file in pieces: the server writes one while the next travels, and needs memory for one."""
    pieces = ((name, at, content.size, part) for at, part in content.parts(piece))
    for _ in _in_turn(remote, "farcall.rpc.write", pieces):
        if phase.done + piece < content.size:  # upload() reports the end
            phase.step(name, piece)


def _in_turn(remote: Remote, function: str, items: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """The results of pipelined calls, in order. The first failure ends the iteration."""
    called, calls = remote.helper(function), deque[_core.Call]()
    with _core.Pipeline(remote.endpoint) as pipeline:
        for item in items:
            calls.append(pipeline(called, *item))
            if len(calls) == _AHEAD:
                yield calls.popleft().result()
        for call in calls:
            yield call.result()
