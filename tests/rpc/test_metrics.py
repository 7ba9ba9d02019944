"""The page of metrics: its numbers are right, Prometheus' parser reads it, and its clients can do no harm."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

import farcall as fc
from farcall.rpc import Server, connect
from farcall.rpc.server import _metrics_page as metrics_page

from ..waiting import SECONDS, soon
from .servers import INIT, Events

parser = pytest.importorskip("prometheus_client.parser")


def page(server: Server) -> str:
    assert server.metrics_url is not None
    with urllib.request.urlopen(server.metrics_url, timeout=SECONDS) as answer:  # noqa: S310
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(answer.read().decode())


def read(server: Server) -> dict[str, float]:
    """Each sample by its name, and the value of its label in brackets."""
    samples = [
        sample for family in parser.text_string_to_metric_families(page(server)) for sample in family.samples
    ]
    return {
        name.removeprefix("farcall_") + "".join(f"[{label}]" for label in labels.values()): value
        for name, labels, value, *_ in samples
    }


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def server(events: Events) -> Iterator[Server]:
    with Server(init=INIT, key="k", log=events, metrics="127.0.0.1:0") as running:
        yield running


@pytest.fixture
def plain(server: Server) -> Iterator[socket.socket]:
    """A connection to the page."""
    with visitor(server) as connection:
        yield connection


def visitor(server: Server) -> socket.socket:
    assert server.metrics_url is not None
    place = urlsplit(server.metrics_url)
    return socket.create_connection((place.hostname, place.port), SECONDS)


def answer_of(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def with_memory(server: Server) -> dict[str, float]:
    """The page, once the server knows the process of the worker, which may answer calls before."""
    end = soon()
    while (found := read(server))["worker_memory_bytes"] == 0 and time.monotonic() < end:
        pass
    return found


def test_the_page_counts(server: Server, events: Events) -> None:
    with connect(server.url, "k", timeout=SECONDS) as session:
        for _ in range(3):
            session.get_function("test.add")(1, 2)
        during = with_memory(server)
        with pytest.raises(fc.errors.ConnectError):
            connect(server.url, "wrong", timeout=SECONDS)
        with pytest.raises(fc.errors.WorkerCrashedError):
            session.get_function("test.segfault")()
    end = events.await_one("session end")
    after = read(server)
    assert (during["sessions_open"], during["calls_total"], during["calls_running"]) == (1, 3, 0)
    assert during["worker_memory_bytes"] > 1 << 20 and after["worker_memory_bytes"] == 0
    assert (after["sessions_open"], after["sessions_opened_total"], after["calls_total"]) == (0, 1, 4)
    assert after["sessions_ended_total[crashed]"] == after["refused_total[key]"] == 1
    assert after["sessions_ended_total[closed]"] == after["faults_total"] == 0
    assert (after["received_bytes_total"], after["sent_bytes_total"]) == (end["received"], end["sent"])
    assert after["session_seconds_count"] == after["session_seconds_bucket[+Inf]"] == 1
    assert after[f"build_info[{fc.__version__}]"] == 1


def test_counters_never_go_back(server: Server, events: Events) -> None:
    before: dict[str, float] = {}
    for number in range(1, 4):
        with connect(server.url, "k", timeout=SECONDS) as session:
            session.get_function("test.add")(1, 2)
            now = read(server)
        events.await_one("session end", session=number)
        later = read(server)
        for samples in (now, later):
            assert all(samples[name] >= value for name, value in before.items() if "_total" in name)
            before = samples


@pytest.mark.parametrize("path", ["/", "/metrics/x", "/../metrics"])
def test_there_is_no_other_page(server: Server, path: str) -> None:
    assert server.metrics_url is not None
    with (
        pytest.raises(urllib.error.HTTPError) as error,
        urllib.request.urlopen(server.metrics_url[:-8] + path),  # noqa: S310
    ):
        pass
    assert error.value.code == 404
    error.value.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\nsomething", b"501"),
        (b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /metrics HTTP/1.1\r\nA: " + b"b" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"m" * 100_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"\x16\x03\x01\x00\xff nonsense\r\n\r\n", b"400"),
    ],
)
def test_requests_that_are_refused(
    server: Server, plain: socket.socket, request_: bytes, status: bytes
) -> None:
    with contextlib.suppress(OSError):  # the server answers, and closes, before it has read all
        plain.sendall(request_)
        plain.shutdown(socket.SHUT_WR)
    assert status in answer_of(plain)[:200]
    assert read(server)["sessions_open"] == 0


def test_visitors_that_say_nothing_are_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_page, "_REQUEST_SECONDS", 0.2)
    with visitor(server) as silent:
        silent.sendall(b"GET /met")
        assert answer_of(silent) == b""


def test_a_crowd_of_silent_visitors_delays_no_session(server: Server) -> None:
    crowd = [visitor(server) for _ in range(metrics_page._REQUESTS)]
    with connect(server.url, "k", timeout=SECONDS) as session:
        assert session.get_function("test.add")(20, 22) == 42
    with visitor(server) as one_more:
        assert answer_of(one_more) == b""  # there is no room, and it is told at once
    for one in crowd:
        one.close()
    while True:  # until the server has seen that they left
        try:
            assert "farcall_sessions_open" in page(server)
            break
        except OSError:
            continue


@pytest.mark.parametrize("place", ["", "here", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "tcp://a:b"])
def test_a_place_that_is_not_valid(place: str) -> None:
    with pytest.raises(fc.UsageError, match="metrics: expected HOST:PORT, such as"):
        Server(metrics=place)


def test_a_place_that_is_taken(server: Server) -> None:
    assert server.metrics_url is not None
    taken = urlsplit(server.metrics_url).netloc
    with pytest.raises(fc.UsageError, match="metrics: cannot listen at"):
        Server(metrics=taken)


def test_the_page_ends_with_its_server(server: Server) -> None:
    server.close()
    with pytest.raises(OSError):
        page(server)
