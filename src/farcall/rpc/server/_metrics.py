"""A server's counters, in Prometheus' text format 0.0.4."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from farcall import __version__
from farcall.rpc.server._event_texts import END_REASONS

REFUSALS = ("key", "token", "full", "late", "protocol", "connection")
_SECONDS = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)  # upper bounds of the histogram of sessions
_COUNTED = ("calls", "received", "sent")

Sample = tuple[str, float]  # labels, value


class Snapshot(NamedTuple):
    """The open sessions at one moment."""

    open: int
    calling: int  # sessions that run a function
    counted: Mapping[str, int]  # calls, received, sent
    pids: tuple[int, ...]  # of the workers


class Counters:
    """What has happened on a server, counted from its events. Used in the supervisor's thread only."""

    def __init__(self) -> None:
        self._begun = time.time()
        self._opened = 0
        self._faults = 0
        self._refused = Counter(dict.fromkeys(REFUSALS, 0))
        self._ended = Counter(dict.fromkeys(END_REASONS, 0))
        self._finished = Counter(dict.fromkeys(_COUNTED, 0))  # by sessions that have ended
        self._seconds: Counter[float] = Counter()  # sessions by the upper bound of their bucket
        self._seconds_sum = 0.0

    def count(self, event: Mapping[str, Any]) -> None:
        """Count an event of the server."""
        match event["event"]:
            case "session start":
                self._opened += 1
            case "session end":
                self._ended[event["reason"]] += 1
                self._finished.update({name: event.get(name, 0) for name in _COUNTED})
                seconds = event["seconds"]
                self._seconds[next((bound for bound in _SECONDS if seconds <= bound), float("inf"))] += 1
                self._seconds_sum += seconds
            case "refused":
                self._refused[event["kind"]] += 1
            case "fault":
                self._faults += 1

    def page(self, now: Snapshot) -> str:
        """The page without the workers' memory."""
        totals = {name: self._finished[name] + now.counted[name] for name in _COUNTED}
        families = (
            _family("build_info", "gauge", "The server's version.", [(f'version="{__version__}"', 1)]),
            single("start_time_seconds", "gauge", "When the server started, in Unix time.", self._begun),
            single("sessions_open", "gauge", "Sessions that are open.", now.open),
            single("calls_running", "gauge", "Sessions that run a function at this moment.", now.calling),
            single("sessions_opened_total", "counter", "Sessions that were opened.", self._opened),
            _family(
                "sessions_ended_total",
                "counter",
                "Sessions that ended, by reason; `crashed` is a worker that died.",
                _labelled("reason", self._ended),
            ),
            _family(
                "refused_total",
                "counter",
                "Connections that got no session, by reason.",
                _labelled("reason", self._refused),
            ),
            single("faults_total", "counter", "Errors of the server itself.", self._faults),
            single("calls_total", "counter", "Calls that began.", totals["calls"]),
            single("received_bytes_total", "counter", "Bytes from clients.", totals["received"]),
            single("sent_bytes_total", "counter", "Bytes to clients.", totals["sent"]),
            self._histogram(),
        )
        return "".join(families)

    def _histogram(self) -> str:
        samples: list[tuple[str, str, float]] = []
        total = 0
        for bound in (*_SECONDS, float("inf")):
            total += self._seconds[bound]
            samples.append(("_bucket", f'le="{"+Inf" if bound == float("inf") else f"{bound:g}"}"', total))
        samples += [("_sum", "", round(self._seconds_sum, 3)), ("_count", "", total)]
        lines = (_sample("session_seconds" + suffix, labels, value) for suffix, labels, value in samples)
        return _head("session_seconds", "histogram", "Durations of sessions that ended.") + "".join(lines)


def _labelled(label: str, counts: Mapping[str, int]) -> list[Sample]:
    return [(f'{label}="{name}"', value) for name, value in counts.items()]


def single(name: str, kind: str, about: str, value: float) -> str:
    return _family(name, kind, about, [("", value)])


def _family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> str:
    return _head(name, kind, about) + "".join(_sample(name, *sample) for sample in samples)


def _head(name: str, kind: str, about: str) -> str:
    return f"# HELP farcall_{name} {about}\n# TYPE farcall_{name} {kind}\n"


def _sample(name: str, labels: str, value: float) -> str:
    number = str(value) if isinstance(value, int) else repr(float(value))
    return f"farcall_{name}{{{labels}}} {number}\n" if labels else f"farcall_{name} {number}\n"
