"""Traces: where remote calls spend their time."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.rpc import Server, Session, connect
from farcall.rpc.client._tracing import _read

from ..waiting import SECONDS
from .servers import INIT


def check_format(trace: dict[str, Any]) -> None:
    """Chrome's trace event format as traces use it: complete events, and metadata that names their places."""
    assert set(trace) == {"traceEvents"}
    named: dict[str, dict[Any, str]] = {"process_name": {}, "thread_name": {}}
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        assert type(event["pid"]) is int
        if event["ph"] == "M":
            place = (event["pid"], event["tid"]) if event["name"] == "thread_name" else event["pid"]
            assert place not in named[event["name"]]
            named[event["name"]][place] = event["args"]["name"]
            continue
        assert set(event) == {"ph", "pid", "tid", "cat", "name", "ts", "dur"}
        assert event["ph"] == "X"
        assert type(event["tid"]) is int
        assert event["name"]
        assert math.isfinite(event["ts"])
        assert math.isfinite(event["dur"])
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert named["process_name"][event["pid"]]
        assert named["thread_name"][event["pid"], event["tid"]] == event["cat"]
        lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():  # on one thread they follow each other
        assert all(after >= before - 1e-3 for (_, before), (after, _) in pairwise(sorted(spans)))


def events(path: Path) -> tuple[dict[str, set[tuple[str, str]]], list[dict[str, Any]]]:
    """(category, name) by track, and the raw spans."""
    trace = json.loads(path.read_bytes())
    check_format(trace)
    raw = trace["traceEvents"]
    tracks = {event["pid"]: event["args"]["name"] for event in raw if event["name"] == "process_name"}
    spans = [event for event in raw if event["ph"] == "X"]
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
    assert {("encode", "test.sum"), ("wire", "test.sum"), ("wire", "test.add")} <= seen["this process"]
    assert {("copy", "kCopyToRemote"), ("copy", "kCopyFromRemote")} <= seen["this process"]
    assert {("queue", "test.sum"), ("compute", "test.sum"), ("compute", "test.add")} <= seen[session.url]
    assert ("copy", "kCopyToRemote") in seen[session.url]
    assert not any("farcall.rpc" in name for names in seen.values() for _, name in names)
    assert all(span["ts"] >= 0 and span["dur"] >= 0 for span in spans)
    # What a server computes lies inside the time for which its answer was awaited.
    wire, compute = (
        next(span for span in spans if (span["cat"], span["name"]) == (category, "test.sum"))
        for category in ("wire", "compute")
    )
    assert wire["dur"] >= compute["dur"]


def test_spans_of_a_thread_do_not_overlap(session: Session, tmp_path: Path) -> None:
    with fc.trace(tmp_path / "t.json"), session.pipeline() as p:
        p.map(session.get_function("test.nop"), [()] * 50)
    _, spans = events(tmp_path / "t.json")
    assert len({span["tid"] for span in spans if (span["pid"], span["cat"]) == (0, "wire")}) > 1


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
        _read(data, "tcp://x:1", 0)


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
        forwarded = {("wire", "test.add"), ("wire", "kDevAllocDataWithScope"), ("copy", "kCopyToRemote")}
        assert seen[relay] - {("wire", "kFreeHandle"), ("wire", "kDevFreeData")} == forwarded
    assert {("compute", "test.add"), ("copy", "kCopyToRemote")} <= seen[third.url]
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
    assert ("copy", "kCopyFromRemote") in seen[server.url]
    # What the last server computes lies inside the time for which the one before it waited for the answer.
    computed = [span["dur"] for span in spans if (span["cat"], span["name"]) == ("compute", "add_one")]
    waited = [span["dur"] for span in spans if (span["cat"], span["name"]) == ("wire", "add_one")]
    assert len(computed) == 1
    assert len(waited) == 2
    assert min(waited) >= computed[0]
