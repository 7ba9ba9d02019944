"""Exceptions of signal handlers, such as Ctrl-C, end any wait for a server; sessions remain usable."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
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


def test_a_call_that_may_call_back_ends_the_session_and_not_the_interrupt(board: Board) -> None:
    board.name = f"{board.pid}-callback"
    both = board.session.get_function("test.call")

    def here(name: str) -> None:
        board.add(1, 2)
        board.wait(name)

    with interrupted():
        both(here, board.name)
    with pytest.raises(ConnectionLostError, match="interrupted"):
        board.add(20, 22)


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
