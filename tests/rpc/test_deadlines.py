"""Time limits of calls: in the client, on the server that runs them, and on the hops between."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import farcall as fc
from farcall.errors import ConnectError, ConnectionLostError, ConnectTimeoutError, DeadlineExceededError
from farcall.rpc import EventServer, Limits, Server, Session, connect

from ..waiting import SECONDS, at_some_speed, has_ended
from .impostors import ACCEPT, VOID, impostor, until_closed
from .peers import Peer, go_on, integer, message, packet, pointer, sequence, text
from .servers import COMMAND, INIT, Events, works

DEADLINE = "farcall.rpc.deadline"


def through(servers: list[Server], hops: int, **options: Any) -> Session:
    """A session with the last of so many servers."""
    places = [(servers[0].url, "k"), (servers[1].url, "second"), (servers[2].url, "third")][:hops]
    return connect(*places[-1], via=places[:-1], timeout=SECONDS, **options)


# ---- plain calls


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("name", ["forever", "hang"])
def test_a_deadline_ends_a_call(servers: list[Server], hops: int, name: str) -> None:
    """Whatever the function does: `hang` holds the GIL of its process."""
    for attempt in range(50):  # on a machine that is busy, the client may not hear the server's word in time
        with through(servers, hops) as session:
            pid, endless = session.get_function("test.pid")(), session.get_function(f"test.{name}")
            with pytest.raises(DeadlineExceededError) as caught, fc.deadline(0.1):
                endless()
            assert session.closed
            assert has_ended(pid)
            with pytest.raises(DeadlineExceededError):
                session.get_function("test.add")
        with through(servers, hops) as session:
            assert session.get_function("test.add")(1, 1) == 2
        told = str(caught.value)
        if "did not end" in told and "forwarding" not in told:
            break
        assert "within 0." in told, attempt
    assert f"`test.{name}` did not end within 0." in told
    assert told.startswith(f"hop {hops} ({servers[hops - 1].url}): ") == (hops > 1)


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    """The process that would report the deadline to the client is stopped."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [*COMMAND, "--init", INIT]
    events = Events()
    with (
        Server(log=events) as first,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process,
    ):
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        try:
            for via in ([], [first.url]):
                with connect(url, via=via, timeout=SECONDS) as session:
                    forever = session.get_function("test.forever")
                    process.send_signal(signal.SIGSTOP)
                    with pytest.raises(DeadlineExceededError, match=r"within 0\.\d+ s"), fc.deadline(0.1):
                        forever()
                    assert session.closed
                process.send_signal(signal.SIGCONT)
            assert events.await_one("session end")["reason"] in ("deadline", "closed")
        finally:
            process.kill()


def test_deadlines_nest_and_end(session: Session) -> None:
    add = session.get_function("test.add")
    with fc.deadline(SECONDS):
        with fc.deadline(1000):
            assert add(1, 1) == 2
        assert add(1, 1) == 2
    assert add(1, 1) == 2
    for seconds in (0, -1, float("nan"), 1e12):
        with pytest.raises(ValueError, match="positive"), fc.deadline(seconds):
            pass


def test_what_is_late_before_it_is_sent_leaves_the_session_alone(session: Session) -> None:
    add = session.get_function("test.add")
    x = session.tensor(np.zeros(4, "float32"))
    with fc.deadline(1e-9):
        for late in (
            lambda: add(1, 1),
            lambda: add.submit(1, 1),
            x.numpy,
            lambda: session.device("cpu").exist,
        ):
            with pytest.raises(DeadlineExceededError, match="; the session goes on"):
                late()
    assert add(20, 22) == 42


def test_the_turn_of_a_thread_may_come_too_late(server: Server, session: Session) -> None:
    add, wait = session.get_function("test.add"), session.get_function("test.wait_for")
    calling = threading.Thread(target=wait, args=("turn",))
    calls = session.stats.calls
    calling.start()
    while session.stats.calls == calls:  # until that thread has the session
        pass
    with fc.deadline(0.05), pytest.raises(DeadlineExceededError, match="another thread had the session"):
        add(1, 1)
    with connect(server.url, key="k", timeout=SECONDS) as other:
        other.get_function("test.touch")("turn")
    calling.join(SECONDS)
    assert not calling.is_alive()
    assert add(1, 1) == 2


def test_an_earlier_call_may_take_the_time_of_a_plain_one(server: Server, session: Session) -> None:
    add, wait = session.get_function("test.add"), session.get_function("test.wait_for")
    with fc.deadline(SECONDS):
        add(1, 1)  # the server is asked for its deadlines
    earlier = wait.submit("earlier")
    with fc.deadline(0.05), pytest.raises(DeadlineExceededError, match=r"`test\.add` was not sent"):
        add(1, 1)
    with connect(server.url, key="k", timeout=SECONDS) as other:
        other.get_function("test.touch")("earlier")
    assert earlier.result(SECONDS) is None
    assert add(1, 1) == 2


def test_what_a_deadline_costs(session: Session) -> None:
    """A call without a deadline sends nothing more; a new deadline costs one more request."""
    add = session.get_function("test.add")

    def sent() -> int:
        before = session.stats.bytes_out
        assert add(1, 1) == 2
        return session.stats.bytes_out - before

    plain = sent()
    with fc.deadline(SECONDS):
        add(1, 1)
    told = sent() - plain
    assert [sent() for _ in range(3)] == [plain] * 3
    assert 0 < told < 100
    before = session.stats.round_trips
    with fc.deadline(SECONDS):
        assert [sent() for _ in range(3)] == [plain + told, plain, plain]
        with fc.deadline(SECONDS / 2):
            assert [sent() for _ in range(2)] == [plain + told, plain]
        assert sent() == plain + told
    session.call_timeout = SECONDS
    assert [sent() for _ in range(3)] == [plain + told, plain, plain]
    session.call_timeout = None
    assert [sent() for _ in range(2)] == [plain + told, plain]
    assert session.stats.round_trips - before == 6 + 3 + 2


def test_a_callback_is_part_of_its_call(server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        call, add = session.get_function("test.call"), session.get_function("test.add")

        def quick(n: int) -> int:
            with fc.deadline(SECONDS / 2):
                return int(add(n, 1))

        with fc.deadline(SECONDS):
            assert call(quick, 41) == 42
            assert add(1, 1) == 2
        left = threading.Event()
        with fc.deadline(0.1), pytest.raises(DeadlineExceededError):
            call(lambda n: left.wait(0.5), 1)
        assert session.closed
    assert works(server)


# ---- each call of a session


@pytest.mark.parametrize("hops", [1, 3])
def test_a_session_limits_each_of_its_calls(servers: list[Server], hops: int) -> None:

    def attempt(scale: float) -> None:
        limit = 0.3 * scale
        with through(servers, hops, call_timeout=limit) as session:
            wait, forever, add = (session.get_function(f"test.{name}") for name in ("wait", "forever", "add"))
            pid = session.get_function("test.pid")()
            with session.pipeline() as p:
                calls = [p(wait, limit / 3) for _ in range(5)]  # together they take longer
            assert [call.result() for call in calls] == [None] * 5
            calls = [wait.submit(limit / 3) for _ in range(4)]
            assert add(1, 1) == 2
            first, behind = forever.submit(), add.submit(1, 1)
            for call in (behind, first):
                with pytest.raises(DeadlineExceededError, match=f"within {limit:g} s"):
                    call.result()
            assert session.closed
            assert has_ended(pid)

    at_some_speed(attempt)


def test_a_silent_peer_ends_a_call_of_a_pipeline() -> None:
    """A server that does not know deadlines."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(ACCEPT + VOID + VOID + packet(4, sequence(pointer(77))))
        until_closed(connection)

    with impostor(serve) as url, connect(url, key="k", timeout=SECONDS) as session:
        function = session.get_function("f")
        with pytest.raises(DeadlineExceededError, match="has not answered"):
            function.submit().result(timeout=0.001)
        session.call_timeout = 0.05
        with pytest.raises(DeadlineExceededError, match=r"within 0\.05 s; the session is closed"):
            function.submit().result(timeout=SECONDS)


# ---- calls of a pipeline


def test_a_deadline_is_that_of_the_calls_begun_in_it(servers: list[Server]) -> None:

    def attempt(scale: float) -> None:
        with through(servers, 2) as session:
            add, forever = session.get_function("test.add"), session.get_function("test.forever")
            with fc.deadline(0.2 * scale):
                first, endless = add.submit(1, 1), forever.submit()
            behind = add.submit(1, 1)
            assert first.result() == 2
            for call in (endless, behind):
                with pytest.raises(DeadlineExceededError):
                    call.result()
            assert session.closed

    at_some_speed(attempt)


def test_a_deadline_is_over_for_every_thread_that_waits(server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        forever, ends = session.get_function("test.forever"), []
        with fc.deadline(0.1):
            calls = [forever.submit() for _ in range(4)]
        threads = [threading.Thread(target=lambda c=call: ends.append(c.exception())) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert [type(end) for end in ends] == [DeadlineExceededError] * 4


# ---- what servers do


def tell(raw: Peer, left: int, each: int = 0) -> tuple[int, bytes]:
    return raw.call(raw.function(DEADLINE), integer(left), integer(each))


def test_a_call_that_the_server_comes_to_too_late_is_refused(peer: Peer) -> None:
    add = peer.function("test.add")
    assert tell(peer, 1)[0] == 4
    said = message(peer.call(add, integer(1), integer(1)))
    reason = "`test.add` was not started: the client's time limit of 1e-09 s had passed"
    assert said == f"DeadlineExceededError: {reason}"
    keep = peer.function("farcall.rpc.keep")
    kept = peer.call(keep, integer(1), struct.pack("<iQ", 68, add), integer(1), integer(1))
    assert message(kept).startswith("DeadlineExceededError: ")
    assert tell(peer, 0)[0] == 4
    assert peer.call(add, integer(1), integer(1))[0] == 4


@pytest.mark.parametrize(
    "values",
    [
        [],
        [integer(1)],
        [integer(-1), integer(0)],
        [integer(0), integer(-1)],
        [integer(1 << 61), integer(0)],
        [integer(0), integer((1 << 63) - 1)],
        [text("1"), integer(0)],
        [integer(0)] * 3,
    ],
)
@pytest.mark.parametrize("hops", [1, 2])
def test_deadlines_that_are_none(servers: list[Server], values: list[bytes], hops: int) -> None:
    with Peer(servers[0]) as raw:
        assert go_on(raw, *[(servers[1], "second")] * (hops - 1))[0] == 4
        function, add = raw.function(DEADLINE), raw.function("test.add")
        assert message(raw.call(function, *values)).startswith(
            "ValueError: farcall.rpc.deadline takes two numbers"
        )
        assert raw.call(add, integer(1), integer(1))[0] == 4


@given(left=st.integers(0, 1 << 60), each=st.integers(0, 1 << 60))
def test_any_time_may_be_told(server: Server, left: int, each: int) -> None:
    with Peer(server) as raw:
        raw.shake()
        raw.start()
        assert tell(raw, left, each)[0] == 4
        assert tell(raw, 0, 0)[0] == 4
        assert raw.call(raw.function("test.add"), integer(20), integer(22))[0] == 4


def test_the_time_of_a_worker_ends_with_its_call(server: Server) -> None:
    """No timer is left when nothing runs."""

    def attempt(scale: float) -> None:
        limit = 0.2 * scale
        with connect(server.url, key="k", timeout=SECONDS, call_timeout=limit) as session:
            pid = session.get_function("test.pid")()
            with fc.deadline(limit):
                session.get_function("test.add")(1, 1)
            watched = os.pidfd_open(pid)
            try:
                assert not select.select([watched], [], [], 2 * limit)[0]
            finally:
                os.close(watched)
            assert session.get_function("test.add")(1, 1) == 2

    at_some_speed(attempt)


def test_an_event_server_ends_no_process() -> None:
    with EventServer() as server:
        replies = server.feed(
            packet(2, struct.pack("<Q", 5) + b"0.8.0" + struct.pack("<i", 0))
            + packet(9, struct.pack("<i", 1) + text(DEADLINE))
        )
    assert replies.endswith(struct.pack("<iiQ", 1, 4, 0))  # a null pointer


def test_the_log_says_so() -> None:
    events = Events()
    with Server(init=INIT, log=events) as server, connect(server.url, timeout=SECONDS) as session:
        forever = session.get_function("test.forever")
        with fc.deadline(0.1), pytest.raises(DeadlineExceededError):
            forever()
        end = events.await_one("session end")
    assert end["reason"] == "deadline"
    assert "`test.forever` did not end within 0." in str(end["words"])


# ---- clients that are gone

CLIENT = """
import json, sys
import farcall as fc
from farcall.rpc import connect
url, key, via, seconds = json.loads(sys.argv[1])
session = connect(url, key, via=[tuple(hop) for hop in via], timeout=20)
forever = session.get_function("test.forever")
print(session.get_function("test.pid")(), flush=True)
with fc.deadline(seconds):
    forever()
"""


@pytest.mark.parametrize(
    ("abandoned", "deadline"),
    [pytest.param(0.1, 1e6, id="after a moment"), pytest.param(1e6, 1.0, id="in time")],
)
def test_a_client_that_vanished_holds_nothing(abandoned: float, deadline: float) -> None:
    """Over two hops, its call ends when the last server's limit, or the call's deadline, expires."""
    with (
        Server() as first,
        Server() as second,
        Server(init=INIT, limits=Limits(abandoned_seconds=abandoned)) as third,
    ):
        options = json.dumps([third.url, "", [[first.url, ""], [second.url, ""]], deadline])
        with subprocess.Popen(
            [sys.executable, "-c", CLIENT, options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as client:
            assert client.stdout is not None
            pid = int(client.stdout.readline())
            client.kill()
        assert has_ended(pid)
        assert works(third, key="")


def test_a_vanished_client_does_not_hold_a_server_that_closes() -> None:
    events = Events()
    server = Server(init=INIT, limits=Limits(abandoned_seconds=1e6), log=events)
    session = connect(server.url, timeout=SECONDS)
    pid = session.get_function("test.pid")()
    session.get_function("test.forever").submit()
    session.close()
    closing = threading.Thread(target=server.close)
    closing.start()
    closing.join(SECONDS)
    assert not closing.is_alive()
    assert has_ended(pid)
    assert events.await_one("session end")["reason"] == "shutdown"


def test_a_hung_call_does_not_hold_a_server_that_drains() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [*COMMAND, "--drain", "0.2", "--init", INIT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        with connect(process.stdout.readline().split()[-1], timeout=SECONDS) as session:
            pid, call = session.get_function("test.pid")(), session.get_function("test.hang").submit()
            process.send_signal(signal.SIGTERM)
            with pytest.raises(ConnectionLostError, match="shutting down"):
                call.result(timeout=SECONDS)
        assert has_ended(pid)
        assert process.wait(SECONDS) == 0


# ---- connecting


def test_connecting_takes_no_longer_than_it_may() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectTimeoutError, match="did not answer in time") as caught:
            connect(url, timeout=0.05)
    assert isinstance(caught.value, ConnectError)
    assert isinstance(caught.value, TimeoutError)


def test_a_deadline_is_a_timeout_for_those_who_ask_so() -> None:
    assert issubclass(DeadlineExceededError, TimeoutError)
    assert issubclass(DeadlineExceededError, fc.RemoteError)
