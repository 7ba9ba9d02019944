"""Exceptions of signal handlers, such as Ctrl-C, end any wait for a server; sessions remain usable."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import signal
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.errors import ConnectionLostError
from farcall.rpc import Server, Session, connect

from .conftest import INIT, SECONDS

TICK_SECONDS = 0.01
TICKS = 5  # until the handler raises: by then whoever waits does wait


class Interrupted(BaseException):
    """The exception that the handler raises."""


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """The block waits, and ends with the exception of a signal handler, which runs once."""
    ticks, done, main = [0], threading.Event(), threading.main_thread().ident
    assert main is not None

    def handler(number: int, frame: object) -> None:
        ticks[0] += 1
        if ticks[0] == TICKS:
            raise Interrupted

    def tick() -> None:
        while not done.wait(TICK_SECONDS):
            signal.pthread_kill(main, signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, handler)
    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        done.set()
        ticker.join()
        signal.signal(signal.SIGUSR2, before)


class Board:
    """A session whose server runs a call until the test releases it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.add = session.get_function("test.add")
        self.wait = session.get_function("test.wait_for")
        self.pid = session.get_function("test.pid")()
        with session.pipeline() as p:
            p(self.add, 1, 2)  # from now on pipelines need not ask what the server can do
        self._root = Path(session.get_function("test.here")()).parent
        self._names = iter(map(str, range(1000)))
        self.name = ""

    def work(self) -> fc.rpc.Call:
        """A call that runs until `release`."""
        self.name = f"{self.pid}-{next(self._names)}"
        return self.wait.submit(self.name)

    def release(self) -> None:
        (self._root / self.name).touch()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The worker stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


@pytest.fixture(params=["tcp", "shm"])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Board]:
    place = "tcp://127.0.0.1:0" if request.param == "tcp" else f"shm://{tmp_path}/place"
    with Server(init=INIT, urls=[place]) as server, connect(server.url, timeout=SECONDS) as session:
        yield Board(session)


@pytest.mark.parametrize("timeout", [None, SECONDS])
def test_waiting_for_a_result(board: Board, timeout: float | None) -> None:
    call = board.work()
    with interrupted():
        call.result(timeout)
    assert not call.done()
    with interrupted():  # as often as one likes
        call.exception(timeout)
    board.release()
    assert call.result(timeout) is None
    assert board.add(20, 22) == 42


@pytest.mark.parametrize("way", ["end", "wait", "map", "argument"])
def test_waiting_for_a_pipeline(board: Board, way: str) -> None:
    calls: list[Any] = []

    def run() -> None:
        with board.session.pipeline() as p:
            calls.append(board.work())
            calls.append(p(board.add, 1, 2))
            if way == "wait":
                p.wait()
            elif way == "map":
                p.map(board.add, [(i, i) for i in range(5000)])
            elif way == "argument":
                p(board.add, np.ones(3), calls[0])

    with interrupted():
        run()
    board.release()
    assert calls[0].result() is None
    assert calls[1].result() == 3
    assert board.add(20, 22) == 42


def test_a_plain_call(board: Board) -> None:
    board.name = f"{board.pid}-plain"
    with interrupted():
        board.wait(board.name)
    with interrupted():  # what comes next waits for its turn
        board.add(20, 22)
    later = board.add.submit(1, 2)
    board.release()
    assert board.add(20, 22) == 42
    assert later.result() == 3


def test_a_plain_call_behind_a_submit(board: Board) -> None:
    call = board.work()
    with interrupted():
        board.add(20, 22)
    board.release()
    assert board.add(20, 22) == 42
    assert call.result() is None


def test_everything_that_takes_a_round_trip(board: Board) -> None:
    session = board.session
    x = session.tensor(np.arange(1 << 20, dtype="float32"))
    one = session.get_function("test.echo")
    target = session.empty((1 << 20,), "float32")
    requests: list[Callable[[], object]] = [
        lambda: session.get_function("test.sum"),
        lambda: session.empty((5,), "float32"),
        lambda: session.tensor(np.arange(5)),
        lambda: one(x),
        x.numpy,
        lambda: session.copy(x, target),
        lambda: session.upload(b"content", "file"),
        lambda: session.cpu(0).sync(),
        lambda: one([1, 2]),
    ]
    for request in requests:
        with board.stopped(), interrupted():
            request()
        assert board.add(20, 22) == 42
        request()
    assert (x.numpy() == np.arange(1 << 20)).all()
    assert target.numpy().sum() == x.numpy().sum()


def test_sending_what_the_server_does_not_take(board: Board) -> None:
    count, data = board.session.get_function("test.length"), bytes(8 << 20)
    with board.stopped(), interrupted(), board.session.pipeline() as p:
        for _ in range(20):
            p(count, data)  # in part on the line
    assert board.add(20, 22) == 42
    assert count(data) == len(data)


def test_asking_what_the_server_can_do(board: Board) -> None:
    """The first call with a limit asks whether the server enforces limits."""
    with fc.deadline(SECONDS):
        for _ in range(2):
            with board.stopped(), interrupted():
                board.add(1, 2)
        assert board.add(20, 22) == 42


def test_while_another_thread_waits_for_its_reply(board: Board) -> None:
    call, other = board.work(), board.add.submit(1, 2)
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(call.result()))
    thread.start()
    with interrupted():
        other.result()
    board.release()
    thread.join(SECONDS)
    assert (seen, other.result()) == ([None], 3)


def test_while_another_thread_has_the_line(board: Board) -> None:
    board.name = f"{board.pid}-thread"
    thread = threading.Thread(target=board.wait, args=(board.name,))
    thread.start()
    with interrupted():
        while True:  # until that thread has it
            board.add(20, 22)
    board.release()
    thread.join(SECONDS)
    assert board.add(20, 22) == 42


def test_a_session_that_is_dropped_with_a_reply_to_come(board: Board) -> None:
    with connect(board.session.url, timeout=SECONDS) as other:
        wait, pid = other.get_function("test.forever"), other.get_function("test.pid")()
        with interrupted():
            wait()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(fc.RemoteError):
            other.get_function("test.add")(1, 2)


def test_ctrl_c_is_a_keyboard_interrupt(board: Board) -> None:
    call, main = board.work(), threading.main_thread().ident
    assert main is not None
    done = threading.Event()

    def tick() -> None:
        if not done.wait(TICKS * TICK_SECONDS):
            signal.pthread_kill(main, signal.SIGINT)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call.result()
    finally:
        done.set()
        ticker.join()
    board.release()
    assert call.result() is None


# ---- while bytes are sent

LONG = 32 << 20  # bytes; no buffer between client and server takes so many


def test_sending_a_long_argument(board: Board) -> None:
    """The rest of the packet is sent later, so that the server reads the next request where it begins."""
    length = board.session.get_function("test.length")
    for argument, size in ((bytes(LONG), LONG), ("x" * LONG, LONG), ([bytes(LONG)], 1)):
        with board.stopped(), interrupted():
            length(argument)
        assert board.add(20, 22) == 42
        assert length(argument) == size


def test_sending_a_copy(board: Board) -> None:
    """What was not sent yet is sent as it was then: the caller may reuse its memory."""
    target = board.session.tensor(np.zeros(LONG // 4, "float32"))
    data = np.arange(LONG // 4, dtype="float32")
    with board.stopped(), interrupted():
        board.session.copy(data, target)
    sent = data.copy()
    data[:] = -1
    assert board.add(20, 22) == 42
    np.testing.assert_array_equal(target.numpy(), sent)


def test_sending_as_often_as_one_likes(board: Board) -> None:
    length, data = board.session.get_function("test.length"), bytes(LONG)
    with board.stopped():
        for _ in range(3):
            with interrupted():
                length(data)
    later = board.add.submit(1, 2)
    assert (later.result(), length(data)) == (3, LONG)


def test_a_session_that_is_closed_while_it_sends(board: Board) -> None:
    with connect(board.session.url, timeout=SECONDS) as other:
        length, pid = other.get_function("test.length"), other.get_function("test.pid")()
        os.kill(pid, signal.SIGSTOP)
        with interrupted():
            length(bytes(LONG))
    os.kill(pid, signal.SIGCONT)
    with pytest.raises(ConnectionLostError):
        length(b"")


def test_more_than_is_kept(board: Board) -> None:
    """A copy of the rest would take too much memory: the session ends, with the exception of the handler."""
    with connect(board.session.url, timeout=SECONDS) as other:
        length, pid = other.get_function("test.length"), other.get_function("test.pid")()
        os.kill(pid, signal.SIGSTOP)
        with interrupted():
            length(bytes(400 << 20))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(
            ConnectionLostError, match=r"interrupted, and its last .* too many to be sent later"
        ):
            length(b"")


# ---- several replies at once


@pytest.mark.parametrize("columns", [2, 2048])  # that the requests fill no buffer, and that they do
def test_copies_in_runs(board: Board, columns: int) -> None:
    there = board.session.tensor(np.zeros((2048, 4096), "float32"))
    part = board.session.view(there, np.s_[:, :columns])
    data = np.arange(2048 * columns, dtype="float32").reshape(2048, columns)
    for _ in range(2):
        with board.stopped(), interrupted():
            board.session.copy(data, part)
        with board.stopped(), interrupted():
            part.numpy()
        assert board.add(20, 22) == 42
    board.session.copy(data, part)
    np.testing.assert_array_equal(part.numpy(), data)
    assert not there.numpy()[:, columns:].any()


class Line:
    """A connection that goes through this process, where the client's bytes can be held up."""

    def __init__(self, server: Server) -> None:
        self._there = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._room: float = math.inf  # bytes that still pass
        self._more = threading.Condition()
        threading.Thread(target=self._run).start()

    def hold_after(self, room: float) -> None:
        with self._more:
            self._room = room
            self._more.notify()

    def _run(self) -> None:
        with self._listener, self._there, self._listener.accept()[0] as here:
            back = threading.Thread(target=self._bring_back, args=(here,))
            back.start()
            while data := here.recv(1024):
                with self._more:
                    self._more.wait_for(lambda: self._room > 0, SECONDS)
                    self._room -= len(data)
                self._there.sendall(data)
            self._there.shutdown(socket.SHUT_WR)
            back.join()

    def _bring_back(self, here: socket.socket) -> None:
        while data := self._there.recv(65536):
            here.sendall(data)


def test_the_items_of_a_list(server: Server) -> None:
    """They are asked for together; some have come, and some were not even sent."""
    line = Line(server)
    with connect(line.url, key="k", timeout=SECONDS) as session:
        add, numbers = session.get_function("test.add"), session.get_function("test.numbers")
        expected = tuple(map(str, range(200)))
        assert numbers(200) == expected
        for room in (1, 4000):  # in this order: before the list is there, and amid its items
            line.hold_after(room)
            with interrupted():
                numbers(200)
            with interrupted():
                add(20, 22)
            line.hold_after(math.inf)
            assert add(20, 22) == 42
            assert numbers(200) == expected


def test_many_releases(board: Board) -> None:
    made = [board.session.empty((1,), "float32") for _ in range(1000)]
    with board.stopped():
        made.clear()
        with interrupted():
            board.add(20, 22)
    assert board.add(20, 22) == 42


# ---- calls that have functions of this process


class Here:
    """A function of this process, and what it was called with."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def __call__(self, x: object) -> object:
        self.seen.append(x)
        return x


def lent(function: Callable[..., object]) -> weakref.ref[object]:
    return weakref.ref(function)


def test_a_call_that_calls_back_later(board: Board) -> None:
    """Nobody waits for the call any more: its function is not called, and the server's code learns why."""
    later, said = (board.session.get_function(f"test.{name}") for name in ("call_later", "said"))
    board.name, here = f"{board.pid}-later", Here()
    gone = lent(here)
    with interrupted():
        later(here, board.name)
    with interrupted():
        board.add(20, 22)
    seen = here.seen
    del here
    board.release()
    call = board.add.submit(1, 2)  # no call may follow on the line before that one has ended
    assert (call.result(), board.add(20, 22)) == (3, 42)
    assert seen == []
    assert [text.partition(":")[0] for text in said()] == ["InterruptedError"]
    assert gone() is None
    assert board.session.get_function("test.call")(lambda x: x + 1, 41) == 42


def test_sending_a_call_that_calls_back(board: Board) -> None:
    both, seen = board.session.get_function("test.call"), Here()
    with board.stopped(), interrupted():
        both(seen, bytes(LONG))
    assert board.add(20, 22) == 42
    assert seen.seen == []
    assert both(seen, 7) == 7


def test_a_request_inside_a_callback(board: Board) -> None:
    """The callback's own request, the answer to the server's call, and the outer call: each in its turn."""
    both, later = (board.session.get_function(f"test.{name}") for name in ("call", "call_later"))
    board.name, inner = f"{board.pid}-callback", Here()
    requests: list[Callable[[str], object]] = [board.wait, lambda name: later(inner, name)]
    for depth in (1, 3):
        for request in requests:

            def here(n: object, request: Any = request) -> object:
                board.add(1, 2)
                return both(here, int(str(n)) - 1) if int(str(n)) > 1 else request(board.name)

            with interrupted():
                both(here, depth)
            board.release()
            assert board.add(20, 22) == 42
            board.name += "+"
    assert inner.seen == []
    assert both(Here(), 7) == 7
    assert board.add.submit(1, 2).result() == 3


def test_a_callback_that_catches_the_exception(board: Board) -> None:
    board.name = f"{board.pid}-caught"

    def here(x: int) -> int:
        with interrupted():
            board.wait(board.name)
        board.release()
        return x + 1

    assert board.session.get_function("test.call")(here, 41) == 42
    assert board.add(20, 22) == 42


@pytest.mark.parametrize("caught", [False, True])
def test_sending_inside_a_callback(board: Board, caught: bool) -> None:
    length, both = board.session.get_function("test.length"), board.session.get_function("test.call")

    def here(x: int) -> int:
        with board.stopped(), interrupted() if caught else contextlib.nullcontext():
            length(bytes(LONG))
        return x + 1

    with contextlib.nullcontext() if caught else interrupted():
        assert both(here, 41) == 42
    assert board.add(20, 22) == 42


def test_sending_the_result_of_a_callback(board: Board) -> None:
    both, stopped = board.session.get_function("test.call"), contextlib.ExitStack()

    def here(x: int) -> bytes:
        stopped.enter_context(board.stopped())
        return bytes(LONG)

    with stopped, interrupted():
        both(here, 1)
    assert board.add(20, 22) == 42
    assert both(lambda x: x + 1, 41) == 42


def test_other_threads_after_a_callback(board: Board) -> None:
    later, results = board.session.get_function("test.call_later"), dict[int, object]()
    board.name = f"{board.pid}-threads"
    with interrupted():
        later(Here(), board.name)

    def work(n: int) -> None:
        results[n] = [board.add(n, 1), board.add.submit(n, 2).result(), board.add(n, 3)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    board.release()
    for thread in threads:
        thread.join(SECONDS)
    assert results == {n: [n + 1, n + 2, n + 3] for n in range(4)}


def test_a_server_that_dies_before_it_calls_back(board: Board) -> None:
    with connect(board.session.url, timeout=SECONDS) as other:
        later, pid = other.get_function("test.call_later"), other.get_function("test.pid")()
        here = Here()
        gone = lent(here)
        with interrupted():
            later(here, "never")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(fc.RemoteError):
            other.get_function("test.add")(1, 2)
    del other, later, here
    gc.collect()
    assert gone() is None
