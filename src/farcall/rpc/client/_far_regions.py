"""The loader of modules of kind ``farcall.remote``: regions of an artifact that a session computes.

The module's artifacts are loaded on the far side once, when the artifact is loaded here. A function of the
module sends the region's inputs, calls the far ``main``, and copies what it returns to the region's outputs.
"""

from __future__ import annotations

import ctypes
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farcall import _core
from farcall.errors import (
    ArtifactError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    FarcallError,
    ProtocolError,
    RemoteError,
    WorkerCrashedError,
)
from farcall.library import module_kind
from farcall.library._far import KIND, VERSION, FarRegion, Head, unpack
from farcall.library._places import places
from farcall.rpc.client._connecting import connect
from farcall.rpc.client._session import Session

if TYPE_CHECKING:
    from farcall._core import Function, Module, Tensor
    from farcall.library import Blob

_LOST = (ConnectionLostError, DeadlineExceededError, WorkerCrashedError)  # the session is over


@module_kind(KIND, versions=(VERSION,))
def load(blob: Blob) -> Module:
    """Connect, and load the artifacts of a module on the far side."""
    head, parts = unpack(blob.data)
    with _naming(head):
        session = _session(head)
        mains = [_load_there(session, part) for part in parts]
    # The end of a server's session with its device is not the end of the client's session with the server.
    lost = None if places().urls else RemoteError
    kept = _Kept()
    functions: dict[str, Callable[..., Any]] = {
        name: _Region(
            f"backend `{head.backend}`, region `{name}` on {head.on}", lost, mains[one.part], one, kept
        )
        for name, one in head.regions.items()
    }
    return _core.new_module(KIND, functions, lambda: bytes(blob))


class _Kept(threading.local):
    """Values that a region gave, in this thread, and another one may take: they need not be sent again.

    By name: the bytes that were copied here, and the tensor on the far side. A caller may call a region with
    other values than the last, so the bytes are compared.
    """

    def __init__(self) -> None:
        self.values: dict[str, tuple[bytes, Tensor]] = {}


@dataclass(frozen=True)
class _Region:
    """The function of a region: its arguments are inputs, then outputs, in the memory of this process."""

    where: str
    lost: type[RemoteError] | None  # the error for a session that ended; None: its own
    main: Function
    region: FarRegion
    kept: _Kept

    def __call__(self, *args: Tensor) -> None:
        count = len(self.region.takes)
        try:
            self._compute(args[:count], args[count:])
        except RemoteError as error:
            if isinstance(error, _LOST):
                raise (self.lost or type(error))(f"{self.where}: {error}; load the artifact again") from error
            raise type(error)(f"{self.where}: {error}") from error

    def _compute(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        there = [self._there(name, one) for name, one in zip(self.region.takes, inputs, strict=True)]
        answer = self.main(*there)
        found = answer if isinstance(answer, tuple | list) else (answer,)
        if len(found) != len(outputs):
            raise ProtocolError(f"it returned {len(found)} tensors, expected {len(outputs)}")
        for name, far, output in zip(self.region.gives, found, outputs, strict=True):
            _core.copy_from_remote(far, output)
            if name:
                self.kept.values[name] = (_bytes(output), far)

    def _there(self, name: str, value: Tensor) -> Tensor:
        """The tensor on the far side, if it has the value; else the local one, which the call sends."""
        content, far = self.kept.values.get(name, (b"", None))
        if far is None or far.shape != value.shape or content != _bytes(value):
            return value
        return far


def _bytes(tensor: Tensor) -> bytes:
    """A copy of the content of a row-major tensor, of any dtype."""
    bits = tensor.numel() * tensor.dtype.bits * tensor.dtype.lanes
    return ctypes.string_at(tensor.data_ptr(), (bits + 7) // 8) if bits else b""


def _session(head: Head) -> Session:
    named, urls = places()
    known = head.on in named
    where = named[head.on] if known else head.on
    if isinstance(where, Session):
        return where
    if known or (urls and _may_name_itself(head.on)):
        return connect(where)
    have = f"known are {', '.join(map(repr, named))}" if named else "none is known"
    raise ArtifactError(f"no device is called {head.on!r}, {have}; {_cure(head.on, urls)}")


def _may_name_itself(on: str) -> bool:
    """Whether a file may say by itself to connect there. It may not start a program, as `pipe:` URLs do."""
    return ":" in on and " -> " not in on and not on.startswith("pipe:")


def _cure(on: str, urls: bool) -> str:
    if urls:
        return f"say where it is: load_module(path, devices={{{on!r}: session_or_url}})"
    if ":" in on:
        return 'on a server, regions are on devices that its owner names: build with on="dsp0", say'
    return f"the owner of the server names it: farcall serve --device {on}=URL"


def _load_there(session: Session, artifact: bytes) -> Function:
    with tempfile.TemporaryDirectory(prefix="farcall-far-") as folder:
        path = Path(folder, "region.so")
        path.write_bytes(artifact)
        return session.load_module(path)["main"]


@contextmanager
def _naming(head: Head) -> Iterator[None]:
    """Name the regions and the place in what goes wrong while they are loaded."""
    try:
        yield
    except FarcallError as error:
        regions = ", ".join(f"`{name}`" for name in head.regions)
        cure = f"; start it, or give another place: devices={{{head.on!r}: session_or_url}}"
        raise type(error)(
            f"backend `{head.backend}`, regions {regions} on {head.on}: {error}"
            f"{cure if isinstance(error, ConnectError) else ''}"
        ) from error
