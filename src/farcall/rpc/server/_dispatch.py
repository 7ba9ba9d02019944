"""What a session of this server may do: the policy of the native dispatcher (native/session/server/serve.c).

Calls, handles, memory, copies and devices are native. Only rare requests reach this module: looking up a
function, and beginning a session.
"""

from __future__ import annotations

import hashlib
import json
import traceback
import weakref
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from farcall import _core
from farcall._logs import Log
from farcall._spans import Spans
from farcall.errors import PermissionDeniedError
from farcall.rpc.server import _questions as questions
from farcall.rpc.server._device_sessions import DeviceSessions
from farcall.rpc.server._files import Workdir
from farcall.rpc.server._relay import Devices, open_hop
from farcall.rpc.server._scopes import ALL_SCOPES, Scope, export_scope, standard_scope
from farcall.rpc.server._standard_functions import exported_function, standard_functions
from farcall.rpc.server._store import ContentStore
from farcall.rpc.shared._hops import Hop, parse_hop
from farcall.rpc.shared._limits import Limits

if TYPE_CHECKING:
    from farcall.rpc.channels import Connection

_TRACEBACK_CHARS = 16384
# For functions that return a function: the index of the argument that holds the returned function's name.
_NAMING = {"tvm.rpc.server.ModuleGetFunction": 1, "farcall.rpc.device_function": 1}

Values = tuple[Any, ...]


class Rights(NamedTuple):
    """What a session's token allows; everything on a server without tokens."""

    token: str = "none"  # noqa: S105  (a name)
    scopes: Scope = ALL_SCOPES

    @property
    def owner(self) -> str:
        """The token's folder in the store: sessions find only files uploaded with the same token."""
        return hashlib.sha256(self.token.encode()).hexdigest()[:16]


class Policy:
    """Answers the native dispatcher's questions.

    Args:
        workdir: the session's own folder.
        limits: of the session.
        waits: whether the server can wait inside a call, so that it can call the client's functions.
        store: the folder of the server's stores; None: the client must send every file.
        devices: the devices of the server, to which a session may go on.
    """

    def __init__(
        self,
        workdir: Path,
        limits: Limits,
        *,
        waits: bool = True,
        store: Path | None = None,
        devices: Devices | None = None,
    ) -> None:
        self.limits = limits
        self._devices = devices or {}
        self.supervisor_at: str | None = None  # where the supervisor answers questions
        self._waits = waits
        self._rights = Rights()
        self._offers = _core.OFFERS["trace"] | _core.OFFERS["debug"]
        if store is not None:
            self._offers |= _core.OFFERS["files"]
        self._spans = Spans.of_this_process(Log("rpc.server"))
        if self._spans is not None:
            self._offers |= _core.OFFERS["spans"]
        self._next: Connection | None = None
        self._dispatcher: weakref.ref[_core.Dispatcher] | None = None
        self.device_sessions = DeviceSessions(self._devices, limits, self._go_on)
        files = Workdir(workdir)

        def load_on(device: _core.Device, name: str) -> _core.Module:
            return self.device_sessions.module(device, files.existing(name))

        owned = None if store is None else lambda: ContentStore(store / self._rights.owner)
        own: dict[str, Callable[..., Any]] = {
            **standard_functions(workdir, limits, owned, self.device_sessions.by_name),
            "farcall.rpc.debug": self._debug,
            "farcall.rpc.traceback": self._traceback,
            "farcall.rpc.sessions": lambda: questions.sessions(self.supervisor_at),
            "farcall.rpc.device_function": self.device_sessions.function,
            "farcall.rpc.device_module": files.discreet(load_on),
            "farcall.rpc.output": lambda start=0: [*questions.output(self.supervisor_at, start)],
        }
        self._own = {name: (function, standard_scope(name)) for name, function in own.items()}

    def dispatcher(
        self,
        endpoint: _core.Endpoint,
        rights: Rights | None = None,
        entropy: Callable[[int], bytes] | None = None,
    ) -> _core.Dispatcher:
        """Make the dispatcher whose :meth:`~_core.Dispatcher.serve` serves one session. A policy has one at a
        time.

        Args:
            endpoint: the server's end of the connection, after the handshake. Its channel must be able to
                wait for bytes if the policy ``waits``.
            rights: what the session's token allows.
            entropy: returns as many random bytes as its argument says; None: the operating system's.
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
            offers=self._offers,
            limits=json.dumps(asdict(self.limits)),
            entropy=entropy,
        )
        self._dispatcher = weakref.ref(made)
        return made

    def find(self, name: str) -> tuple[_core.Function, int, int] | None:
        """The function that is exported as ``name``, the scope that it needs, and the index of the argument
        that names the function it returns (-1: it returns none)."""
        if (own := self._own.get(name)) is not None:
            return _core.Function(own[0]), own[1], _NAMING.get(name, -1)
        function = exported_function(name)
        return None if function is None else (function, export_scope(name), -1)

    def span(self, name: str, parent: str) -> Callable[[BaseException | None], None]:
        """Begin OpenTelemetry's span of a call; returns what ends it.

        Args:
            name: of the function.
            parent: the client's traceparent; empty: it sent none.
        """
        if self._spans is None:  # then the server does not offer spans
            return lambda error: None
        return self._spans.begin(name, "SERVER", {}, current=True, parent=parent).end

    def flush_spans(self) -> None:
        """Export the spans that have ended, if there are any."""
        if self._spans is not None:
            self._spans.flush()

    def begin(self, values: Values) -> Values | tuple[_core.Endpoint, int]:
        """Handle kInitServer, which begins a session.

        Returns:
            The answer; or the endpoint of the next server of a chain, and how many of the values named it.

        Raises:
            NotImplementedError: the client asks for a relay to another server, but this one never waits.
            PermissionDeniedError: the token does not allow a relay.
        """
        named = parse_hop(values)
        if named is None:
            return (None,)
        if not self._waits:
            raise NotImplementedError("this server never waits, so no session can go on from here")
        hop, taken = named
        self._next = self._go_on(hop)
        return _core.Endpoint(self._next.begin(), hop.url, self.limits, client=False), taken

    def _go_on(self, hop: Hop) -> Connection:
        """Connect to the next server, or a device."""
        if not self._rights.scopes & Scope.RELAY:
            raise PermissionDeniedError(
                f"going on to {hop.url} needs the scope `relay`, which token `{self._rights.token}` does not "
                "have; use one that has it"
            )
        return open_hop(hop, self.limits, self._devices)

    def _debug(self) -> None:
        """Keep errors from now on, so that the client can ask for their tracebacks."""
        if self._dispatcher is not None and (dispatcher := self._dispatcher()) is not None:
            dispatcher.keep_errors()

    def _traceback(self) -> str:
        """The traceback of the last error that was sent to the client; only its end when it is long."""
        dispatcher = self._dispatcher() if self._dispatcher is not None else None
        error = dispatcher.last_error if dispatcher is not None else None
        return "" if error is None else "".join(traceback.format_exception(error))[-_TRACEBACK_CHARS:]
