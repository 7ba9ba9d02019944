"""The loader of modules of kind ``farcall.remote``: regions of an artifact that a session computes.

The module's artifacts are loaded on the far side once, when the artifact is loaded here. A function of the
module sends the region's inputs, calls the far ``main``, and reads the region's outputs, together in one
round trip.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farcall import _core
from farcall.errors import (
    ArtifactError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    FarcallError,
    RemoteError,
    WorkerCrashedError,
)
from farcall.library import module_kind
from farcall.library._far import KIND, VERSION, Head, unpack
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
        compute = session.get_function("farcall.rpc.compute")
    # The end of a server's session with its device is not the end of the client's session with the server.
    lost = None if places().urls else RemoteError
    memory = _Memory(session)
    functions: dict[str, Callable[..., Any]] = {
        name: _Region(
            f"backend `{head.backend}`, region `{name}` on {head.on}",
            lost,
            compute,
            mains[one.part],
            one.inputs,
            memory,
        )
        for name, one in head.regions.items()
    }
    return _core.new_module(KIND, functions, lambda: bytes(blob))


class _Memory:
    """Memory on the far side for the tensors of calls. Later calls use it again."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._free: list[Tensor] = []  # bytes
        self._lock = threading.Lock()

    def take(self, like: Tensor) -> _Far:
        """Room for a tensor: the smallest free piece that is large enough, or a new one, instead of one."""
        size = max(_size(like), 1)
        with self._lock:
            large = [piece for piece in self._free if piece.shape[0] >= size]
            piece = min(large, key=lambda piece: piece.shape[0]) if large else None
            if piece is not None or self._free:
                self._free.remove(piece if piece is not None else self._free[0])
        return _Far(self, piece if piece is not None else self._session.empty(size, "uint8"), like)

    def give(self, piece: Tensor) -> None:
        """Free a piece for later calls."""
        with self._lock:
            self._free.append(piece)


class _Far:
    """A tensor on the far side; its memory is free when it ends."""

    def __init__(self, memory: _Memory, piece: Tensor, like: Tensor) -> None:
        strides = [prod(like.shape[i + 1 :]) for i in range(len(like.shape))]
        self.tensor = _core.remote_view(piece, tuple(like.shape), tuple(strides), 0, like.dtype)
        self._memory, self._piece = memory, piece

    def __del__(self) -> None:
        self._memory.give(self._piece)


@dataclass(frozen=True)
class _Region:
    """The function of a region: its arguments are inputs, then outputs, in the memory of this process.

    In place of an input, it may get what it gave for an output of device type 0, which the far side keeps.
    """

    where: str
    lost: type[RemoteError] | None  # the error for a session that ended; None: its own
    compute: Function  # the server's farcall.rpc.compute
    main: Function
    inputs: int
    memory: _Memory

    def __call__(self, *args: Tensor | _Far) -> Any:
        try:
            return self._compute(args)
        except RemoteError as error:
            if isinstance(error, _LOST):
                raise (self.lost or type(error))(f"{self.where}: {error}; load the artifact again") from error
            raise type(error)(f"{self.where}: {error}") from error

    def _compute(self, args: Sequence[Tensor | _Far]) -> Any:
        far = [one if isinstance(one, _Far) else self.memory.take(one) for one in args]
        local = [None if isinstance(one, _Far) or _stays_there(one) else one for one in args]
        pairs = tuple((there.tensor, one) for there, one in zip(far, local, strict=True))
        _core.compute_remote(self.compute, self.main, self.inputs, pairs)
        outputs = zip(far[self.inputs :], args[self.inputs :], strict=True)
        kept = [_core.Opaque(there) for there, one in outputs if _is_kept(one)]
        return kept if len(kept) > 1 else kept[0] if kept else None


def _is_kept(output: Tensor | _Far) -> bool:
    return not isinstance(output, _Far) and output.device.dlpack_device_type() == 0


def _stays_there(output: Tensor) -> bool:
    return _is_kept(output) and output.data_ptr() == 0


def _size(tensor: Tensor) -> int:
    """The bytes of a row-major tensor, of any dtype."""
    return (tensor.numel() * tensor.dtype.bits * tensor.dtype.lanes + 7) // 8


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
