"""A server's events as lines for people. The events themselves are dictionaries: see docs/rpc.md."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farcall._logs import Log
from farcall._table import plain_table
from farcall._texts import count, escaped, size

Event = Mapping[str, Any]

_ENDS = {
    "closed": "closed by its client",
    "crashed": "crashed",
    "protocol": "ended, since its client broke the protocol",
    "abandoned": "ended, since its client hung up during a call",
    "time": "ended, since its time was over",
    "call limit": "ended, since a call ran for too long",
    "deadline": "ended, since a call missed its deadline",
    "lease": "ended, since its client was silent for too long",
    "token": "ended, since its token no longer holds",
    "silent": "ended, since its client never began it",
    "shutdown": "ended, since the server shuts down",
    "no worker": "ended, since the server could not start its worker process",
    "fault": "ended by an error of the server",
}
END_REASONS = tuple(_ENDS)
_ERRORS = ("crashed", "no worker", "fault")  # reasons that somebody should look into
_COLUMNS = ("session", "client", "channel", "token", "age", "calls", "received", "sent", "pid", "running")
_NUMBERS = ("age", "calls", "received", "sent", "pid")


def _who(event: Event) -> str:
    token = f", token {event['token']}" if event["token"] is not None else ""
    return f"{event['peer']} ({event['channel']}{token})"


def _start(event: Event) -> tuple[int, str]:
    return logging.INFO, f"opened by {_who(event)}"


def _end(event: Event) -> tuple[int, str]:
    reason = event["reason"]
    counts = (
        f"{count(event['calls'], 'call')}, {size(event['received'])} received, {size(event['sent'])} sent"
        if "calls" in event
        else "no worker"
    )
    words = f"; {event['words']}" if event["words"] and reason != "shutdown" else ""
    text = f"{_ENDS[reason]} after {event['seconds']:.1f} s: {_who(event)}, {counts}{words}"
    return logging.ERROR if reason in _ERRORS else logging.INFO, text


_TEXTS: dict[str, Callable[[Event], tuple[int, str]]] = {
    "session start": _start,
    "session end": _end,
    "refused": lambda event: (logging.WARNING, f"refused {event['peer']}: {event['reason']}"),
    "fault": lambda event: (logging.ERROR, f"error of the server: {event['error']}"),
    "draining": lambda event: (
        logging.INFO,
        f"stopping: {count(event['sessions'], 'open session')}; running calls may finish",
    ),
    "stopped": lambda event: (logging.INFO, "stopped"),
}


def log_event(event: Event) -> None:
    """Log an event of a server as a line; the list of sessions is :func:`log_sessions`."""
    if (text_of := _TEXTS.get(event["event"])) is not None:
        level, text = text_of(event)
        Log("rpc.server", event.get("session")).log(
            level, "%s", escaped(text), extra={"event": event["event"]}
        )


def log_sessions(rows: Sequence[Event]) -> None:
    """Log a table of the open sessions."""
    cells = [_COLUMNS, *map(_cells, rows)]
    table = "\n" + plain_table([name in _NUMBERS for name in _COLUMNS], cells) if rows else ""
    Log("rpc.server").info("%s%s", count(len(rows), "open session"), table, extra={"event": "sessions"})


def _cells(row: Event) -> tuple[str, ...]:
    numbers = ("", "", "", "")
    if "calls" in row:
        numbers = (f"{row['calls']:,}", size(row["received"]), size(row["sent"]), str(row["pid"]))
    calls, received, sent, pid = numbers
    texts = (row["session"], row["peer"], row["channel"], row["token"] or "-", f"{row['seconds']:.1f} s")
    return (*map(escaped, texts), calls, received, sent, pid, escaped(row.get("calling") or "-"))
