"""The client's half: a session with a server, and what lives behind it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from farcall import _core, errors
from farcall.errors import ConnectError, UsageError
from farcall.rpc.channels import Connection
from farcall.rpc.limits import Limits

if TYPE_CHECKING:
    import numpy as np

    from farcall._core import Device, Function, Tensor

_CALL_FUNC, _GET_GLOBAL_FUNC = 3, 9  # packet codes
_FUNCTION, _MODULE = 68, 73  # type indices


class Session:
    """A connection to a server, and all that this side holds there. Made by :func:`farcall.connect`."""

    def __init__(
        self,
        connection: Connection,
        start_timeout: float,
        call_timeout: float | None,
        constructor: tuple[Any, ...] = (),
    ) -> None:
        self.url = str(connection.address)
        self._connection = connection
        self._endpoint = _core.Endpoint(connection.begin(), self.url, Limits().wire)
        self._endpoint.timeout = start_timeout
        self._begin(constructor)
        self._endpoint.timeout = call_timeout

    def _begin(self, constructor: tuple[Any, ...]) -> None:
        try:
            self._endpoint.start(constructor, "{}")
        except errors.AccessDeniedError as error:
            self._endpoint.close()
            raise errors.AccessDeniedError(f"{self.url}: {error}") from None
        except errors.RemoteError as error:
            self._endpoint.close()
            raise ConnectError(f"{self.url}: no session: {error}") from None
        except BaseException:
            self._endpoint.close()
            raise

    # ---- functions and modules

    def get_function(self, name: str) -> Function:
        """The function that the server exports under ``name``; call it like a local one.

        Tensors of this process that are passed to it are copied for the call; results stay on the server
        (``.numpy()`` brings them here).

        Raises:
            AttributeError: the server exports none of that name.
        """
        handle = self._lookup(name)
        if not handle:
            raise AttributeError(
                f"{self.url} exports no function `{name}`; register it there (in the function of --init)"
            )
        return self._endpoint.function(handle, name)

    def load_module(self, path: str | os.PathLike[str]) -> RemoteModule:
        """Upload a library (an artifact, say), and load it on the server.

        Args:
            path: the file on this machine.

        Raises:
            UsageError: there is no such file.
            ArtifactError: the server cannot run it; the message says why.
        """
        file = Path(path)
        data = _read(file)
        # The content's hash keeps two files of one name apart; the suffix chooses the loader (TVM's rule).
        name = f"{file.stem[:64]}-{hashlib.sha256(data).hexdigest()[:16]}{file.suffix or '.so'}"
        self.upload(data, name)
        result = self._call("tvm.rpc.server.load_module", name)
        if result[0] != _MODULE:
            raise errors.ProtocolError(f"{self.url}: load_module answered with a value of type {result[0]}")
        return RemoteModule(self, result[1][1], file.name)

    # ---- tensors

    def tensor(self, x: Any, device: str | Device = "cpu:0") -> Tensor:
        """Copy a tensor (numpy, torch, anything with ``__dlpack__``) to the server.

        Returns:
            The tensor there. ``.numpy()`` copies it back; it is freed when the last reference to it goes.
        """
        return self._endpoint.tensor(x, device)

    def empty(self, shape: tuple[int, ...], dtype: Any = "float32", device: str | Device = "cpu:0") -> Tensor:
        """A tensor on the server whose elements are not set."""
        return self._endpoint.empty(tuple(shape), dtype, device)

    # ---- files

    def upload(self, source: bytes | str | os.PathLike[str], name: str | None = None) -> str:
        """Store a file in the session's folder on the server; it goes with the session.

        Args:
            source: bytes, or the path of a file here.
            name: its name there; the file's own by default.

        Returns:
            The name.
        """
        if isinstance(source, bytes):
            if name is None:
                raise UsageError("upload of bytes: give the file a name (name=...)")
            data = source
        else:
            data = _read(Path(source))
        name = name or Path(os.fspath(source)).name  # type: ignore[arg-type]
        self._call("tvm.rpc.server.upload", name, data)
        return name

    def download(self, name: str) -> bytes:
        """The bytes of a file in the session's folder."""
        return self._call("tvm.rpc.server.download", name)[1]  # type: ignore[no-any-return]

    def remove(self, name: str) -> None:
        """Delete a file in the session's folder."""
        self._call("tvm.rpc.server.remove", name)

    def listdir(self, name: str = ".") -> list[str]:
        """Names in (a folder of) the session's folder."""
        text: str = self._call("tvm.rpc.server.listdir", name)[1]
        return text.split(",") if text else []

    # ---- the connection

    @property
    def call_timeout(self) -> float | None:
        """Seconds for each call and copy; None waits as long as it takes."""
        return self._endpoint.timeout

    @call_timeout.setter
    def call_timeout(self, seconds: float | None) -> None:
        self._endpoint.timeout = seconds

    @property
    def closed(self) -> bool:
        """Whether the session has ended, by :meth:`close` or by itself."""
        return self._endpoint.closed

    def close(self) -> None:
        """End the session; the server frees everything that it held. Safe to call twice."""
        self._endpoint.close()
        self._connection.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<farcall session with {self.url}{', closed' if self.closed else ''}>"

    # ---- for RemoteModule

    def _lookup(self, name: str) -> int:
        (pointer,) = self._endpoint.request(_GET_GLOBAL_FUNC, f"get_function({name!r})", (name,))
        # A null pointer may come as None.
        return pointer[1] if pointer is not None else 0

    def _call(self, name: str, *args: Any) -> tuple[Any, ...]:
        """Call one of the server's own functions; the raw reply (its type, its value)."""
        handle = self._lookup(name)
        if not handle:
            raise errors.RemoteError(f"{self.url} has no function `{name}`")
        try:
            return self._endpoint.request(_CALL_FUNC, name, args, handle)
        finally:
            self._endpoint.release(handle)


class RemoteModule:
    """A library that a server has loaded. Made by :meth:`Session.load_module`.

    Attributes:
        name: of the file that it came from.
    """

    def __init__(self, session: Session, handle: int, name: str) -> None:
        self.name = name
        self._session = session
        self._handle = handle
        self._functions: dict[str, Function | None] = {}

    def get_function(self, name: str) -> Function:
        """The function ``name`` of the module; call it like a local one.

        Raises:
            AttributeError: the module has none of that name.
        """
        function = self._find(name)
        if function is None:
            raise AttributeError(
                f"module {self.name} on {self._session.url} has no function `{name}`; "
                f"`farcall inspect {self.name}` lists what it has"
            )
        return function

    def __getitem__(self, name: str) -> Function:
        return self.get_function(name)

    def implements_function(self, name: str) -> bool:
        """Whether the module has a function ``name``."""
        return self._find(name) is not None

    def __del__(self) -> None:
        self._session._endpoint.release(self._handle)

    def __repr__(self) -> str:
        return f"<module {self.name} on {self._session.url}>"

    def _find(self, name: str) -> Function | None:
        if name not in self._functions:
            args = ((_MODULE, self._handle), name, True)
            type_index, value = self._session._call("tvm.rpc.server.ModuleGetFunction", *args)
            found = type_index == _FUNCTION
            self._functions[name] = self._session._endpoint.function(value[1], name) if found else None
        return self._functions[name]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give the path of a file on this machine") from None


def _fetch(tensor: Tensor) -> np.ndarray[Any, Any]:
    """What ``.numpy()`` of a remote tensor does."""
    return _core.fetch_remote(tensor).numpy()


_core.set_remote_tensor_hook(_fetch)
for _name, _class in vars(errors).items():
    if isinstance(_class, type) and issubclass(_class, errors.FarcallError):
        _core.register_error(_name, _class)
