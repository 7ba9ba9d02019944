"""What a token allows, and which of a server's functions needs what."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from farcall.errors import UsageError


class Scope(enum.IntFlag):
    """Rights of a session. The bits are those of FC_SCOPE_* in native/session/server/serve.h."""

    CALL = 1  # functions that the server exports, and what they return
    COPY = 2  # memory: allocate it, copy into it and out of it
    LOAD = 4  # modules: load them, look into them. This runs native code: give it as you give a shell
    FILES = 8  # the session's folder
    RELAY = 16  # other servers, which the session goes on to


ALL_SCOPES = Scope.CALL | Scope.COPY | Scope.LOAD | Scope.FILES | Scope.RELAY
_OPEN = Scope(0)  # to every session

# Functions beyond these are what the server exports, and need CALL.
_NEEDS = {
    "tvm.rpc.server.upload": Scope.FILES,
    "tvm.rpc.server.download": Scope.FILES,
    "tvm.rpc.server.remove": Scope.FILES,
    "tvm.rpc.server.listdir": Scope.FILES,
    "tvm.rpc.server.workpath": Scope.FILES,
    "tvm.rpc.server.download_linked_module": Scope.FILES | Scope.LOAD,
    "farcall.rpc.have": Scope.FILES,
    "farcall.rpc.known": Scope.FILES,
    "farcall.rpc.read": Scope.FILES,
    "farcall.rpc.share": Scope.FILES,
    "farcall.rpc.size": Scope.FILES,
    "farcall.rpc.write": Scope.FILES,
    "tvm.rpc.server.load_module": Scope.LOAD,
    "tvm.rpc.server.ImportModule": Scope.LOAD,
    "tvm.rpc.server.ModuleGetFunction": Scope.LOAD,
    "ffi.ModuleGetKind": Scope.LOAD,
    "ffi.ModuleGetFunctionMetadata": Scope.LOAD,
    "ffi.ModuleInspectSource": Scope.LOAD,
    "ffi.SystemLib": Scope.LOAD,
    # Tracebacks show the server's code and paths: to those who may run code there anyway.
    "farcall.rpc.debug": Scope.LOAD,
    "farcall.rpc.traceback": Scope.LOAD,
    "farcall.rpc.module_functions": Scope.LOAD,
    "farcall.rpc.hello": _OPEN,
    "farcall.rpc.clock": _OPEN,
    "farcall.rpc.trace_begin": _OPEN,
    "farcall.rpc.trace_take": _OPEN,
    "tvm.rpc.server.GetCRTMaxPacketSize": _OPEN,
}


def scope_of(name: str) -> Scope:
    """What a session needs to call the function ``name``."""
    return _NEEDS.get(name, Scope.CALL)


def parse_scopes(names: Iterable[str]) -> Scope:
    """``["call", "copy"]`` as rights.

    Raises:
        UsageError: a name that is none.
    """
    rights = Scope(0)
    for name in names:
        try:
            rights |= Scope[name.upper()]
        except KeyError:
            raise UsageError(f"no scope {name!r}; there are call, copy, load, files and relay") from None
    return rights
