"""OpenTelemetry: a span for each call of a session's functions.

A session looks for OpenTelemetry once, when it opens. Without a tracer provider, calls are as ever:
nothing is imported, and no call checks anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from farcall import _core
from farcall._logs import Log
from farcall._spans import Spans

if TYPE_CHECKING:
    from farcall._core import Function

End = Callable[[BaseException | None, int], None]
Around = Callable[["Function", bool], tuple[str | None, End]]


def observer(url: str) -> Around | None:
    """The callable around each call of a session; None if the program has set no tracer provider.

    Args:
        url: of the session's server.
    """
    spans = Spans.of_this_process(Log("rpc.session"))
    if spans is None:
        return None

    def around(function: Function, waits: bool) -> tuple[str | None, End]:
        span = spans.begin(function.name, "CLIENT", {"server.address": url}, current=waits)
        return span.traceparent, span.end

    return around


def observe(function: Function, around: Around | None) -> Function:
    """Surround the calls of a function; returns it."""
    if around is not None:
        _core.observe(function, around)
    return function
