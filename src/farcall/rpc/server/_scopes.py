"""Scopes: what a token allows, and which scope each function of a server needs."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from farcall import _core
from farcall._suggest import did_you_mean
from farcall.errors import UsageError


class Scope(enum.IntFlag):
    """Rights of a session. The native dispatcher defines the bits and the scope that each function needs."""

    CALL = _core.SCOPES["call"]  # call exported functions, and the functions that they return
    COPY = _core.SCOPES["copy"]  # allocate memory, copy into it and out of it
    LOAD = _core.SCOPES["load"]  # load modules and inspect them; this runs native code
    FILES = _core.SCOPES["files"]  # read and write the session's folder
    RELAY = _core.SCOPES["relay"]  # go on to another server


ALL_SCOPES = Scope.CALL | Scope.COPY | Scope.LOAD | Scope.FILES | Scope.RELAY


def standard_scope(name: str) -> Scope:
    """The scope that a session needs to call the standard function ``name``.

    Raises:
        LookupError: the native table does not list it. There is no default, because a forgotten function
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
    """The scope that a session needs to call a function that the user exports as ``name``.

    A user's function with a standard name needs the scope of that name.
    """
    found = _core.standard_scope(name)
    return Scope.CALL if found is None else Scope(found)


def parse_scopes(names: Iterable[str]) -> Scope:
    """``["call", "copy"]`` as rights.

    Raises:
        UsageError: a scope is unknown.
    """
    rights = Scope(0)
    for name in names:
        try:
            rights |= Scope[name.upper()]
        except KeyError:
            known = [scope.name.lower() for scope in Scope if scope.name]
            raise UsageError(
                f"unknown scope {name!r}{did_you_mean(name, known)}; the scopes are {', '.join(known)}"
            ) from None
    return rights
