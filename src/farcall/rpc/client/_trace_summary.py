"""A trace as a table: how often each kind of work was done at each hop, and how long it took."""

from __future__ import annotations

import json
import os
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farcall.errors import UsageError

Event = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """All spans of one kind and name at one place. Times are in seconds."""

    where: str
    kind: str
    name: str
    count: int
    total: float
    median: float
    longest: float
    bytes: int


def summary(path: str | os.PathLike[str]) -> list[Row]:
    """Summarize a file of :func:`farcall.trace`, or any other of Chrome's trace events.

    Args:
        path: of the JSON file.

    Returns:
        One row for each place, kind and name; those with the largest total first, within the places in their
        order.

    Raises:
        UsageError: the file cannot be read, or is not a trace.
    """
    try:
        trace = json.loads(Path(path).read_bytes())
        return _rows(trace["traceEvents"] if isinstance(trace, dict) else trace)
    except OSError as error:
        raise UsageError(f"cannot read {os.fspath(path)!r}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UsageError(
            f"{os.fspath(path)!r} is not a trace; `with fc.trace(file):` and `farcall run --trace` write one"
        ) from None


def _rows(events: list[Event]) -> list[Row]:
    places = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    durations: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    sizes: dict[tuple[int, str, str], int] = defaultdict(int)
    for event, duration in _spans(events):
        key = (event["pid"], str(event.get("cat", "")), str(event["name"]))
        durations[key].append(duration / 1e6)
        sizes[key] += int(event.get("args", {}).get("bytes", 0))
    rows = [
        Row(
            str(places.get(pid, pid)),
            kind,
            name,
            len(found),
            sum(found),
            statistics.median(found),
            max(found),
            sizes[pid, kind, name],
        )
        for (pid, kind, name), found in durations.items()
    ]
    order = {name: i for i, name in enumerate(map(str, places.values()))}
    return sorted(rows, key=lambda row: (order.get(row.where, len(order)), -row.total))


def _spans(events: list[Event]) -> Iterator[tuple[Event, float]]:
    """The events with a duration, in microseconds. Beginnings and ends of asynchronous ones are paired."""
    begun: dict[tuple[Any, ...], Event] = {}
    for event in events:
        if event["ph"] == "X":
            yield event, float(event["dur"])
        elif event["ph"] == "b":
            begun[event["pid"], event["cat"], event["id"]] = event
        elif event["ph"] == "e" and (begin := begun.pop((event["pid"], event["cat"], event["id"]), None)):
            yield begin, float(event["ts"]) - float(begin["ts"])
