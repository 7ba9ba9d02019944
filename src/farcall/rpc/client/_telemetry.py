"""OpenTelemetry: a span for each call of a session's functions.

A session looks for OpenTelemetry once, when it opens. Without a tracer provider, calls are as ever:
nothing is imported, and no call checks anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from farcall import _core
from farcall._logs import Log

if TYPE_CHECKING:
    from farcall._core import Function

End = Callable[[BaseException | None], None]
Around = Callable[["Function"], End]


def observer(url: str) -> Around | None:
    """The callable around each call of a session; None if the program has set no tracer provider.

    Args:
        url: of the session's server.
    """
    api = sys.modules.get("opentelemetry.trace")  # a program that has a provider has imported it
    if api is None or isinstance(provider := api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    from farcall import __version__

    tracer = provider.get_tracer("farcall", __version__)
    return lambda function: _begin(api, tracer, function.name, url)


def observe(function: Function, around: Around | None) -> Function:
    """Surround the calls of a function; returns it."""
    if around is not None:
        _core.observe(function, around)
    return function


def _begin(api: Any, tracer: Any, name: str, url: str) -> End:
    """Begin a span, which is the current one during the call. A broken exporter must not break the call."""
    facts = {"rpc.system": "farcall", "rpc.method": name, "server.address": url}
    try:
        # The context manager also sets the status of the span, and records the exception.
        current = tracer.start_as_current_span(name, kind=api.SpanKind.CLIENT, attributes=facts)
        current.__enter__()
    except Exception:
        Log("rpc.session").warning("OpenTelemetry did not begin a span", exc_info=True)
        return lambda error: None

    def end(error: BaseException | None) -> None:
        try:
            current.__exit__(type(error) if error else None, error, error and error.__traceback__)
        except Exception as broken:
            if broken is not error:  # the context manager raises the call's own error again
                Log("rpc.session").warning("OpenTelemetry did not end a span", exc_info=True)

    return end
