"""The client's half of a session: its functions, modules, tensors and files on the server."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from farcall import _core, _html, errors
from farcall._logs import Log
from farcall._progress import Phase
from farcall._texts import count, size
from farcall.errors import (
    ConnectError,
    ConnectionLostError,
    ConnectTimeoutError,
    DeadlineExceededError,
    UsageError,
)
from farcall.rpc.channels import Connection, parse_address
from farcall.rpc.client import _copying as copying
from farcall.rpc.client import _heartbeat as heartbeat
from farcall.rpc.client import _telemetry as telemetry
from farcall.rpc.client import _tracing as tracing
from farcall.rpc.client import _transfer as transfer
from farcall.rpc.client import _views as views
from farcall.rpc.client._device import RemoteDevice
from farcall.rpc.client._module import RemoteModule
from farcall.rpc.client._output import Output
from farcall.rpc.client._remote import Remote, Stats
from farcall.rpc.client._timing import Timing, TimingOptions
from farcall.rpc.shared._hops import Hop, hop_values
from farcall.rpc.shared._limits import Limits
from farcall.rpc.shared._lines import kind_of

if TYPE_CHECKING:
    from farcall._core import Device, Function, Pipeline, Tensor
    from farcall._progress import Report

_numbers = itertools.count(1)  # of this process's sessions, in its logs

# Features of the peer that change the endpoint's behaviour: FC_PEER_* of native/session/client/remote.h.
_PEER_FARCALL, _PEER_BEHIND_TVM = _core.PEER["farcall"], _core.PEER["behind_tvm"]
_GET_GLOBAL_FUNC, _SPAN = _core.PACKETS["get_global_func"], "farcall.rpc.span"
_PEER_PACKETS = _core.PEER["packets"]
_LOAD_MODULE = "tvm.rpc.server.load_module"
_DEVICE_FUNCTION, _DEVICE_MODULE = "farcall.rpc.device_function", "farcall.rpc.device_module"
_PEER_FEATURES = {name: _core.PEER[name] for name in ("callbacks", "promises", "deadlines")}


class Session:
    """A connection to a server, and the client's objects on it. Made by :func:`farcall.connect`.

    Many threads may use it; their calls take turns. The functions, tensors and modules that its calls return
    keep the connection open.

    Attributes:
        url: the server's URL; in a chain, that of the nearest server.
        route: the URLs of all servers of the chain, the nearest first.
        features: abilities beyond TVM's protocol that the server offers, such as ``"callbacks"``.
        server_limits: the server's limits (see :class:`~farcall.rpc.Limits`); empty for a TVM server.
        device_url: the URL of the device, if :func:`farcall.launch` started the server there; else None.
        target: what to build for there, if :func:`farcall.launch` started the server; else None.
    """

    def __init__(
        self,
        connection: Connection,
        start_timeout: float,
        call_timeout: float | None,
        onward: Sequence[Hop] = (),
    ) -> None:
        self.url = str(connection.address)
        self.route = (self.url, *(str(parse_address(hop.url)) for hop in onward))
        self.features: frozenset[str] = frozenset()
        self.server_limits: dict[str, Any] = {}
        self.device_url: str | None = None
        self.target: str | None = None
        self._connection = connection
        self._over: threading.Event | None = None
        self._log: Log | None = None  # while the session is open
        way = " -> ".join(self.route)
        self._endpoint = _core.Endpoint(connection.begin(), way, Limits())
        self._remote = Remote(self._endpoint, way, telemetry.observer(self.route[-1]))
        self._output = Output(self._remote)
        self._endpoint.timeout = start_timeout
        self._begin(tuple(value for hop in onward for value in hop_values(hop)))
        self._endpoint.timeout = call_timeout
        self._log = Log("rpc.session", next(_numbers))
        self._log.info("opened with %s", way)
        tracing.opened(self)

    def _begin(self, constructor: tuple[Any, ...]) -> None:
        try:
            answer = self._start(constructor)
        except (errors.AccessDeniedError, errors.CertificateError, errors.ServerBusyError) as error:
            self.close()
            raise type(error)(f"{self.url}: {error}") from None
        except errors.RemoteError as error:
            self.close()
            lost, late = (isinstance(error, kind) for kind in (ConnectionLostError, DeadlineExceededError))
            reason = self._connection.trouble() if lost else None
            kind = ConnectTimeoutError if late else kind_of(reason)
            raise kind(f"{self.url}: no session: {reason or error}") from None
        except BaseException:
            self.close()
            raise
        if answer is not None:
            self._agree(answer)

    def _start(self, constructor: tuple[Any, ...]) -> str | None:
        """Begin the session, and find out if a server of the chain is TVM's; returns the server's hello."""
        # A farcall server in the middle of the chain answers this name itself; a TVM server forwards the
        # lookup, and the next server does not find it.
        between = tuple(f"farcall.rpc.clock@{url}" for url in self.route[1:])
        answer, known = self._endpoint.start(constructor, "{}", between)
        self._behind_tvm = known < len(between)
        self._endpoint.set_features(_PEER_BEHIND_TVM * self._behind_tvm, 0)
        return answer

    def _agree(self, answer: str) -> None:
        """Read the server's hello: its features and limits."""
        try:
            told = json.loads(answer)
            self.features = frozenset(map(str, told.get("features", ())))
            if self._behind_tvm:  # a TVM relay would take these features' numbers for its own handles
                self.features -= _PEER_FEATURES.keys()
            self.server_limits = dict(told.get("limits", {}))
        except (ValueError, TypeError, AttributeError, RecursionError):
            self.close()
            raise ConnectError(f"{self.url}: its hello is not a JSON object: {answer[:80]!r}") from None
        self._over = heartbeat.keep(self._endpoint, self.server_limits.get("lease_seconds"))
        bits = sum(bit for name, bit in _PEER_FEATURES.items() if name in self.features)
        bits |= _PEER_BEHIND_TVM * self._behind_tvm | _PEER_PACKETS * ("packets" in self.features)
        values = self.server_limits.get("values")
        # A call with a promise also sends the promise's id and the function.
        args_max = values - 2 if isinstance(values, int) and 2 < values < 1 << 31 else 0
        self._endpoint.set_features(_PEER_FARCALL | bits, args_max)
        if self._remote.around is not None and "spans" in self.features:
            self._endpoint.set_span(self._remote.pointer(_GET_GLOBAL_FUNC, _SPAN, _SPAN))

    # ---- functions and modules

    def get_function(self, name: str, *, device: str | Device | RemoteDevice | None = None) -> Function:
        """The function that the server exports under ``name``; call it like a local one.

        Local tensors that you pass to it are copied for the call; results stay on the server (``.numpy()``
        copies them to this process). You can pass callables of this process to a farcall server, which may
        call them until the call returns.

        Args:
            name: of the function.
            device: one of the server's devices, ``"hexagon:0"``, whose function it is. Its tensors are memory
                of that device: make them by ``session.tensor(x, "hexagon:0")``.

        Raises:
            MissingFunctionError: the server exports no function of that name. It is an AttributeError and a
                KeyError.
        """
        if not isinstance(name, str):
            raise TypeError(f"get_function: expected the name of a function, got {type(name).__name__}")
        if device is not None:
            there = self._remote.call_for(_core.Function, _DEVICE_FUNCTION, self._own(device), name)
            return telemetry.observe(_core.rename_remote(there, name), self._remote.around)
        function = self._remote.find(name)
        if function is None:
            meant = self._remote.did_you_mean(name, "farcall.rpc.functions")
            raise errors.MissingFunctionError(
                f"{self._remote.url} exports no function `{name}`{meant}; "
                "register it there (in the function of --init)"
            )
        return telemetry.observe(function, self._remote.around)

    def function_names(self) -> list[str]:
        """The names of the functions that a farcall server exports, sorted.

        Raises:
            RemoteError: the server has no such list (a TVM server).
        """
        return self._remote.names("farcall.rpc.functions")

    def load_module(
        self,
        path: str | os.PathLike[str],
        *,
        device: str | Device | RemoteDevice | None = None,
        progress: Report | None = None,
    ) -> RemoteModule:
        """Upload a library (an artifact, say), and load it on the server.

        Args:
            path: the file on this machine.
            device: one of the server's devices, ``"hexagon:0"``, that loads it instead of the server.
            progress: called with each :class:`farcall.Progress` of the phases ``upload`` and ``load``.

        Returns:
            The module on the server. Functions of an artifact carry their Signatures, as local ones do.

        Raises:
            MissingFileError: there is no such file.
            ArtifactError: the server cannot run it; the message says why.
        """
        file = Path(path)
        name, signatures = transfer.upload_library(self._remote, file, self._carrier(), progress)
        phase = Phase(progress, "load", 1, "modules", f"loading {file.name}")
        loader = (_LOAD_MODULE,) if device is None else (_DEVICE_MODULE, self._own(device))
        module = RemoteModule.loaded(self._remote, loader, name, file.name, signatures)
        phase.end(file.name)
        return module

    def system_lib(self, prefix: str = "") -> RemoteModule:
        """The functions that are linked into the server's process, as a module.

        Args:
            prefix: the prefix of the symbols' names, after ``__tvm_ffi_``.
        """
        module = self._remote.call("ffi.SystemLib", *([prefix] if prefix else []))
        return RemoteModule.renamed(module, "the system library")

    def pipeline(self) -> Pipeline:
        """Calls that do not wait for each other.

        ::

            with session.pipeline() as p:
                first = p(f, x)           # sent together with others; no waiting
                second = p(g, first, 2)   # uses a result that has not arrived yet
            print(second.result())

        ``p(function, *args)`` returns a :class:`~farcall.rpc.Call`; ``p.map(function, items)`` returns all
        results. At the end of the block all calls are answered; each call holds its error. A farcall server
        takes the result of an earlier call from its own memory; with a TVM server the client waits for it.
        """
        return _core.Pipeline(self._endpoint, keep="promises" in self.features)

    def benchmark(self, name: str, *args: Any, progress: Report | None = None, **options: Any) -> Timing:
        """Measure a function on the server, by the clock of the device.

        Args:
            name: of a function that the server exports.
            args: the function's arguments; local tensors are copied to the server first.
            progress: as for :func:`farcall.benchmark`.
            options: see :class:`~farcall.rpc.TimingOptions`.

        Returns:
            Seconds per call, one number for each repeat.
        """
        return TimingOptions.of(options).run(self._remote, None, name, args, progress)

    # ---- output and errors

    def output(self) -> str:
        """What the session's functions, and the processes that they started, have printed on the server.

        Each call returns the text since the last one, standard output and standard error as they were
        printed; in a chain, that of the last server. The server keeps the last 64 KiB: if more was printed
        since the last call, the text begins with a line in brackets that says how many bytes are lost. Bytes
        that are not UTF-8 become U+FFFD. Control characters stay, so escape them before you show the text of
        a server that you do not trust on a terminal.

        Raises:
            RemoteError: the server keeps no output (a TVM server, or an older farcall server).
        """
        return self._output.read()

    def keep_tracebacks(self) -> None:
        """Make the server keep the tracebacks of errors from now on; see :meth:`last_traceback`.

        Raises:
            PermissionDeniedError: the token lacks the scope ``load``: tracebacks show the server's code.
            RemoteError: the server cannot do that (a TVM server).
        """
        self._remote.call("farcall.rpc.debug")

    def last_traceback(self) -> str:
        """The traceback, on the server, of the last error that it sent; at most 16 KiB, empty without one."""
        return self._remote.call_for(str, "farcall.rpc.traceback")

    # ---- devices and tensors

    def device(self, device: str | Device) -> RemoteDevice:
        """A device of the server, such as ``"cuda:0"``: its attributes and streams."""
        return RemoteDevice(self._remote, _core.Device(device))

    def _own(self, device: str | Device | RemoteDevice) -> Device:
        """The device by the server's numbers."""
        return device.device if isinstance(device, RemoteDevice) else self.device(device).device

    def cpu(self, index: int = 0) -> RemoteDevice:
        """The server's CPU.

        Args:
            index: its number; 0 is the usual one.
        """
        return self.device(_core.Device("cpu", index))

    def tensor(
        self, x: Any, device: str | Device | RemoteDevice = "cpu:0", *, progress: Report | None = None
    ) -> Tensor:
        """Copy a tensor (numpy, torch, anything with ``__dlpack__``) or a buffer of numbers to the server.

        Args:
            x: the tensor; or ``bytes`` (uint8), a ``memoryview``, an ``array.array``, or what else has the
                buffer protocol.
            device: the server's device in whose memory the copy is.
            progress: called with each :class:`farcall.Progress` of the phase ``copy``, in bytes.

        Returns:
            The tensor on the server. ``.numpy()`` copies it back; its last reference frees it.
        """
        if progress is None:
            return self._endpoint.tensor(x, _plain(device))
        source = _core.from_dlpack(x)
        target = self.empty(tuple(source.shape), source.dtype, device)
        copying.copy(source, target, progress)
        return target

    def empty(
        self,
        shape: int | tuple[int, ...],
        dtype: Any = "float32",
        device: str | Device | RemoteDevice = "cpu:0",
    ) -> Tensor:
        """An uninitialized tensor on the server.

        Args:
            shape: its dims; an int stands for one dim.
            dtype: of its elements, as :class:`farcall.dtype` takes it.
            device: the server's device that has the memory.

        Raises:
            RemoteError: the server has no such device, or not enough memory.
        """
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        return self._endpoint.empty(dims, dtype, _plain(device))

    def copy(self, source: Any, target: Any, *, progress: Report | None = None) -> None:
        """Copy a tensor into an existing one. At least one of them is on this session's server.

        Args:
            source: a remote tensor, or anything with ``__dlpack__``.
            target: the same; of the source's shape and dtype.
            progress: called with each :class:`farcall.Progress` of the phase ``copy``, in bytes.

        The bytes between the elements of a strided remote target are not touched, so that others may write to
        them meanwhile. There is one exception: a view of more than 16,384 pieces of less than 256 bytes each
        (every other element of a large matrix, say) is read with those bytes, changed and written back.

        Raises:
            ValueError: shapes or dtypes differ, neither is remote, or the target is read-only.
        """
        if progress is None:
            views.copy(source, target)
        else:
            copying.copy(source, target, progress)

    def view(self, tensor: Tensor, index: Any) -> Tensor:
        """Part of a remote tensor, sharing its memory: ``session.view(t, np.s_[2:5, ::2])``.

        Args:
            tensor: a remote tensor.
            index: ints, slices, None and ``...``, as in numpy's basic indexing.
        """
        return views.view(tensor, index)

    # ---- files

    def upload(
        self,
        source: bytes | str | os.PathLike[str],
        name: str | None = None,
        *,
        progress: Report | None = None,
    ) -> str:
        """Store a file in the session's folder on the server, which removes it at the session's end.

        If a farcall server already has the content, the client does not send it again; other files are sent
        while they are read.

        Args:
            source: bytes, or the path of a file on this machine.
            name: the file's name on the server; by default that of ``source``.
            progress: called with each :class:`farcall.Progress` of the phase ``upload``, in bytes.

        Returns:
            The name on the server.
        """
        if not isinstance(source, bytes):
            source = Path(source)
            name = name or source.name
        if name is None:
            raise UsageError("upload of bytes: give the file a name (name=...)")
        transfer.upload(self._remote, source, name, self._carrier(), progress=progress)
        return name

    def download(self, name: str, *, progress: Report | None = None) -> bytes:
        """The bytes of a file in the session's folder.

        Args:
            name: the file's name on the server.
            progress: called with each :class:`farcall.Progress` of the phase ``download``, in bytes.
        """
        return transfer.download(self._remote, name, self._carrier(), progress)

    def _carrier(self) -> transfer.Carrier:
        return transfer.Carrier.of(self.features, self.server_limits)

    def remove(self, name: str) -> None:
        """Delete a file in the session's folder.

        Args:
            name: of the file, relative to that folder.

        Raises:
            RemoteError: there is no such file, or the name leads out of the folder.
        """
        self._remote.call("tvm.rpc.server.remove", name)

    def listdir(self, name: str = ".") -> list[str]:
        """The names in the session's folder, or in a folder of it.

        Args:
            name: of the folder, relative to the session's.
        """
        text = self._remote.call_for(str, "tvm.rpc.server.listdir", name)
        return text.split(",") if text else []

    # ---- the connection

    @property
    def call_timeout(self) -> float | None:
        """Maximum duration of each call and copy, in seconds; None: no limit. A call that takes longer ends
        the session: see :func:`farcall.deadline`."""
        return self._endpoint.timeout

    @call_timeout.setter
    def call_timeout(self, seconds: float | None) -> None:
        self._endpoint.timeout = seconds

    @property
    def stats(self) -> Stats:
        """The session's counters so far."""
        return Stats(*self._endpoint.stats)

    @property
    def closed(self) -> bool:
        """Whether the session has ended, by :meth:`close` or by itself."""
        return self._endpoint.closed

    def beat(self) -> bool:
        """Tell the server that this client still runs; returns False when the connection is lost. A session
        with a server that ends silent sessions does this by itself."""
        return self._endpoint.beat()

    def close(self) -> None:
        """End the session; the server frees the session's objects. Safe to call twice."""
        tracing.closing(self)
        if self._over is not None:
            self._over.set()
        if self._log is not None:
            log, self._log, stats = self._log, None, self.stats
            sent, received = size(stats.bytes_out), size(stats.bytes_in)
            log.info("closed: %s, %s sent, %s received", count(stats.calls, "call"), sent, received)
        self._endpoint.close()
        self._connection.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<farcall session with {self._remote.url}{', closed' if self.closed else ''}>"

    def _repr_html_(self) -> str:
        """The table that notebooks show, without a question to the server."""
        rows = [
            ("route", " → ".join(self.route)),
            ("state", "closed" if self.closed else "open"),
            ("features", ", ".join(sorted(self.features)) or "those of TVM's protocol"),
            *self.stats.rows(),
        ]
        return _html.table("farcall session", (), rows)


def _plain(device: str | Device | RemoteDevice) -> str | Device:
    return _core.Device(*device.__dlpack_device__()) if isinstance(device, RemoteDevice) else device
