"""The loader of modules of kind ``farcall.remote``: regions of an artifact that a session computes.

The module's artifacts are loaded on the far side once, when the artifact is loaded here. A function of the
module sends the region's inputs, calls the far ``main``, and copies what it returns to the region's outputs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
    # The end of a server's session with its device is not the end of the client's session with the server.
    lost = None if places().urls else RemoteError
    functions: dict[str, Callable[..., Any]] = {}
    for name, region in head.regions.items():
        where = f"backend `{head.backend}`, region `{name}` on {head.on}"
        functions[name] = partial(_compute, where, lost, mains[region.part], region.inputs)
    return _core.new_module(KIND, functions, lambda: bytes(blob))


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


def _compute(where: str, lost: type[RemoteError] | None, main: Function, inputs: int, *args: Tensor) -> None:
    outputs = args[inputs:]
    try:
        answer = main(*args[:inputs])
        found = answer if isinstance(answer, tuple | list) else (answer,)
        if len(found) != len(outputs):
            raise ProtocolError(f"it returned {len(found)} tensors, expected {len(outputs)}")
        for far, output in zip(found, outputs, strict=True):
            _core.copy_from_remote(far, output)
    except RemoteError as error:
        if isinstance(error, _LOST):
            raise (lost or type(error))(f"{where}: {error}; load the artifact again") from error
        raise type(error)(f"{where}: {error}") from error
