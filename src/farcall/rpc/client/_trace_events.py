"""Spans of a trace as Chrome's trace events, which Perfetto shows.

Each hop is a process, and each kind of work has one row in it. Work that does not occupy a thread is
asynchronous: calls of a pipeline, requests that wait in a server's queue, and what a relay forwards. Arrows
lead from a request of the client to the work at the last server, and from there to the first region of an
artifact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

# The rows of a hop, in this order. Rows that would overlap get more, at the end.
KINDS = ("call", "encode", "wire", "async", "queue", "compute", "region", "copy")
_ASYNC = frozenset({"async", "queue"})
_SENT = frozenset({"wire", "async", "copy"})
_DONE = frozenset({"compute", "copy"})

# What requests without a function's name are called.
_REQUESTS = {
    "kCopyToRemote": "copy to the server",
    "kCopyFromRemote": "copy from the server",
    "kDevAllocDataWithScope": "allocate a tensor",
    "kDevFreeData": "free a tensor",
    "kFreeHandle": "release a handle",
    "kGetGlobalFunc": "look up a function",
}

Event = dict[str, Any]


@dataclass(frozen=True, eq=False)  # two spans may have the same fields
class Span:
    """Work of one kind at one hop."""

    hop: int  # 0: this process
    url: str
    kind: str
    name: str
    start: int  # ns of this process's monotonic clock
    duration: int  # ns
    bytes: int = 0
    args: str = ""
    session: int = -1  # the client's number of the session; -1: work outside sessions
    relay: bool = False  # a server that forwards the session to the next one

    @property
    def end(self) -> int:
        return self.start + self.duration

    @property
    def place(self) -> tuple[int, str]:
        return self.hop, self.url

    @property
    def is_async(self) -> bool:
        return self.kind in _ASYNC or (self.relay and self.hop > 0)


def events(spans: Iterable[Span], slack: int = 0) -> list[Event]:
    """The events of a trace, in the order of their times.

    Args:
        spans: of all hops.
        slack: by how many nanoseconds the clocks of two hops may disagree.
    """
    ordered = sorted(spans, key=lambda span: (span.start, -span.duration))
    begin = min((span.start for span in ordered), default=0)
    rows = _Rows(ordered)
    made: list[Event] = []
    for number, span in enumerate(ordered):
        head = _head(span, rows.process(span), begin)
        if span.is_async:
            made += _asynchronous(number, head, span.duration)
        else:
            made.append({**head, "ph": "X", "tid": rows.thread(span), "dur": span.duration / 1e3})
    for number, steps in enumerate(_flows(ordered, slack)):
        made += _arrows(number, steps, rows, begin)
    return [*rows.names(), *sorted(made, key=lambda event: float(event["ts"]))]


class _Rows:
    """The number of the process of each hop, and of the thread of each span in it."""

    def __init__(self, ordered: list[Span]) -> None:
        places = dict.fromkeys([(0, "this process"), *sorted({span.place for span in ordered})])
        self._processes = {place: number for number, place in enumerate(places)}
        self._lanes: dict[tuple[int, int], str] = {}
        self._threads = dict(self._assign(ordered))

    def process(self, span: Span) -> int:
        return self._processes[span.place]

    def thread(self, span: Span) -> int:
        return self._threads[span]

    def _assign(self, ordered: list[Span]) -> Iterator[tuple[Span, int]]:
        """One row a kind; spans that neither follow nor contain each other need another row."""
        open_spans: dict[tuple[int, str], list[list[int]]] = defaultdict(list)
        for span in ordered:
            if span.is_async:
                continue
            lanes = open_spans[self.process(span), span.kind]
            lane = next((i for i, ends in enumerate(lanes) if _fits(span, ends)), len(lanes))
            if lane == len(lanes):
                lanes.append([])
            lanes[lane].append(span.end)
            thread = KINDS.index(span.kind) + lane * len(KINDS)
            self._lanes.setdefault((self.process(span), thread), span.kind)
            yield span, thread

    def names(self) -> list[Event]:
        return [
            *(
                event
                for (hop, url), pid in self._processes.items()
                for event in _named("process", pid, 0, f"hop {hop}: {url}" if hop else url, hop)
            ),
            *(
                event
                for (pid, tid), kind in sorted(self._lanes.items())
                for event in _named("thread", pid, tid, kind, tid)
            ),
        ]


def _fits(span: Span, ends: list[int]) -> bool:
    """Whether the span follows the open spans of a row, or lies within them. Drops those that have ended."""
    while ends and ends[-1] <= span.start:
        ends.pop()
    return not ends or span.end <= ends[-1]


def _named(what: str, pid: int, tid: int, name: str, order: int) -> list[Event]:
    place = {"ph": "M", "pid": pid, "tid": tid}
    return [
        {**place, "name": f"{what}_name", "args": {"name": name}},
        {**place, "name": f"{what}_sort_index", "args": {"sort_index": order}},
    ]


def _head(span: Span, pid: int, begin: int) -> Event:
    """What all events of a span have in common."""
    about: dict[str, Any] = {"hop": span.hop, "url": span.url}
    if span.bytes:
        about["bytes"] = span.bytes
    if span.args:
        about["arguments"] = span.args
    return {
        "pid": pid,
        "cat": span.kind,
        "name": _REQUESTS.get(span.name, span.name),
        "ts": (span.start - begin) / 1e3,
        "args": about,
    }


def _asynchronous(number: int, head: Event, duration: int) -> Iterator[Event]:
    head = {**head, "tid": 0, "id": number}
    yield {**head, "ph": "b"}
    yield {**head, "ph": "e", "ts": head["ts"] + duration / 1e3, "args": {}}


# ---- arrows ----


def _flows(ordered: list[Span], slack: int) -> Iterator[list[Span]]:
    """For each request: the client's span, the last server's, and that of the first region in it, if any."""
    makers = {(s.session, s.name, s.end): s for s in ordered if s.hop == 0 and s.kind in {"encode", "call"}}
    regions = _first_regions(ordered)
    for request, work in _pairs(ordered, slack):
        source = makers.get((request.session, request.name, request.start))
        # Where clocks disagree by more than the way there took, an arrow would lead back in time.
        if source is not None and source.start <= work.start:
            yield [source, work, *([regions[work]] if work in regions else [])]


def _pairs(ordered: list[Span], slack: int) -> Iterator[tuple[Span, Span]]:
    """Requests, each with the work that it caused at the last server: the nth of a name with its nth work.

    A request that caused none (the server refused it) is passed over: work lies within its request's time.
    """
    requests: dict[tuple[int, str, bool], list[Span]] = defaultdict(list)
    for span in ordered:
        if span.hop == 0 and span.kind in _SENT:
            requests[span.session, span.name, span.kind == "copy"].append(span)
    for waiting in requests.values():
        waiting.reverse()
    for work in ordered:
        if work.hop == 0 or work.relay or work.kind not in _DONE:
            continue
        waiting = requests[work.session, work.name, work.kind == "copy"]
        while waiting and waiting[-1].end + slack < work.end:
            waiting.pop()
        if waiting and waiting[-1].start - slack <= work.start:
            yield waiting.pop(), work


def _first_regions(ordered: list[Span]) -> dict[Span, Span]:
    """The first region within each call that computes at a server."""
    found: dict[Span, Span] = {}
    working: dict[tuple[tuple[int, str], int], Span] = {}
    for span in ordered:
        if span.kind == "compute":
            working[span.place, span.session] = span
        elif span.kind == "region":
            caller = working.get((span.place, span.session))
            if caller is not None and span.end <= caller.end:
                found.setdefault(caller, span)
    return found


def _arrows(number: int, steps: list[Span], rows: _Rows, begin: int) -> Iterator[Event]:
    phases = ["s", *("t" * (len(steps) - 2)), "f"]
    for phase, span in zip(phases, steps, strict=True):
        yield {
            "ph": phase,
            "pid": rows.process(span),
            "tid": rows.thread(span),
            "cat": "request",
            "name": "request",
            "id": number,
            "ts": (span.start - begin) / 1e3,
            **({"bp": "e"} if phase == "f" else {}),
        }
