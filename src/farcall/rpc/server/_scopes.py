"""What a token allows, and which of a server's functions needs what."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from farcall import _core
from farcall.errors import UsageError


class Scope(enum.IntFlag):
    """Rights of a session. The bits, and what each function needs, are those of the native dispatcher."""

    CALL = _core.SCOPES["call"]  # functions that the server exports, and what they return
    COPY = _core.SCOPES["copy"]  # memory: allocate it, copy into it and out of it
    LOAD = _core.SCOPES["load"]  # modules: load them, look into them. This runs native code
    FILES = _core.SCOPES["files"]  # the session's folder
    RELAY = _core.SCOPES["relay"]  # other servers, which the session goes on to


ALL_SCOPES = Scope.CALL | Scope.COPY | Scope.LOAD | Scope.FILES | Scope.RELAY


def standard_scope(name: str) -> Scope:
    """What a session needs to call the standard function ``name``.

    Raises:
        LookupError: the native table does not say. There is no default: a function that was forgotten there
            would be open to every token that allows calls.
    """
    found = _core.standard_scope(name)
    if found is None:
        raise LookupError(
            f"the standard function `{name}` has no scope; "
            "add it to the table in native/session/server/names.c"
        )
    return Scope(found)


def export_scope(name: str) -> Scope:
    """What a session needs to call a function that the user exports as ``name``.

    A standard name keeps its scope, whoever implements it.
    """
    found = _core.standard_scope(name)
    return Scope.CALL if found is None else Scope(found)


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
