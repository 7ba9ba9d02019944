"""Where the modules of a library find the devices that compute for them.

A module such as one of kind ``farcall.remote`` names a device. Who loads the library says where that device
is, and the loader of the kind asks here. The room knows no sessions: a place is whatever the loader takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple


class Places(NamedTuple):
    """The devices that the modules of a library may use."""

    named: Mapping[str, Any]  # name -> a session, or a URL
    urls: bool  # whether a module may say itself where its device is


_current: ContextVar[Places] = ContextVar("farcall_places")
_NONE = Places({}, urls=True)


def places() -> Places:
    """Those of the library that is being loaded in this thread."""
    return _current.get(_NONE)


@contextmanager
def using(named: Mapping[str, Any] | None, *, urls: bool = True) -> Iterator[None]:
    """Let the libraries that are loaded in the block use these devices. None: those of the block around."""
    if named is None:
        yield
        return
    token = _current.set(Places(named, urls))
    try:
        yield
    finally:
        _current.reset(token)
