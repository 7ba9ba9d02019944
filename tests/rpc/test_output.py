"""What a session prints reaches its client: only its own output, bounded, and after a crash, too."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.errors import ProtocolError, RemoteError, WorkerCrashedError
from farcall.rpc import Limits, Server, Session, connect
from farcall.rpc.client import _output as client
from farcall.rpc.server import _output as server_output
from farcall.rpc.server import _questions as questions

from ..waiting import SECONDS
from .servers import INIT, works

KEPT = server_output._KEPT


def write(session: Session, data: bytes) -> None:
    session.get_function("test.write")(data)


@pytest.mark.parametrize("by", ["python", "c", "child"])
def test_a_client_gets_what_its_functions_print_once(session: Session, by: str) -> None:
    assert session.output() == ""
    session.get_function("test.print")("loading", by)
    session.get_function("test.print")("done", by)
    assert session.output() == "loading\ndone\n"
    assert session.output() == ""


def test_a_client_gets_nothing_of_others(server: Server, session: Session) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as other:
        write(other, b"mine\n")
        write(session, b"yours\n")
        assert (other.output(), session.output()) == ("mine\n", "yours\n")


def test_a_begun_line_and_half_a_character(session: Session) -> None:
    write(session, "50 %, 20 °".encode()[:-1])
    assert session.output() == "50 %, 20 "
    write(session, "°C\x1b[2K".encode()[1:])
    assert session.output() == "°C\x1b[2K"
    write(session, b"\xff\xfe|")
    assert session.output() == "��|"


def test_text_in_a_buffer_of_the_process_is_written_first(session: Session) -> None:
    session.get_function("test.begin_line")("py", "c")
    assert sorted(session.output()) == sorted("pyc")


def test_the_end_of_much_output_and_how_much_is_lost(capfd: pytest.CaptureFixture[str]) -> None:
    limits = Limits(output_bytes=1 << 20)
    with Server(init=INIT, limits=limits) as flooded, connect(flooded.url, timeout=SECONDS) as session:
        session.get_function("test.flood")(2 << 20)  # without a line's end, more than the log takes
        write(session, b"last")
        text = session.output()
        lost, _, rest = text.partition("\n")
        assert lost == f"[{(2 << 20) + 4 - KEPT:,} bytes of output are lost here]"
        assert rest == "x" * (KEPT - 4) + "last"
        write(session, b"more")
        assert session.output() == "more"
    assert len(capfd.readouterr().err) < 1.2 * (1 << 20)


def test_a_crash_quotes_the_last_lines(server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        write(session, b"".join(b"line %d\n" % i for i in range(20)))
        write(session, b"\x1b]0;owned\x07" + b"y" * 5000 + b"\nbad index 7")
        with pytest.raises(WorkerCrashedError) as caught:
            session.get_function("test.segfault")()
    first, *quoted = str(caught.value).split("\n")
    assert "SIGSEGV" in first and first.endswith("connect again. The last that it printed:")
    assert [line.strip() for line in quoted[:6]] == [f"line {i}" for i in range(14, 20)]
    assert quoted[6].strip().startswith(r"\x1b]0;owned\x07yyy") and len(quoted[6]) < 200
    assert quoted[7:] == ["    bad index 7"]
    assert works(server)


def test_a_crash_without_output_quotes_none(server: Server) -> None:
    with (
        connect(server.url, key="k", timeout=SECONDS) as session,
        pytest.raises(WorkerCrashedError) as caught,
    ):
        session.get_function("test.segfault")()
    assert str(caught.value).endswith("connect again")


def test_through_hops_it_is_the_output_of_the_last_server(servers: list[Server]) -> None:
    first, second, third = servers
    via = [(first.url, "k"), (second.url, "second")]
    with connect(third.url, key="third", via=via, timeout=SECONDS) as far:
        write(far, b"from afar\n")
        assert far.output() == "from afar\n"
        write(far, b"farewell\n")
        with pytest.raises(WorkerCrashedError, match=r"hop 3 .*printed:\n    from afar\n    farewell"):
            far.get_function("test.segfault")()


# ---- servers that keep none, and hostile ones


def test_a_server_of_tvm_keeps_none(tvm: Session) -> None:
    for _ in range(2):
        with pytest.raises(RemoteError, match=r"keeps no output .* TVM's, or an older one; read what"):
            tvm.output()


def test_a_server_without_a_supervisor_keeps_none() -> None:
    with pytest.raises(RemoteError, match=r"keeps no output.* on its own stdout"):
        questions.output(None, 0)


class Answers:
    """A server whose function gives these answers."""

    url = "tcp://liar"

    def __init__(self, *answers: object) -> None:
        self._answers = iter(answers)

    def helper_or_none(self, name: str) -> Any:
        assert name == "farcall.rpc.output"
        return lambda start: next(self._answers)


@pytest.mark.parametrize("answer", [None, "text", (0,), (0, "text"), (b"", 0), (-1, b""), (0, b"", 0)])
def test_an_answer_that_is_none(answer: object) -> None:
    with pytest.raises(ProtocolError, match=r"tcp://liar answered `farcall.rpc.output` with"):
        client.Output(Answers(answer)).read()  # type: ignore[arg-type]


def test_a_server_that_goes_back() -> None:
    output = client.Output(Answers((0, b"abc"), (1, b"bc")))  # type: ignore[arg-type]
    assert output.read() == "abc"
    with pytest.raises(ProtocolError):
        output.read()


# ---- the supervisor's side


@given(st.lists(st.binary(max_size=KEPT), max_size=6), st.integers(0, 6 * KEPT))
def test_the_tail_of_an_output(pieces: list[bytes], start: int) -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    tail, whole = server_output.Tail(), b"".join(pieces)
    try:
        for piece in filter(None, pieces):
            assert os.write(write, piece) == len(piece)
            assert tail.read(read) == piece
    finally:
        os.close(read)
        os.close(write)
    begin, data = tail.since(start)
    assert begin == min(max(start, len(whole) - KEPT), len(whole))
    assert data == whole[begin:]
    tail.clear()
    assert tail.since(start) == (0, b"")


@contextmanager
def answering(**answers: Any) -> Iterator[str]:
    """A supervisor's socket, in a thread; its address."""
    loop = asyncio.new_event_loop()
    socket = questions.QuestionSocket(answers["sessions"], answers["output"])
    task = loop.create_task(socket.run())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([task])))
    thread.start()
    try:
        yield socket.address
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        socket.close()
        loop.close()


def test_the_socket_knows_who_asks() -> None:
    asked: list[tuple[int, int]] = []

    def output(pid: int, start: int) -> tuple[int, bytes] | None:
        asked.append((pid, start))
        return (start, b"text") if start else None

    with answering(sessions=lambda: [{"session": 1}], output=output) as address:
        assert questions.output(address, 5) == (5, b"text")
        with pytest.raises(RemoteError, match="does not know this session's process"):
            questions.output(address, -3)
        assert questions.sessions(address) == '[{"session": 1}]'
        for junk in (b"output", b"output -1", b"output x", b"\0", b"sessions now", b"output 1 2"):
            assert questions._ask(address, junk) == b""
    assert asked == [(os.getpid(), 5), (os.getpid(), 0)]
    with pytest.raises(RemoteError, match="does not answer its own session"):
        questions.output(address, 0)
