"""Any wrong answer of a server raises a typed error that blames the server; the client survives."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import farcall as fc
from farcall.errors import ProtocolError
from farcall.rpc import Session, connect

from ..waiting import SECONDS
from .impostors import ACCEPT, VOID, impostor, take_packet
from .peers import integer, packet, pointer, sequence, text

NONE = struct.pack("<i", 0)
FUNCTION = packet(4, sequence(pointer(7)))


def raw_text(value: bytes) -> bytes:
    return struct.pack("<iQ", 8, len(value)) + value


def result(kind: int, value: bytes) -> bytes:
    """The reply to a call."""
    return packet(4, sequence(integer(kind), value))


class Stage:
    """A client of a server that answers each request with the next reply of a queue, or with None."""

    def __init__(self) -> None:
        self.replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.session: Session

    def serve(self, connection: socket.socket) -> None:
        connection.sendall(ACCEPT + VOID + VOID)
        connection.recv(8 + len("client:k"), socket.MSG_WAITALL)
        for _ in range(2):
            take_packet(connection)
        with contextlib.suppress(struct.error):  # the client has closed
            while True:
                take_packet(connection)
                connection.sendall(VOID if self.replies.empty() else self.replies.get())

    def function(self) -> fc.ffi.Function:
        self.replies.put(FUNCTION)
        return self.session.get_function("f")


@contextlib.contextmanager
def on_stage() -> Iterator[Stage]:
    stage = Stage()
    with impostor(stage.serve) as url, connect(url, key="k", timeout=SECONDS) as stage.session:
        yield stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    with on_stage() as running:
        yield running


@pytest.fixture(scope="module")
def long_stage() -> Iterator[tuple[Stage, fc.ffi.Function]]:
    with on_stage() as running:
        yield running, running.function()


@given(st.one_of(st.binary(max_size=24), st.text(max_size=24).map(str.encode)))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_text_is_utf8_or_the_server_s_fault(long_stage: tuple[Stage, fc.ffi.Function], data: bytes) -> None:
    running, f = long_stage
    running.replies.put(result(65, raw_text(data)))
    try:
        expected = data.decode()
    except UnicodeDecodeError as error:
        words = f"byte 0x{data[error.start]:02x} at {error.start} of {len(data)}.*let it give bytes"
        with pytest.raises(ProtocolError, match=f"remote `f` gave a text that is not UTF-8.*{words}"):
            f()
    else:
        assert f() == expected


def test_what_is_no_text_in_a_list_and_in_a_pipeline(stage: Stage) -> None:
    f = stage.function()
    bad = result(65, raw_text(b"\xff"))
    for reply in (
        result(71, pointer(8)),
        FUNCTION,
        result(1, integer(2)),
        FUNCTION,
        bad,
        result(1, integer(3)),
    ):
        stage.replies.put(reply)
    with pytest.raises(ProtocolError, match="`f` gave a text that is not UTF-8"):
        f()
    stage.replies.put(VOID)  # the list is released
    stage.replies.put(bad)
    stage.replies.put(result(65, text("good")))
    with stage.session.pipeline() as p:
        calls = [p(f), p(f)]
    assert isinstance(calls[0].exception(), ProtocolError)
    assert calls[1].result() == "good"


@pytest.mark.parametrize("words", [b"ValueError: \xff\xfe", b"\xff", b"RPCError: Error caught: \xc3"])
def test_words_of_an_error_that_are_no_text(stage: Stage, words: bytes) -> None:
    f = stage.function()
    stage.replies.put(packet(5, sequence(raw_text(words))))
    with pytest.raises(Exception, match="\ufffd"):
        f()
    stage.replies.put(result(1, integer(5)))
    assert f() == 5


def test_a_name_is_cut_between_characters_or_shown_so(stage: Stage) -> None:
    stage.replies.put(FUNCTION)
    f = stage.session.get_function("x" + "é" * 100)
    stage.replies.put(result(68, pointer(9)))
    assert f().name.startswith("result of xé")


STRANGE = {
    "none": VOID,
    "nothing": packet(4, sequence()),
    "int": packet(4, sequence(integer(2**40))),
    "result int": result(1, integer(2**40)),
    "result none": result(0, NONE),
    "text": result(65, text("]")),
    "no text": result(65, raw_text(b"\xff")),
    "number in JSON": result(65, text("7")),
    "deep JSON": result(65, text("[" * 100_000)),
    "bytes": result(66, struct.pack("<iQ", 9, 2) + b"ab"),
    "function": result(68, pointer(3)),
    "module": result(73, pointer(3)),
    "map": result(72, pointer(3)),
    "null": packet(4, sequence(pointer(0))),
    "handle": FUNCTION,
    "several": packet(4, sequence(integer(1), integer(2), integer(3), integer(4))),
    "error": packet(5, sequence(raw_text(b"\xff"))),
}
OPERATIONS: dict[str, Callable[[Session], Any]] = {
    "get_function": lambda s: s.get_function("f"),
    "function_names": lambda s: s.function_names(),
    "system_lib": lambda s: s.system_lib(),
    "download": lambda s: s.download("a"),
    "listdir": lambda s: s.listdir(),
    "upload": lambda s: s.upload(b"a", "a"),
    "traceback": lambda s: s.last_traceback(),
    "benchmark": lambda s: s.benchmark("f"),
    "exist": lambda s: s.cpu().exist,
    "name": lambda s: s.cpu().name,
    "dims": lambda s: s.cpu().max_thread_dimensions,
    "stream": lambda s: s.cpu().stream(),
    "tensor": lambda s: s.tensor(np.ones(2)),
    "module": lambda s: [
        (m := s.system_lib()).kind,
        m.implements_function("f"),
        m.function_names(),
        m.get_function_metadata("f"),
        m.inspect_source(),
    ],
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_anything_may_be_the_answer(operation: str) -> None:
    """Whatever the server says, an operation gives a result of its kind, or blames the server."""
    for name, reply in STRANGE.items():
        for before in ([], [FUNCTION], [FUNCTION, result(73, pointer(5)), FUNCTION]):
            with on_stage() as fresh:
                for part in (*before, *[reply] * 12):
                    fresh.replies.put(part)
                try:
                    OPERATIONS[operation](fresh.session)
                except (fc.RemoteError, AttributeError) as error:
                    assert not isinstance(error, AttributeError) or "exports no function" in str(error), name


def test_a_trace_of_a_server_without_a_clock(stage: Stage, tmp_path: Path) -> None:
    for reply in (FUNCTION, result(65, text("noon"))):
        stage.replies.put(reply)
    with fc.trace(tmp_path / "t.json"):
        pass
    assert (tmp_path / "t.json").exists()
