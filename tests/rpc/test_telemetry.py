"""OpenTelemetry: calls are spans where a program has a tracer provider, and cost nothing elsewhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall import _core
from farcall.rpc import Server, Session, connect
from farcall.rpc.client import _telemetry as telemetry

from ..waiting import SECONDS

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The finished spans, of a provider that only this test has."""
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


@pytest.fixture
def traced(server: Server, spans: Any) -> Iterator[Session]:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        yield session


def test_a_call_is_a_span_of_a_client(traced: Session, spans: Any, server: Server) -> None:
    assert traced.get_function("test.add")(1, 2) == 3
    (span,) = spans.get_finished_spans()
    assert (span.name, span.kind) == ("test.add", trace.SpanKind.CLIENT)
    assert dict(span.attributes) == {
        "rpc.system": "farcall",
        "rpc.method": "test.add",
        "server.address": server.url,
    }
    assert span.end_time > span.start_time and span.status.is_ok


def test_spans_nest(traced: Session, spans: Any) -> None:
    with trace.get_tracer_provider().get_tracer("the program").start_as_current_span("step"):
        traced.get_function("test.add")(1, 2)
    call, step = spans.get_finished_spans()
    assert call.parent.span_id == step.context.span_id
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_an_error_is_the_status_of_its_span(traced: Session, spans: Any) -> None:
    with pytest.raises(ValueError, match="reason"):
        traced.get_function("test.fail")("ValueError", "reason")
    (span,) = spans.get_finished_spans()
    assert not span.status.is_ok and "reason" in span.status.description
    assert [event.name for event in span.events] == ["exception"]


def test_functions_of_a_module(traced: Session, spans: Any, digits_artifact: Path) -> None:
    main = traced.load_module(digits_artifact)["main"]
    main(traced.tensor(np.zeros((1, 1, 8, 8), np.float32)))
    main(image=traced.tensor(np.zeros((1, 1, 8, 8), np.float32)))
    with pytest.raises(fc.errors.ArgumentError):
        main(traced.tensor(np.zeros(3)))
    assert [span.status.is_ok for span in spans.get_finished_spans()] == [True, True, False]


def test_a_broken_exporter_breaks_no_call(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def get_tracer(self, *args: object) -> Any:
            return self

        def start_as_current_span(self, *args: object, **options: object) -> Any:
            raise OSError("no exporter")

    monkeypatch.setattr(trace, "get_tracer_provider", Broken)
    with connect(server.url, key="k", timeout=SECONDS) as session:
        assert session.get_function("test.add")(20, 22) == 42


def test_without_a_provider_functions_are_as_they_are(server: Server) -> None:
    assert telemetry.observer(server.url) is None  # the API is loaded, and no provider is set
    code = f"""
import sys, farcall as fc
with fc.connect({server.url!r}, "k") as session:
    assert session.get_function("test.add")(20, 22) == 42
assert not any(name.startswith("opentelemetry") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- the hook


def test_an_observer_sees_each_call_and_its_error() -> None:
    seen: list[object] = []

    def around(function: fc.Function) -> Any:
        seen.append(function.name)
        return seen.append

    def divide(x: int, y: int) -> float:
        return x / y

    function = _core.Function(divide)
    _core.observe(function, around)
    assert function(1, 2) == 0.5
    with pytest.raises(ZeroDivisionError) as error:
        function(1, 0)
    with pytest.raises(TypeError):
        function(object)
    assert [type(item).__name__ for item in seen[1::2]] == ["NoneType", "ZeroDivisionError", "TypeError"]
    assert seen[3] is error.value


def test_an_observer_stays_when_the_function_gets_a_signature() -> None:
    seen: list[object] = []
    function = _core.Function(lambda x: x)
    _core.observe(function, lambda function: seen.append)
    for signature in (None, fc.Signature.of({"x": "int64"}, "int64"), None):
        function.signature = signature
        assert function(7) == 7
    assert seen == [None] * 3


@pytest.mark.parametrize("when", ["begin", "end"])
def test_an_observer_that_raises_is_heard(when: str) -> None:
    def fail(*args: object) -> Any:
        raise RuntimeError(when)

    function = _core.Function(lambda x: x)
    _core.observe(function, fail if when == "begin" else lambda function: fail)
    with pytest.raises(RuntimeError, match=when):
        function(7)


def test_an_observed_function_can_be_collected() -> None:
    import gc
    import weakref

    class Keeper:
        pass

    keeper = Keeper()
    function = _core.Function(lambda x: x)
    _core.observe(function, lambda function, keeper=keeper: None)  # type: ignore[misc, arg-type]
    keeper.function = function  # type: ignore[attr-defined]
    gone = weakref.ref(keeper)
    del keeper, function
    gc.collect()
    assert gone() is None
