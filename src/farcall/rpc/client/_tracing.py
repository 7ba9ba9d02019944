"""Traces of remote calls: where their time goes, in Chrome's trace format, with one track for each hop."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from farcall import _core
from farcall._files import check_folder, write_beside
from farcall.errors import FarcallError, ProtocolError, RemoteError, UsageError
from farcall.rpc.client._trace_events import KINDS, Span, events

if TYPE_CHECKING:
    from farcall.rpc.client._remote import Remote

_CLOCK_PROBES = 5
_SPANS_MAX = 1 << 20  # that a server may send
_NS_MAX = 1 << 63  # limit of a time or a duration
_current: Trace | None = None
_lock = threading.Lock()
_sessions: weakref.WeakSet[Traceable] = weakref.WeakSet()


class Traceable(Protocol):
    """The part of a session that a trace needs."""

    route: tuple[str, ...]
    _remote: Remote

    @property
    def closed(self) -> bool: ...


class _Place(NamedTuple):
    """A server of a session's chain that records spans."""

    hop: int  # from 1
    url: str
    at: str  # suffix of its functions' names: "@" and the next server's URL; empty for the last server
    session: int  # the session's number in this process
    offset: int  # ns to add to its clock
    doubt: int  # ns by which that may be wrong


def opened(session: Traceable) -> None:
    """Called when a session begins: its servers join the current trace."""
    _sessions.add(session)
    if _current is not None:
        _current.join(session)


def closing(session: Traceable) -> None:
    """Called before a session ends: the current trace fetches its servers' spans."""
    if _current is not None:
        _current.leave(session)


@contextmanager
def trace(path: str | os.PathLike[str]) -> Iterator[None]:
    """Record where remote calls of the block spend their time, and write that to a file at its end.

    ::

        with fc.trace("t.json"):
            far["main"](x)

    Open the file with https://ui.perfetto.dev or ``chrome://tracing``. There is one track for this process,
    and one for each server of the chain, with a row for each kind of work:

    * *call*: a function, of this process or of a session, as Python called it,
    * *encode*: arguments into bytes,
    * *wire*: until the reply arrives; calls that do not wait are asynchronous (*async*),
    * *queue*: a request waits for those before it,
    * *compute*: a call at its server; *region*: a part of an artifact in it,
    * *copy*: a tensor's elements.

    Arrows lead from a request to its work. Arguments, bytes and the hop are among the details of a span. Only
    farcall servers record spans. A server's clock is read when its session joins the trace, so the tracks
    agree within the time of a round trip. ``farcall trace summary`` prints the file as a table.

    Args:
        path: of the JSON file.

    Raises:
        UsageError: another trace is being recorded, or the file cannot be written there.
    """
    global _current
    check_folder(path)
    with _lock:
        if _current is not None:
            raise UsageError("a trace is being made already; they do not nest")
        _current = made = Trace()
    try:
        for session in list(_sessions):
            made.join(session)
        yield
    finally:
        data = made.end()
        _current = None
        write_beside(Path(path), json.dumps(data).encode())


class Trace:
    """A trace that is being recorded."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._slack = 0  # ns by which the servers' clocks may be wrong
        self._dropped = 0  # spans of this process
        self._places: weakref.WeakKeyDictionary[Traceable, list[_Place]] = weakref.WeakKeyDictionary()
        _core.trace_start()

    def join(self, session: Traceable) -> None:
        """Make a session's servers record from now on; the last server first, so that none records this."""
        if not session.closed:
            ways = [*(f"@{url}" for url in session.route[1:]), ""]
            route = enumerate(zip(session.route, ways, strict=True), 1)
            places = [_begin(session._remote, hop, url, at) for hop, (url, at) in reversed([*route])]
            self._places[session] = [place for place in reversed(places) if place is not None]
            self._slack = max(self._slack, *(place.doubt for place in self._places[session]), 0)

    def leave(self, session: Traceable) -> None:
        """Fetch the spans of a session's servers. Those of a server that is gone are lost."""
        for place in self._places.pop(session, ()):
            if session.closed:
                return
            with contextlib.suppress(FarcallError):
                self._spans += _read(session._remote.call(f"farcall.rpc.trace_take{place.at}"), place)

    def end(self) -> dict[str, Any]:
        """The trace in Chrome's format, with the spans of this process."""
        for session in list(self._places):
            self.leave(session)
        rows, dropped = _core.trace_stop()
        for slot, kind, name, start, duration, size, args in rows:
            if "farcall.rpc." not in name:
                self._spans.append(Span(0, "this process", kind, name, start, duration, size, args, slot))
        data: dict[str, Any] = {"traceEvents": events(self._spans, self._slack)}
        return data | ({"otherData": {"dropped": dropped}} if dropped else {})


def _begin(remote: Remote, hop: int, url: str, at: str) -> _Place | None:
    """Make one server record from now on; None when it cannot, like TVM's."""
    try:
        doubt, offset = _clock_offset(remote, at)
        remote.call(f"farcall.rpc.trace_begin{at}")
    except RemoteError:
        return None
    return _Place(hop, url, at, remote.endpoint.slot, offset, doubt)


def _clock_offset(remote: Remote, at: str) -> tuple[int, int]:
    """How long the fastest of several readings took, and the nanoseconds to add to the server's clock."""
    clock, best = f"farcall.rpc.clock{at}", (1 << 62, 0)
    remote.helper(clock)  # its look-up is not timed
    for _ in range(_CLOCK_PROBES):
        before = time.monotonic_ns()
        theirs = remote.call_for(int, clock)
        after = time.monotonic_ns()
        best = min(best, (after - before, (before + after) // 2 - theirs))
    return best


def _read(data: object, place: _Place) -> list[Span]:
    """Decode and check the spans that a server sent.

    Raises:
        ProtocolError: they are not valid.
    """
    try:
        rows: Any = json.loads(data)  # type: ignore[arg-type]
        if len(rows) > _SPANS_MAX:
            raise ValueError(f"{len(rows)} spans")
        return [_span(place, *row) for row in rows]
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"{place.url} sent no trace: {error}") from None


def _span(
    place: _Place,
    hop: object,
    kind: object,
    name: object,
    start: object,
    duration: object,
    size: object = 0,
    args: object = "",
) -> Span:
    """Check one row that a server sent."""
    del hop  # every server calls itself hop 1
    if not (isinstance(kind, str) and isinstance(name, str) and isinstance(args, str)):
        raise TypeError("a kind, a name and arguments are texts")
    if kind not in KINDS:
        raise ValueError(f"a span of the kind {kind!r:.40}")
    return Span(
        place.hop,
        place.url,
        kind,
        name,
        _number(start, -_NS_MAX) + place.offset,
        _number(duration),
        _number(size),
        args,
        place.session,
        bool(place.at),
    )


def _number(value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value < _NS_MAX:
        raise ValueError(f"{value!r:.40} where a number of ns or of bytes is expected")
    return value
