"""Traces: where remote calls spend their time."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

import farcall as fc
from farcall import _core
from farcall.rpc import Server, Session, connect
from farcall.rpc.client._trace_events import KINDS, Span
from farcall.rpc.client._trace_events import events as events_of
from farcall.rpc.client._trace_summary import summary
from farcall.rpc.client._tracing import _Place, _read

from ..waiting import SECONDS
from .servers import INIT


def check_format(trace: dict[str, Any]) -> None:
    """Chrome's trace event format as traces use it: each event as its phase wants it, at a named place."""
    assert set(trace) == {"traceEvents"}
    events = trace["traceEvents"]
    names = [(e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M"]
    assert len(names) == len(set(names))
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] != "M"]
    for event in spans:
        assert event["pid"] in processes
        assert event["name"]
        assert math.isfinite(event["ts"])
        assert event["ts"] >= 0
    assert [e["ts"] for e in spans] == sorted(e["ts"] for e in spans)
    check_rows([e for e in spans if e["ph"] == "X"], threads)
    check_asynchronous([e for e in spans if e["ph"] in "be"])
    check_arrows([e for e in spans if e["ph"] in "stf"], [e for e in spans if e["ph"] == "X"])
    assert {e["ph"] for e in spans} <= set("Xbestf")


def check_rows(spans: list[dict[str, Any]], threads: dict[tuple[int, int], str]) -> None:
    """The spans of a row are of its kind; one follows the other, or lies within it."""
    rows: dict[tuple[int, int], list[float]] = {}
    for span in spans:
        assert math.isfinite(span["dur"])
        assert span["dur"] >= 0
        assert threads[span["pid"], span["tid"]] == span["cat"]
        ends = rows.setdefault((span["pid"], span["tid"]), [])
        while ends and ends[-1] <= span["ts"] + 1e-3:
            ends.pop()
        assert not ends or span["ts"] + span["dur"] <= ends[-1] + 1e-3
        ends.append(span["ts"] + span["dur"])


def check_asynchronous(events: list[dict[str, Any]]) -> None:
    """Each begins once and then ends once."""
    begun: dict[tuple[int, str, int], str] = {}
    for event in events:
        key = (event["pid"], event["cat"], event["id"])
        if event["ph"] == "b":
            assert key not in begun
            begun[key] = event["name"]
        else:
            assert begun[key] == event["name"]
            begun[key] = ""
    assert not any(begun.values())


def check_arrows(events: list[dict[str, Any]], spans: list[dict[str, Any]]) -> None:
    """Each starts and ends, within spans."""
    phases: dict[int, str] = {}
    starts = {(span["pid"], span["tid"], span["ts"]) for span in spans}
    for event in events:
        assert (event["pid"], event["tid"], event["ts"]) in starts
        phases[event["id"]] = phases.get(event["id"], "") + event["ph"]
    assert set(phases.values()) <= {"sf", "stf"}


def events(path: Path) -> tuple[dict[str, set[tuple[str, str]]], list[dict[str, Any]]]:
    """(kind, name) by track, and the spans; asynchronous ones, too, have a duration."""
    trace = json.loads(path.read_bytes())
    check_format(trace)
    raw = trace["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in raw if event["name"] == "process_name"}
    tracks = {pid: re.sub(r"^hop \d+: ", "", name) for pid, name in names.items()}
    ends = {(e["pid"], e["cat"], e["id"]): e["ts"] for e in raw if e["ph"] == "e"}
    spans = [event for event in raw if event["ph"] == "X"]
    spans += [e | {"dur": ends[e["pid"], e["cat"], e["id"]] - e["ts"]} for e in raw if e["ph"] == "b"]
    seen: dict[str, set[tuple[str, str]]] = {name: set() for name in tracks.values()}
    for span in spans:
        seen[tracks[span["pid"]]].add((span["cat"], span["name"]))
    return seen, spans


def test_both_ends_are_in_it(session: Session, tmp_path: Path) -> None:
    total, add = session.get_function("test.sum"), session.get_function("test.add")
    with fc.trace(tmp_path / "t.json"):
        x = session.tensor(np.ones(10, "float32"))
        total(x)
        x.numpy()
        with session.pipeline() as p:
            p.map(add, [(1, 2)] * 5)
    seen, spans = events(tmp_path / "t.json")
    assert {("encode", "test.sum"), ("wire", "test.sum"), ("async", "test.add")} <= seen["this process"]
    assert {("copy", "copy to the server"), ("copy", "copy from the server")} <= seen["this process"]
    assert {("queue", "test.sum"), ("compute", "test.sum"), ("compute", "test.add")} <= seen[session.url]
    assert ("copy", "copy to the server") in seen[session.url]
    assert not any("farcall.rpc" in name for names in seen.values() for _, name in names)
    assert all(span["ts"] >= 0 and span["dur"] >= 0 for span in spans)
    # What a server computes lies inside the time for which its answer was awaited.
    wire, compute = (
        next(span for span in spans if (span["cat"], span["name"]) == (category, "test.sum"))
        for category in ("wire", "compute")
    )
    assert wire["dur"] >= compute["dur"]


def test_calls_of_a_pipeline_are_asynchronous(session: Session, tmp_path: Path) -> None:
    """They overlap, and so do their requests in the server's queue; what computes has one row."""
    with fc.trace(tmp_path / "t.json"), session.pipeline() as p:
        p.map(session.get_function("test.nop"), [()] * 50)
    _, spans = events(tmp_path / "t.json")
    phases = {(span["cat"], span["ph"]) for span in spans if span["name"] == "test.nop"}
    assert phases == {("call", "X"), ("async", "b"), ("queue", "b"), ("compute", "X")}
    assert len({span["tid"] for span in spans if span["cat"] == "compute"}) == 1


def test_calls_within_calls(session: Session, tmp_path: Path) -> None:
    """Packets that arrive during a call do not change the time at which the call's request arrived."""
    call, add = session.get_function("test.call"), session.get_function("test.add")
    with fc.trace(tmp_path / "t.json"):
        assert call(lambda n: add(n, call(lambda m: m + 1, 1)), 40) == 42
    seen, spans = events(tmp_path / "t.json")
    assert {("compute", "test.call"), ("compute", "test.add"), ("queue", "test.call")} <= seen[session.url]
    inner, outer = sorted(
        (span for span in spans if (span["cat"], span["name"], span["pid"]) == ("compute", "test.call", 1)),
        key=lambda span: float(span["dur"]),
    )
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


def test_calls_back_are_no_time_in_the_queue(session: Session, tmp_path: Path) -> None:
    call, add = session.get_function("test.call"), session.get_function("test.add")
    with fc.trace(tmp_path / "t.json"):
        assert call(lambda x: add(x, 1), 1) == 2
    _, spans = events(tmp_path / "t.json")
    assert {"test.call", "test.add"} <= {span["name"] for span in spans if span["cat"] == "queue"}
    assert all(span["dur"] >= 0 for span in spans)


def test_sessions_within_the_block(server: Server, tmp_path: Path) -> None:
    with fc.trace(tmp_path / "t.json"), connect(server.url, key="k", timeout=SECONDS) as inner:
        inner.get_function("test.add")(1, 2)
    seen, _ = events(tmp_path / "t.json")
    assert ("compute", "test.add") in seen[server.url]


def test_nothing_is_noted_outside(session: Session, tmp_path: Path) -> None:
    add = session.get_function("test.add")
    add(1, 1)
    with fc.trace(tmp_path / "t.json"):
        pass
    add(1, 1)
    seen, _ = events(tmp_path / "t.json")
    assert seen == {"this process": set()}


def test_traces_do_not_nest(tmp_path: Path) -> None:
    inner = fc.trace(tmp_path / "b.json")
    with fc.trace(tmp_path / "a.json"), pytest.raises(fc.UsageError, match="do not nest"), inner:
        pass
    assert not (tmp_path / "b.json").exists()


def test_a_worker_that_dies_leaves_the_trace(server: Server, tmp_path: Path) -> None:
    with fc.trace(tmp_path / "t.json"), connect(server.url, key="k", timeout=SECONDS) as session:
        leave = session.get_function("test.exit")
        with pytest.raises(fc.errors.WorkerCrashedError):
            leave(1)
    seen, _ = events(tmp_path / "t.json")
    assert ("wire", "test.exit") in seen["this process"]


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"{}x",
            b"[1]",
            b"[[1,2]]",
            b'[["a","b","c","d","e"]]',
            7,
            b"[[1,2,3,4,null]]",
            b"[" * 100_000,
        ),
        b'[[1,"wire","f",5,-1]]',
        b'[[1,"wire","f",5,1e400]]',
        b'[[1,"wire","f",1e999,1]]',
        b'[[1,"wire","f",5.5,1]]',
        b'[[1,"wire",{},5,1]]',
        b'[[1,"wire","f",99999999999999999999,1]]',
    ],
)
def test_what_is_no_trace(data: Any) -> None:
    with pytest.raises(fc.errors.ProtocolError, match="no trace"):
        _read(data, _Place(1, "tcp://x:1", "", 0, 0, 0))


def test_one_track_for_each_server_of_a_chain(server: Server, tmp_path: Path) -> None:
    with (
        Server(init=INIT, key="second") as second,
        Server(init=INIT, key="third") as third,
        connect(third.url, "third", via=[(server.url, "k"), (second.url, "second")], timeout=SECONDS) as far,
    ):
        assert far.route == (server.url, second.url, third.url)
        add = far.get_function("test.add")
        with fc.trace(tmp_path / "t.json"):
            add(1, 2)
            far.tensor(np.ones(10))
            with far.pipeline() as p:
                p.map(add, [(1, 2)] * 50)
        assert add(1, 2) == 3
    seen, spans = events(tmp_path / "t.json")
    assert list(seen) == ["this process", server.url, second.url, third.url]
    for relay in (server.url, second.url):
        forwarded = {("wire", "test.add"), ("wire", "allocate a tensor"), ("copy", "copy to the server")}
        assert seen[relay] - {("wire", "release a handle"), ("wire", "free a tensor")} == forwarded
    assert {("compute", "test.add"), ("copy", "copy to the server")} <= seen[third.url]
    relays = {span["pid"] for span in spans if span["cat"] == "wire"} - {0}
    assert sum(span["name"] == "test.add" for span in spans if span["pid"] in relays) == 2 * 51


def test_a_server_between_has_no_other_functions(server: Server) -> None:
    with (
        Server(init=INIT, key="second") as second,
        connect(second.url, "second", via=[(server.url, "k")], timeout=SECONDS) as far,
    ):
        clock = far.get_function(f"farcall.rpc.clock@{second.url}")
        assert clock() < clock()
        for name in ("test.add", "farcall.rpc.debug", "farcall.rpc.clock@", ""):
            with pytest.raises(AttributeError):
                far.get_function(f"{name}@{second.url}")
        with pytest.raises(TypeError, match="no arguments"):
            clock(1)
        with pytest.raises(fc.errors.InvalidHandleError):  # it means nothing to the last server
            far.get_function("test.call")(clock, 1)
        add = far.get_function("test.add")
        calls = [call for i in range(20) for call in (clock.submit(), add.submit(i, 1))]
        assert [call.result(SECONDS) for call in calls[1::2]] == list(range(1, 21))
        times = [call.result(SECONDS) for call in calls[::2]]  # they stand among the answers of the others
        assert sorted(times) == times


def test_a_relay_says_what_it_forwards(server: Server, kernels: Path, tmp_path: Path) -> None:
    with (
        Server(init=INIT, key="second") as second,
        connect(second.url, "second", via=[(server.url, "k")], timeout=SECONDS) as far,
    ):
        adder, call = far.get_function("test.adder"), far.get_function("test.call")
        module = far.load_module(kernels)
        x, out = far.tensor(np.ones(4, "float32")), far.empty((4,))
        with fc.trace(tmp_path / "t.json"):
            assert adder(1)(2) == 3
            module["add_one"](x, out)
            assert call(lambda n: n + 1, 1) == 2
            out.numpy()
            with far.pipeline() as p:
                kept = p(adder, 5)
                p(call, kept, 1)
    seen, spans = events(tmp_path / "t.json")
    names = {name for category, name in seen[server.url] if category == "wire"}
    assert {
        "test.adder",
        "result of test.adder",
        "tvm.rpc.server.ModuleGetFunction",
        "add_one",
        "test.call",
    } <= names
    assert "kCallFunc" not in names
    assert {"result of test.adder", "add_one"} <= {name for _, name in seen[second.url]}
    assert ("copy", "copy from the server") in seen[server.url]
    # What the last server computes lies inside the time for which the one before it waited for the answer.
    computed = [span["dur"] for span in spans if (span["cat"], span["name"]) == ("compute", "add_one")]
    waited = [span["dur"] for span in spans if (span["cat"], span["name"]) == ("wire", "add_one")]
    assert len(computed) == 1
    assert len(waited) == 2
    assert min(waited) >= computed[0]


# ---- what a span says, and where arrows lead ----

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
double (float[n] x) => (float[n] y) { y = Add(x, x) }
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "double.so"
    return fc.partition(onnx.parser.parse_model(MODEL)).build().save(path)


def test_a_local_call_and_its_regions(artifact: Path, tmp_path: Path) -> None:
    main = fc.load_module(artifact)["main"]
    with fc.trace(tmp_path / "t.json"):
        main(np.ones(3, "float32"))
    seen, spans = events(tmp_path / "t.json")
    assert seen == {"this process": {("call", "main"), ("region", "c_0")}}
    call, region = sorted(spans, key=lambda span: str(span["cat"]))
    assert call["args"] == {"hop": 0, "url": "this process", "arguments": "float32[3]"}
    assert region["args"]["arguments"] == "float32[3], float32[3]"
    assert call["ts"] <= region["ts"]
    assert region["ts"] + region["dur"] <= call["ts"] + call["dur"]


def test_arguments_are_shown_as_text(tmp_path: Path) -> None:
    function = fc.convert(lambda *args: None)
    values = (None, True, 7, 0.5, "word", np.zeros((2, 3), "int8"), [1])
    with fc.trace(tmp_path / "t.json"):
        function(*values)
        function(*["long"] * 50)
    _, spans = events(tmp_path / "t.json")
    first, second = (span["args"]["arguments"] for span in spans)
    assert first == 'None, True, 7, 0.5, "word", int8[2, 3], ...'
    assert second == ('"long", ' * 50)[:95]


def test_copies_say_how_much_and_what(session: Session, tmp_path: Path) -> None:
    with fc.trace(tmp_path / "t.json"):
        session.tensor(np.ones((2, 5), "float32")).numpy()
    _, spans = events(tmp_path / "t.json")
    about = {(s["args"]["hop"], s["name"]): s["args"] for s in spans if s["cat"] == "copy"}
    assert {key: value["bytes"] for key, value in about.items()} == dict.fromkeys(
        [
            (0, "copy to the server"),
            (1, "copy to the server"),
            (0, "copy from the server"),
            (1, "copy from the server"),
        ],
        40,
    )
    assert re.fullmatch(r"float32\[2, 5\]( on .*cpu:0)?", about[0, "copy to the server"]["arguments"])
    assert {value["url"] for (hop, _), value in about.items() if hop} == {session.url}


def test_arrows_lead_from_the_client_to_the_kernel(session: Session, artifact: Path, tmp_path: Path) -> None:
    main = session.load_module(artifact)["main"]
    x = session.tensor(np.ones(3, "float32"))
    with fc.trace(tmp_path / "t.json"):
        main(x)
        with session.pipeline() as p:
            p(main, p(main, x))
        x.numpy()
    raw = json.loads((tmp_path / "t.json").read_bytes())["traceEvents"]
    spans = {(e["pid"], e["tid"], e["ts"]): (e["cat"], e["name"]) for e in raw if e["ph"] == "X"}
    arrows: dict[int, list[tuple[str, str]]] = {}
    for event in raw:
        if event["ph"] in "stf":
            arrows.setdefault(event["id"], []).append(spans[event["pid"], event["tid"], event["ts"]])
    work = [("compute", "main"), ("region", "c_0")]
    assert sorted(arrows.values()) == sorted(
        [
            [("encode", "main"), *work],
            [("call", "main"), *work],
            [("call", "main"), *work],
            [("encode", "copy from the server"), ("copy", "copy from the server")],
        ]
    )


def test_a_request_that_the_server_refuses_has_no_arrow() -> None:
    """It caused no work, and the next request of the name, which did, does not lose its own to it."""
    refused, made, url = 0, 2000, "tcp://there"
    spans = [
        *(Span(0, "", "encode", "f", start, 100, session=1) for start in (refused, made)),
        *(Span(0, "", "wire", "f", start + 100, 900, session=1) for start in (refused, made)),
        Span(1, url, "compute", "f", made + 300, 200, session=1),
    ]
    arrows = [(event["ph"], event["ts"]) for event in events_of(spans) if event["ph"] in "sf"]
    assert arrows == [("s", 2.0), ("f", 2.3)]


def test_a_trace_says_how_many_spans_it_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function = fc.convert(abs)
    _core.trace_start()
    for _ in range((1 << 19) + 3):
        function(1)
    kept, dropped = _core.trace_stop()
    assert (len(kept), dropped) == (1 << 19, 3)
    monkeypatch.setattr(_core, "trace_stop", lambda: ([], 3))
    with fc.trace(tmp_path / "t.json"):
        pass
    assert json.loads((tmp_path / "t.json").read_bytes())["otherData"] == {"dropped": 3}


spans = st.builds(
    Span,
    hop=st.integers(0, 2),
    url=st.just("u"),
    kind=st.sampled_from(KINDS),
    name=st.sampled_from("fg"),
    start=st.integers(0, 30).map(lambda n: 1000 * n),
    duration=st.integers(0, 9).map(lambda n: 1000 * n),
    session=st.integers(0, 1),
    relay=st.booleans(),
)


@given(st.lists(spans, max_size=30), st.integers(0, 5))
def test_any_spans_make_a_trace(spans: list[Span], slack: int) -> None:
    made = events_of(spans, slack)
    check_format({"traceEvents": made})
    assert sum(event["ph"] in "Xb" for event in made) == len(spans)


def test_the_summary_counts_the_spans_of_each_kind(session: Session, tmp_path: Path) -> None:
    add = session.get_function("test.add")
    with fc.trace(tmp_path / "t.json"):
        add(1, 2)
        with session.pipeline() as p:
            p.map(add, [(1, 2)] * 5)
    rows = {(row.where, row.kind): row for row in summary(tmp_path / "t.json") if row.name == "test.add"}
    there = f"hop 1: {session.url}"
    assert {key: row.count for key, row in rows.items()} == {
        ("this process", "call"): 6,
        ("this process", "encode"): 1,
        ("this process", "wire"): 1,
        ("this process", "async"): 5,
        (there, "queue"): 6,
        (there, "compute"): 6,
    }
    assert all(0 <= row.median <= row.longest <= row.total for row in rows.values())


@pytest.mark.parametrize(
    "data", [b"", b"[1]", b"{}", b'{"traceEvents": 7}', b'[{"ph": "X"}]', b"[" * 100_000]
)
def test_what_cannot_be_summarized(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(data)
    with pytest.raises(fc.UsageError, match="is not a trace"):
        summary(tmp_path / "t.json")
    with pytest.raises(fc.UsageError, match="cannot read"):
        summary(tmp_path / "nowhere.json")
