"""OpenTelemetry: calls are spans where a program has a tracer provider, and cost nothing elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
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

from ..waiting import SECONDS, has_ended
from .exports import register

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

        def start_span(self, *args: object, **options: object) -> Any:
            raise OSError("no exporter")

    monkeypatch.setattr(trace, "get_tracer_provider", Broken)
    with connect(server.url, key="k", timeout=SECONDS) as session:
        assert session.get_function("test.add")(20, 22) == 42


# ---- calls that do not wait


def test_each_call_of_a_pipeline_is_a_span(traced: Session, spans: Any) -> None:
    add, fail = traced.get_function("test.add"), traced.get_function("test.fail")
    with (
        trace.get_tracer_provider().get_tracer("the program").start_as_current_span("step"),
        traced.pipeline() as p,
    ):
        first = p(add, 1, 2)
        second = p(add, first, 3)
        bad = p(fail, "ValueError", "reason")
        assert trace.get_current_span().name == "step"
    assert second.result() == 6 and first.result() == 3
    with pytest.raises(ValueError, match="reason"):
        bad.result()
    step, *calls = spans.get_finished_spans()
    assert [(span.name, span.status.is_ok) for span in calls] == [
        ("test.add", True),
        ("test.add", True),
        ("test.fail", False),
    ]
    assert {span.parent.span_id for span in calls} == {step.context.span_id}
    # A span ends when its reply comes, whenever the program looks at the result.
    assert all(span.end_time <= step.end_time for span in calls)


def test_a_call_that_nobody_asks_about_is_a_span(traced: Session, spans: Any) -> None:
    call = traced.get_function("test.add").submit(1, 2)
    traced.listdir()
    assert not spans.get_finished_spans()
    del call
    assert [span.name for span in spans.get_finished_spans()] == ["test.add"]


def test_a_map_is_one_span(traced: Session, spans: Any) -> None:
    with traced.pipeline() as p:
        assert p.map(traced.get_function("test.add"), [(i, 1) for i in range(5)]) == [1, 2, 3, 4, 5]
    assert [span.name for span in spans.get_finished_spans()] == ["test.add"]


def test_an_awaited_call_is_a_child_of_the_current_span(traced: Session, spans: Any) -> None:
    async def steps() -> int:
        with trace.get_tracer_provider().get_tracer("the program").start_as_current_span("step"):
            return int(await traced.get_function("test.add").call_async(1, 2))

    assert asyncio.run(steps()) == 3
    call, step = spans.get_finished_spans()
    assert (call.name, call.parent.span_id) == ("test.add", step.context.span_id)


# ---- the server's spans


@pytest.fixture(scope="module")
def observed() -> Iterator[Server]:
    """A server whose program has a tracer provider."""
    with Server(init=f"{__name__}:provide") as server:
        yield server


SERVED: Any = memory.InMemorySpanExporter()


def provide() -> None:
    """The ``--init`` of a server that keeps its spans, and shows them to its clients."""
    register()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(SERVED))
    trace.set_tracer_provider(provider)
    fc.register_global_func("test.spans", _served)


def _served() -> str:
    rows = [json.loads(span.to_json(indent=None)) for span in SERVED.get_finished_spans()]
    return json.dumps(rows)


def _spans_of(session: Session) -> list[dict[str, Any]]:
    return list(json.loads(session.get_function("test.spans")()))


def _id(number: int) -> str:
    return f"0x{number:016x}"


def test_a_call_has_a_span_at_the_server(observed: Server, spans: Any) -> None:
    with connect(observed.url, timeout=SECONDS) as session:
        assert "spans" in session.features
        assert session.get_function("test.add")(1, 2) == 3
        with pytest.raises(ValueError, match="reason"):
            session.get_function("test.fail")("ValueError", "reason")
        good, bad = _spans_of(session)
    ours = spans.get_finished_spans()
    assert (good["name"], good["kind"], good["parent_id"]) == (
        "test.add",
        "SpanKind.SERVER",
        _id(ours[0].context.span_id),
    )
    assert good["context"]["trace_id"] == f"0x{ours[0].context.trace_id:032x}"
    assert good["attributes"] == {"rpc.system": "farcall", "rpc.method": "test.add"}
    assert (bad["parent_id"], bad["status"]) == (
        _id(ours[1].context.span_id),
        {"status_code": "ERROR", "description": "ValueError: reason"},
    )


def test_calls_that_do_not_wait_have_spans_at_the_server(observed: Server, spans: Any) -> None:
    with connect(observed.url, timeout=SECONDS) as session:
        add = session.get_function("test.add")
        with session.pipeline() as p:
            calls = [p(add, p(add, 1, 2), np.int64(3)), p(add, 4, 5)]
        assert [call.result() for call in calls] == [6, 9]
        with session.pipeline() as p:
            p.map(add, [(i, 1) for i in range(3)])
        del calls
        served = _spans_of(session)
    ours = [_id(span.context.span_id) for span in spans.get_finished_spans()]
    *single, map_1, map_2, map_3 = (span["parent_id"] for span in served)
    assert len(set(single)) == 3 and set(single) < set(ours)
    assert map_1 == map_2 == map_3 and map_1 in ours and map_1 not in single


def test_spans_pass_a_relay(observed: Server, server: Server, spans: Any) -> None:
    with connect(observed.url, via=[(server.url, "k")], timeout=SECONDS) as session:
        assert session.get_function("test.add")(1, 2) == 3
        (served,) = _spans_of(session)
    assert served["parent_id"] == _id(spans.get_finished_spans()[0].context.span_id)


def test_a_client_without_opentelemetry_begins_traces_at_the_server(observed: Server) -> None:
    with connect(observed.url, timeout=SECONDS) as session:
        assert session.get_function("test.add")(1, 2) == 3
        session.function_names()
        (served,) = _spans_of(session)
    assert (served["name"], served["parent_id"]) == ("test.add", None)


@pytest.mark.parametrize("parent", ["", "00-zz-1-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 63])
def test_a_parent_that_is_none_begins_a_trace(observed: Server, parent: str) -> None:
    with connect(observed.url, timeout=SECONDS) as session:
        session.get_function("farcall.rpc.span")(parent)
        assert session.get_function("test.add")(1, 2) == 3
        assert [span["parent_id"] for span in _spans_of(session)] == [None]


@pytest.mark.parametrize("args", [(), (7,), ("x" * 64,), ("x", "y")])
def test_a_parent_of_another_form_is_refused(observed: Server, args: tuple[Any, ...]) -> None:
    with connect(observed.url, timeout=SECONDS) as session:
        with pytest.raises(ValueError, match="takes a traceparent"):
            session.get_function("farcall.rpc.span")(*args)
        assert session.get_function("test.add")(1, 2) == 3


def provide_later() -> None:
    """The ``--init`` of a server whose spans are exported in batches, an hour later."""
    register()
    file = Path(os.environ["TEST_SPANS"]).open("a")  # noqa: SIM115  (open as long as the process)
    later = export.BatchSpanProcessor(
        export.ConsoleSpanExporter(out=file, formatter=lambda span: f"{span.name}\n"),
        schedule_delay_millis=3_600_000,
    )
    provider = sdk.TracerProvider()
    provider.add_span_processor(later)
    trace.set_tracer_provider(provider)
    fc.register_global_func("test.worker", os.getpid)


def test_a_session_exports_its_spans_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "spans"
    monkeypatch.setenv("TEST_SPANS", str(file))
    with Server(init=f"{__name__}:provide_later") as server:
        with connect(server.url, timeout=SECONDS) as session:
            assert session.get_function("test.add")(1, 2) == 3
            worker = session.get_function("test.worker")()
            assert file.read_text() == ""
        assert has_ended(worker) and file.read_text() == "test.add\ntest.worker\n"


def test_a_server_without_opentelemetry_offers_no_spans(session: Session) -> None:
    assert "spans" not in session.features
    with pytest.raises(fc.errors.MissingFunctionError):
        session.get_function("farcall.rpc.span")


# ---- programs without OpenTelemetry


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

    def around(function: fc.Function, waits: bool) -> Any:
        seen.append((function.name, waits))
        return None, lambda error, when: seen.append(error)

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
    _core.observe(function, lambda function, waits: (None, lambda error, when: seen.append(error)))
    for signature in (None, fc.Signature.of({"x": "int64"}, "int64"), None):
        function.signature = signature
        assert function(7) == 7
    assert seen == [None] * 3


@pytest.mark.parametrize("when", ["begin", "end"])
def test_an_observer_that_raises_is_heard(when: str) -> None:
    def fail(*args: object) -> Any:
        raise RuntimeError(when)

    function = _core.Function(lambda x: x)
    _core.observe(function, fail if when == "begin" else lambda function, waits: (None, fail))
    with pytest.raises(RuntimeError, match=when):
        function(7)


def test_an_observed_function_can_be_collected() -> None:
    import gc
    import weakref

    class Keeper:
        pass

    keeper = Keeper()
    function = _core.Function(lambda x: x)
    _core.observe(function, lambda function, waits, keeper=keeper: None)  # type: ignore[misc, arg-type]
    keeper.function = function  # type: ignore[attr-defined]
    gone = weakref.ref(keeper)
    del keeper, function
    gc.collect()
    assert gone() is None
