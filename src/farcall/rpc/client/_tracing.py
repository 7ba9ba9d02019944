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

    url: str
    at: str  # suffix of its functions' names: "@" and the next server's URL; empty for the last server
    offset: int  # ns to add to its clock


class _Span(NamedTuple):
    track: str
    category: str
    name: str
    start: int  # ns of this process's monotonic clock
    duration: int  # ns


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
    and one for each server of the chain: *encode* (arguments into bytes), *wire* (until the reply arrives),
    *queue* (a request waits for those before it), *compute*, and *copy*. Only farcall servers record spans.
    A server's clock is read when its session joins the trace, so the tracks agree within the time of a round
    trip.

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
        spans = made.end()
        _current = None
        write_beside(Path(path), json.dumps({"traceEvents": _events(spans)}).encode())


class Trace:
    """A trace that is being recorded."""

    def __init__(self) -> None:
        self._spans: list[_Span] = []
        self._places: weakref.WeakKeyDictionary[Traceable, list[_Place]] = weakref.WeakKeyDictionary()
        _core.trace_start()

    def join(self, session: Traceable) -> None:
        """Make a session's servers record from now on; the last server first, so that none records this."""
        if not session.closed:
            route = zip(session.route, [*(f"@{url}" for url in session.route[1:]), ""], strict=True)
            places = [_begin(session._remote, url, at) for url, at in reversed([*route])]
            self._places[session] = [place for place in reversed(places) if place is not None]

    def leave(self, session: Traceable) -> None:
        """Fetch the spans of a session's servers. Those of a server that is gone are lost."""
        for url, at, offset in self._places.pop(session, ()):
            if session.closed:
                return
            with contextlib.suppress(FarcallError):
                self._spans += _read(session._remote.call(f"farcall.rpc.trace_take{at}"), url, offset)

    def end(self) -> list[_Span]:
        """All spans, also those of this process."""
        for session in list(self._places):
            self.leave(session)
        for _, category, name, start, duration in _core.trace_stop():
            if "farcall.rpc." not in name:
                self._spans.append(_Span("this process", category, name, start, duration))
        return self._spans


def _begin(remote: Remote, url: str, at: str) -> _Place | None:
    """Make one server record from now on; None when it cannot, like TVM's."""
    try:
        offset = _clock_offset(remote, at)
        remote.call(f"farcall.rpc.trace_begin{at}")
    except RemoteError:
        return None
    return _Place(url, at, offset)


def _clock_offset(remote: Remote, at: str) -> int:
    """The nanoseconds to add to the server's clock, from the fastest of several readings."""
    clock, best = f"farcall.rpc.clock{at}", (1 << 62, 0)
    remote.helper(clock)  # its look-up is not timed
    for _ in range(_CLOCK_PROBES):
        before = time.monotonic_ns()
        theirs = remote.call_for(int, clock)
        after = time.monotonic_ns()
        best = min(best, (after - before, (before + after) // 2 - theirs))
    return best[1]


def _read(data: object, url: str, offset: int) -> list[_Span]:
    """Decode and check the spans that a server sent.

    Raises:
        ProtocolError: they are not valid.
    """
    try:
        rows: Any = json.loads(data)  # type: ignore[arg-type]
        if len(rows) > _SPANS_MAX:
            raise ValueError(f"{len(rows)} spans")
        return [_span(url, offset, *row) for row in rows]
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"{url} sent no trace: {error}") from None


def _span(url: str, offset: int, hop: object, category: str, name: str, start: int, duration: int) -> _Span:
    """Check one row that a server sent."""
    del hop  # every server calls itself hop 1
    if not (isinstance(category, str) and isinstance(name, str)):
        raise TypeError("a category and a name are texts")
    if not (
        type(start) is int and type(duration) is int and 0 <= duration < _NS_MAX and abs(start) < _NS_MAX
    ):
        raise ValueError(f"a span from {start!r:.40} of {duration!r:.40} ns")
    return _Span(url, category, name, start + offset, duration)


def _events(spans: list[_Span]) -> list[dict[str, Any]]:
    """The spans in Chrome's trace event format: a process for each track, with a thread for each category.

    Spans of one thread must not overlap, so those of pipelined calls, which do, get more threads.
    """
    begin = min((span.start for span in spans), default=0)
    pids = {name: i for i, name in enumerate(dict.fromkeys(["this process", *(s.track for s in spans)]))}
    lanes: dict[tuple[str, str], list[int]] = {}  # for each thread, the end of its last span
    tids: dict[tuple[str, str, int], int] = {}
    events = []
    for span in sorted(spans, key=lambda span: span.start):
        ends = lanes.setdefault((span.track, span.category), [])
        lane = next((i for i, end in enumerate(ends) if end <= span.start), len(ends))
        ends[lane : lane + 1] = [span.start + span.duration]
        tid = tids.setdefault((span.track, span.category, lane), len(tids))
        events.append(
            {
                "ph": "X",
                "pid": pids[span.track],
                "tid": tid,
                "cat": span.category,
                "name": span.name,
                "ts": (span.start - begin) / 1e3,
                "dur": span.duration / 1e3,
            }
        )
    return [*_names(pids, tids), *events]


def _names(pids: dict[str, int], tids: dict[tuple[str, str, int], int]) -> list[dict[str, Any]]:
    tracks = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for name, pid in pids.items()
    ]
    threads = [
        {"ph": "M", "name": "thread_name", "pid": pids[track], "tid": tid, "args": {"name": category}}
        for (track, category, _), tid in tids.items()
    ]
    return tracks + threads
