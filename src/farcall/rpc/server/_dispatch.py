"""What a session of this server may do: the policy of the native dispatcher (native/session/server/serve.c).

Calls, handles, memory and copies are native. What comes here is rare: which functions there are, how a
session begins, and what the devices are.
"""

from __future__ import annotations

import hashlib
import json
import os
import traceback
import weakref
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from farcall import _core
from farcall.errors import PermissionDeniedError, ProtocolError
from farcall.rpc.server._raw_packets import PROTOCOL_VERSION
from farcall.rpc.server._relay import open_hop
from farcall.rpc.server._scopes import ALL_SCOPES, Scope, scope_of
from farcall.rpc.server._standard_functions import exported_function, standard_functions
from farcall.rpc.server._store import ContentStore
from farcall.rpc.shared._hops import parse_hop
from farcall.rpc.shared._limits import Limits

if TYPE_CHECKING:
    from farcall.rpc.channels import Connection

_INIT_SERVER = 2
_NULL = (4, 0)  # an OpaquePtr
_CPU = 1
# What the CPU knows of itself, by DeviceAttrKind: total and available memory.
_PAGES = {14: "SC_PHYS_PAGES", 15: "SC_AVPHYS_PAGES"}
_EXISTS = 0  # the DeviceAttrKind that every device has
_ABSENT = {_EXISTS: 0}  # what a device that is not here says
_TRACEBACK_CHARS = 16384
# The argument of a function that names the function which it returns.
_NAMING = {"tvm.rpc.server.ModuleGetFunction": 1}

Values = tuple[Any, ...]


class Rights(NamedTuple):
    """What the token of a session allows; without one, everything."""

    token: str = "none"  # noqa: S105  (a name)
    scopes: Scope = ALL_SCOPES

    @property
    def owner(self) -> str:
        """A folder's name: sessions find what others of the same token uploaded, and nothing else."""
        return hashlib.sha256(self.token.encode()).hexdigest()[:16]


class Policy:
    """Answers the native dispatcher's questions.

    Args:
        workdir: the session's own folder.
        limits: what the client may ask for.
        waits: whether the server can wait inside a call, so that it can call the client's functions.
        watched: whether a supervisor tells the client why its process was ended, when a call took too long.
        store: the folder of what sessions of the server uploaded; without one, each file is sent.
    """

    def __init__(
        self,
        workdir: Path,
        limits: Limits,
        *,
        waits: bool = True,
        watched: bool = False,
        store: Path | None = None,
    ) -> None:
        self.limits = limits
        self._waits = waits
        self._rights = Rights()
        features = ["promises", "trace", "debug"]
        features += ["callbacks", "relay"] * waits + ["deadlines"] * watched + ["files"] * (store is not None)
        self._greeting = json.dumps({"version": 1, "features": features, "limits": asdict(limits)})
        self._next: Connection | None = None
        self._dispatcher: weakref.ref[_core.Dispatcher] | None = None
        owned = None if store is None else lambda: ContentStore(store / self._rights.owner)
        self._own: dict[str, Callable[..., Any]] = {
            **standard_functions(workdir, limits, owned),
            "farcall.rpc.hello": self._hello,
            "farcall.rpc.debug": self._debug,
            "farcall.rpc.traceback": self._traceback,
        }
        self._syscalls: dict[int, Callable[..., Values]] = {
            11: lambda device: (None,),  # kDevSetDevice: there is one
            12: self._device_attr,
            15: self._synchronize,
            18: self._null_stream,
            19: lambda device, stream: (None,),
            20: lambda device, stream: (None,),
            21: self._null_stream,
        }

    def dispatcher(
        self,
        endpoint: _core.Endpoint,
        rights: Rights | None = None,
        entropy: Callable[[int], bytes] | None = None,
    ) -> _core.Dispatcher:
        """What serves the requests of one session, by its :meth:`~_core.Dispatcher.serve`. One at a time.

        Args:
            endpoint: the server's end of the connection, behind the handshake. Its channel can wait for bytes
                when this was said to wait.
            rights: what the session's token allows.
            entropy: random bytes, as many as it is asked for; None: the operating system's.
        """
        self._rights = rights or Rights()
        made = _core.Dispatcher(
            endpoint,
            self,
            handles=self.limits.handles,
            tensor_bytes=self.limits.tensor_bytes,
            scopes=self._rights.scopes,
            token=self._rights.token,
            waits=self._waits,
            entropy=entropy,
        )
        self._dispatcher = weakref.ref(made)
        return made

    def find(self, name: str) -> tuple[_core.Function, int, int] | None:
        """The function that is exported as ``name``, what a session needs for it, and its argument that names
        the function which it returns (-1: none)."""
        own = self._own.get(name)
        function = exported_function(name) if own is None else _core.Function(own)
        return None if function is None else (function, scope_of(name), _NAMING.get(name, -1))

    def scope(self, name: str) -> int:
        """What a session needs for the function ``name``, wherever it is."""
        return scope_of(name)

    def answer(self, code: int, version: str | None, values: Values) -> Values | tuple[_core.Endpoint, int]:
        """The reply to a request that the dispatcher does not know. To the request that begins a session: the
        endpoint of the next one, and how many values named it.

        Raises:
            ProtocolError: nobody knows it, or its values are none.
        """
        if code == _INIT_SERVER:
            return self._start(version, values)
        handler = self._syscalls.get(code)
        if handler is None:
            raise ProtocolError(f"packet code {code} is none that a client sends")
        try:
            return handler(*values)
        except (TypeError, AttributeError):
            raise ProtocolError(f"packet code {code} does not come with these {len(values)} values") from None

    def _start(self, version: str | None, values: Values) -> Values | tuple[_core.Endpoint, int]:
        if version != PROTOCOL_VERSION:
            raise ProtocolError(f"this server speaks protocol {PROTOCOL_VERSION}, the client {version!r}")
        named = parse_hop(values)
        if named is None:
            return (None,)
        if not self._waits:
            raise NotImplementedError("this server never waits, so no session can go on from here")
        hop, taken = named
        if not self._rights.scopes & Scope.RELAY:
            raise PermissionDeniedError(
                f"going on to {hop.url} needs the scope `relay`, which token `{self._rights.token}` does not "
                "have; use one that has it"
            )
        self._next = open_hop(hop, self.limits)
        return _core.Endpoint(self._next.begin(), hop.url, self.limits.wire, client=False), taken

    def _hello(self, version: int = 1, wishes: str = "{}") -> str:
        del version, wishes  # there is one version, and nothing to choose
        return self._greeting

    def _debug(self) -> None:
        """From now on the client may ask for tracebacks."""
        if self._dispatcher is not None and (dispatcher := self._dispatcher()) is not None:
            dispatcher.keep_errors()

    def _traceback(self) -> str:
        """Where the last error that the client was told came from: its end, when it is long."""
        dispatcher = self._dispatcher() if self._dispatcher is not None else None
        error = dispatcher.last_error if dispatcher is not None else None
        return "" if error is None else "".join(traceback.format_exception(error))[-_TRACEBACK_CHARS:]

    def _device_attr(self, device: _core.Device, kind: int) -> Values:
        here = bool(_core.device_attribute(device, _EXISTS))
        if here and device.dlpack_device_type() == _CPU and kind in _PAGES:
            return (_memory(_PAGES[kind]),)
        return (_core.device_attribute(device, kind) if here else _ABSENT.get(kind),)

    def _synchronize(self, device: _core.Device, stream: object) -> Values:
        del stream  # a device has one, and it is in order
        _core.synchronize_device(device)
        return (None,)

    def _null_stream(self, device: _core.Device) -> Values:
        self._synchronize(device, _NULL)
        return (_NULL,)


def _memory(pages: str) -> int | None:
    """Bytes of this machine's memory; None where the system does not say."""
    try:
        return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
