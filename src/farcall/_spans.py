"""OpenTelemetry's spans, which both sides of a session make. farcall never imports its API."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

from farcall._logs import Log

# https://www.w3.org/TR/trace-context/: version, trace, span and flags, in hexadecimal digits
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class Spans:
    """Makes spans with the program's tracer provider.

    Args:
        api: the module ``opentelemetry.trace``.
        provider: of tracers.
        log: where faults of OpenTelemetry are reported: a broken exporter must not break a call.
    """

    def __init__(self, api: Any, provider: Any, log: Log) -> None:
        from farcall import __version__

        self._api = api
        self._provider = provider
        self._tracer = provider.get_tracer("farcall", __version__)
        self._log = log

    @classmethod
    def of_this_process(cls, log: Log) -> Spans | None:
        """None if the program has set no tracer provider."""
        api = sys.modules.get("opentelemetry.trace")  # a program that has a provider has imported it
        if api is None or isinstance(provider := api.get_tracer_provider(), api.ProxyTracerProvider):
            return None
        return cls(api, provider, log)

    def begin(self, name: str, side: str, facts: dict[str, str], current: bool, parent: str = "") -> Span:
        """Begin a span.

        Args:
            name: of the span, and of the method.
            side: ``CLIENT`` or ``SERVER``.
            facts: its attributes, besides those of every call.
            current: whether it is this thread's current span until it ends.
            parent: a traceparent; empty (or not valid): the current span.
        """
        facts = {"rpc.system": "farcall", "rpc.method": name, **facts}
        kind = self._api.SpanKind[side]
        try:
            span = self._tracer.start_span(name, self._context(parent), kind=kind, attributes=facts)
            made = Span(self._api, span, self._log)
            if current:
                made.enter()
        except Exception:
            self._log.warning("OpenTelemetry did not begin a span", exc_info=True)
            return Span(self._api, None, self._log)
        return made

    def _context(self, parent: str) -> Any:
        if (found := _TRACEPARENT.fullmatch(parent)) is None:
            return None
        trace, span, flags = (int(digits, 16) for digits in found.groups())
        far = self._api.SpanContext(trace, span, is_remote=True, trace_flags=self._api.TraceFlags(flags))
        return self._api.set_span_in_context(self._api.NonRecordingSpan(far))

    def flush(self) -> None:
        """Export the ended spans, since the process ends."""
        try:
            getattr(self._provider, "force_flush", int)()
        except Exception:
            self._log.warning("OpenTelemetry did not export the last spans", exc_info=True)


class Span:
    """A span that has begun; ``span`` is None if OpenTelemetry failed."""

    def __init__(self, api: Any, span: Any, log: Log) -> None:
        self._api = api
        self._span = span
        self._log = log
        self._current: Any = None

    def enter(self) -> None:
        """Make it the current span."""
        self._current = self._api.use_span(self._span, record_exception=False, set_status_on_exception=False)
        self._current.__enter__()

    @property
    def traceparent(self) -> str | None:
        """The text by which another process knows it."""
        if self._span is None or not (here := self._span.get_span_context()).is_valid:
            return None
        return f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"

    def end(self, error: BaseException | None, when: int = 0) -> None:
        """End it.

        Args:
            error: of the call.
            when: time of its end by the monotonic clock, in nanoseconds; 0: now.
        """
        if self._span is None:
            return
        try:
            if self._current is not None:
                self._current.__exit__(None, None, None)
            if error is not None:
                self._span.record_exception(error)
                status = self._api.Status(self._api.StatusCode.ERROR, f"{type(error).__name__}: {error}")
                self._span.set_status(status)
            self._span.end(time.time_ns() - (time.monotonic_ns() - when) if when else None)
        except Exception:
            self._log.warning("OpenTelemetry did not end a span", exc_info=True)
