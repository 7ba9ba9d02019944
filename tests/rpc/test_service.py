"""A whole server: addresses to listen on, tokens, logs, limits, and workers that are forked from a zygote."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import farcall as fc
from farcall._core import PAGE
from farcall.errors import (
    AccessDeniedError,
    ConnectionLostError,
    DeadlineExceededError,
    PermissionDeniedError,
    WorkerCrashedError,
)
from farcall.rpc import Limits, Server, connect
from farcall.rpc.server import _output as output
from farcall.rpc.server import _pool as pool
from farcall.rpc.server import _session_runner
from farcall.rpc.server import _supervisor as supervisor
from farcall.rpc.server._status_page import StatusPage, page_file
from farcall.rpc.tokens import TokenFile

from ..waiting import SECONDS, has_ended
from . import exports
from .impostors import ACCEPT, VOID, impostor
from .peers import Peer, integer, packet, pointer, sequence, text
from .servers import COMMAND, INIT, Events, stay, timeless_server

THREADED = f"{exports.__name__}:register_with_a_thread"


def add(session: fc.Session) -> int:
    return int(session.get_function("test.add")(20, 22))


# ---- where


def test_several_places_to_listen(tmp_path: Path) -> None:
    places = ["tcp://127.0.0.1:0", f"unix://{tmp_path}/u", f"shm://{tmp_path}/s", "ws://127.0.0.1:0/ws"]
    with Server(init=INIT, urls=places) as server:
        assert [url.partition(":")[0] for url in server.urls] == ["tcp", "unix", "shm", "ws"]
        for url in server.urls:
            with connect(url, timeout=SECONDS) as session:
                assert add(session) == 42
    assert list(tmp_path.iterdir()) == []


def test_a_websocket_is_served_at_its_path_only() -> None:
    events = Events()
    with Server(init=INIT, urls=["ws://127.0.0.1:0/rpc", "ws://127.0.0.1:0"], log=events) as server:
        named, bare = server.urls
        for url in (named, f"{named}?board=7", bare, bare.rstrip("/")):
            with connect(url, timeout=SECONDS) as session:
                assert add(session) == 42
        for wrong in (named.removesuffix("rpc"), f"{named}/", f"{bare}rpc", f"{bare}/[rpc"):
            with pytest.raises(fc.errors.ConnectError, match=r"HTTP 404; is the path in the URL right\?"):
                connect(wrong, timeout=SECONDS)
        assert "this server listens at '/rpc'" in str(events.await_one("refused")["reason"])


def test_one_bad_place_closes_the_others(tmp_path: Path) -> None:
    place = f"unix://{tmp_path}/u"
    with pytest.raises(fc.UsageError, match="expected"):
        Server(urls=[place, "tcp://"])
    with Server(urls=[place]):
        pass


def test_a_pipe_serves_the_process_that_starts_it() -> None:
    command = f"pipe:{shlex.join([*COMMAND, '--stdio', '--init', INIT])}"
    with connect(command, timeout=SECONDS) as session:
        assert add(session) == 42
        folder = Path(session.get_function("test.here")())
        session.upload(b"x", "file")
        assert (folder / "file").exists()
        # Without a supervisor, nothing reports why the process ended.
        assert "deadlines" not in session.features
    assert not folder.exists()


# ---- tokens


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Server, TokenFile]]:
    """A server that asks for tokens, and their file."""
    file = TokenFile(tmp_path / "tokens.json")
    file.create("other")
    with Server(init=INIT, urls=[f"unix://{tmp_path}/u"], tokens=file.path) as server:
        yield server, file


def test_a_token_lets_in_and_limits(guarded: tuple[Server, TokenFile]) -> None:
    server, file = guarded
    secret = file.create("caller", scopes=("call",))
    with connect(server.url, token=secret, timeout=SECONDS) as session:
        assert add(session) == 42
        with pytest.raises(PermissionDeniedError, match="scope `files`"):
            session.upload(b"x", "file")


@pytest.mark.parametrize("token", [None, "caller.wrong", "nobody.x", ""])
def test_without_a_token_nobody_gets_in(guarded: tuple[Server, TokenFile], token: str | None) -> None:
    server, file = guarded
    file.create("caller")
    with pytest.raises(AccessDeniedError, match="token"):
        connect(server.url, token=token, timeout=SECONDS)


def test_a_token_that_is_revoked_ends_its_sessions(guarded: tuple[Server, TokenFile]) -> None:
    server, file = guarded
    with connect(server.url, token=file.create("caller"), timeout=SECONDS) as session:
        pid = session.get_function("test.pid")()
        file.revoke("caller")
        assert has_ended(pid)
        with pytest.raises((AccessDeniedError, ConnectionLostError)):
            add(session)


def test_a_token_file_that_is_half_written_ends_no_session(tmp_path: Path) -> None:
    file, events = TokenFile(tmp_path / "tokens.json"), Events()
    secret = file.create("caller")
    content = file.path.read_bytes()
    with (
        Server(init=INIT, urls=[f"unix://{tmp_path}/u"], tokens=file.path, log=events) as server,
        connect(server.url, token=secret, timeout=SECONDS) as session,
    ):
        file.path.write_bytes(content[:40])
        assert "not a token file" in str(events.await_one("fault")["error"])  # the server has looked at it
        assert add(session) == 42
        with pytest.raises(AccessDeniedError, match="cannot read its tokens"):
            connect(server.url, token=secret, timeout=SECONDS)
        file.path.write_bytes(content)
        with connect(server.url, token=secret, timeout=SECONDS) as other:
            assert add(other) == add(session) == 42


def test_a_token_has_its_own_bound_of_sessions(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    one, two = file.create("one"), file.create("two")
    limits, place = Limits(sessions_per_token=1), f"unix://{tmp_path}/u"
    with (
        Server(init=INIT, urls=[place], tokens=file.path, limits=limits) as server,
        connect(server.url, token=one, timeout=SECONDS) as first,
    ):
        with pytest.raises(
            fc.errors.ConnectError, match="the token 'one' has 1 session open, which is its limit"
        ):
            connect(server.url, token=one, timeout=SECONDS)
        with connect(server.url, token=two, timeout=SECONDS) as second:
            assert add(first) == add(second) == 42


def test_a_peer_has_its_own_bound_of_sessions(tmp_path: Path) -> None:
    limits, places = Limits(sessions_per_peer=1), ["tcp://127.0.0.1:0", f"unix://{tmp_path}/u"]
    with (
        Server(init=INIT, urls=places, limits=limits) as server,
        connect(server.urls[0], timeout=SECONDS) as first,
        connect(server.urls[1], timeout=SECONDS) as second,  # another peer: a user, not an address
    ):
        with pytest.raises(
            fc.errors.ConnectError, match=r"127\.0\.0\.1 has 1 session open, which is its limit"
        ):
            connect(server.urls[0], timeout=SECONDS)
        assert add(first) == add(second) == 42


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    file.create("caller")
    file.path.chmod(0o644)
    with pytest.raises(fc.UsageError, match="chmod 600"):
        Server(tokens=file.path, urls=[f"unix://{tmp_path}/u"])


def test_tokens_are_of_no_use_where_no_client_sends_one(tmp_path: Path) -> None:
    for urls in ([], ["ws://127.0.0.1:0"]):
        with pytest.raises(fc.UsageError, match="no client would send a token there"):
            Server(tokens=tmp_path / "tokens.json", urls=urls)


# ---- the log


def test_a_log_tells_each_session() -> None:
    events = Events()
    with Server(init=INIT, log=events) as server:
        with pytest.raises(fc.errors.ConnectError):
            connect(server.url, key="wrong", timeout=SECONDS)
        with connect(server.url, timeout=SECONDS) as session:
            pid = session.get_function("test.pid")()
        end = events.await_one("session end")
    assert events.await_one("refused")["reason"] == "wrong key"
    assert events.await_one("session start")["session"] == end["session"] == 1
    assert (end["reason"], end["pid"], end["channel"], end["token"]) == ("closed", pid, "tcp", None)
    assert isinstance(end["received"], int) and end["received"] > 50
    assert isinstance(end["sent"], int) and end["sent"] > 50
    assert events.seen[-1]["event"] == "stopped"


def test_the_command_logs_json() -> None:
    command = [*COMMAND, "--json", "--init", INIT]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        listening = json.loads(process.stdout.readline())
        with connect(listening["url"], timeout=SECONDS) as session:
            start = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGUSR1)
            report = json.loads(process.stdout.readline())
            assert add(session) == 42
        process.send_signal(signal.SIGINT)
        rest = [json.loads(line) for line in process.stdout]
    assert listening["event"] == "listening"
    assert (start["event"], report["event"]) == ("session start", "session")
    assert report["session"] == start["session"]
    assert [event["event"] for event in rest] == ["session end", "stopped"]


def test_a_log_that_fails_stops_nothing() -> None:
    def log(event: dict[str, object]) -> None:
        raise BrokenPipeError(str(event))

    with Server(init=INIT, log=log) as server, connect(server.url, timeout=SECONDS) as session:
        assert add(session) == 42


def test_a_command_whose_log_nobody_reads_any_more() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [*COMMAND, "--json", "--init", INIT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        process.stdout.close()
        with connect(url, timeout=SECONDS) as session:
            assert add(session) == 42
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)


# ---- limits


def test_a_call_may_not_take_for_ever() -> None:
    with timeless_server(call_seconds=60) as (server, clock):
        with connect(server.url, timeout=SECONDS) as session:
            pid, call = session.get_function("test.pid")(), stay(session, server)
            clock.advance(1)  # the supervisor sees the call
            clock.advance(60)
            with pytest.raises(DeadlineExceededError, match=r"`test\.stay` ran for more than 60 s"):
                call.result(SECONDS)
            assert has_ended(pid)
        with connect(server.url, timeout=SECONDS) as session:
            assert add(session) == 42


def test_limits_are_kept_while_a_client_lingers_after_a_crash() -> None:
    with (
        timeless_server(call_seconds=60) as (server, clock),
        connect(server.url, timeout=SECONDS) as crashed,
        connect(server.url, timeout=SECONDS) as other,
    ):
        with pytest.raises(WorkerCrashedError):
            crashed.get_function("test.segfault")()
        call = stay(other, server)
        clock.advance(1)
        clock.advance(60)
        with pytest.raises(DeadlineExceededError):
            call.result(SECONDS)


def test_many_short_calls_are_no_long_one() -> None:
    """Each call takes nearly the allowed time, and one runs whenever the supervisor checks."""
    with (
        timeless_server(call_seconds=60) as (server, clock),
        connect(server.url, timeout=SECONDS) as session,
        connect(server.url, timeout=SECONDS) as other,
    ):
        meet, wait_for, touch = (
            one.get_function(f"test.{name}")
            for one, name in ((session, "meet"), (other, "wait_for"), (other, "touch"))
        )
        for i in range(5):
            call = meet.submit(f"{i}")
            wait_for(f"{i}.in")
            clock.advance(54)
            touch(f"{i}.out")
            assert call.result(SECONDS) is None


def test_a_client_that_is_heard_keeps_its_session() -> None:
    with (
        timeless_server(lease_seconds=60) as (server, clock),
        connect(server.url, timeout=SECONDS) as session,
    ):
        for _ in range(5):
            assert add(session) == 42
            clock.advance(1)
            clock.advance(54)
        assert add(session) == 42


def test_what_came_from_a_session_keeps_it() -> None:
    """A client sends heartbeats for the lease while it holds a function; then the connection closes."""
    beats, closed = threading.Semaphore(0), threading.Event()

    hello = sequence(integer(65), text(json.dumps({"limits": {"lease_seconds": 0.06}})))  # 65: a text
    function = packet(4, sequence(pointer(5)))
    replies = {2: VOID, 3: packet(4, hello), 9: function, 10: VOID}  # begin, call, get_function, free

    def serve(connection: socket.socket) -> None:
        connection.recv(8 + len("client:k"), socket.MSG_WAITALL)
        connection.sendall(ACCEPT)
        with contextlib.suppress(ConnectionResetError):
            while header := connection.recv(8, socket.MSG_WAITALL):
                if size := struct.unpack("<Q", header)[0]:
                    (code,) = struct.unpack_from("<i", connection.recv(size, socket.MSG_WAITALL))
                    connection.sendall(replies[code])
                else:
                    beats.release()
        closed.set()

    with impostor(serve) as url:
        session: fc.Session | None = connect(url, key="k", timeout=SECONDS)
        assert session is not None
        kept = session.get_function("f")
        session = None
        gc.collect()
        for _ in range(5):
            assert beats.acquire(timeout=SECONDS)
        assert not closed.is_set()
        del kept
        gc.collect()
        assert closed.wait(SECONDS)


def test_a_silent_client_loses_its_session_after_the_lease() -> None:
    """Its heartbeat is due every 20 minutes, so none is sent during this test."""
    with (
        timeless_server(lease_seconds=3600) as (server, clock),
        connect(server.url, timeout=SECONDS) as session,
    ):
        pid = session.get_function("test.pid")()
        clock.advance(1)  # the supervisor sees how much was heard until now
        clock.advance(3599)
        assert session.get_function("test.pid")() == pid
        clock.advance(1)
        clock.advance(3600)
        assert has_ended(pid)
        with pytest.raises(ConnectionLostError, match=r"nothing was heard for 3600 s"):
            add(session)


def test_a_request_that_lasts_is_no_silence() -> None:
    """An allocation may take longer than the lease; but a client that does not read is silent."""
    with page_file() as fd, contextlib.closing(StatusPage(fd)) as page:
        assert page.at_rest and not page.busy
        page.memory[PAGE["working"]] = 1
        assert page.busy and not page.at_rest
        page.memory[PAGE["sending"]] = 1
        assert not page.busy and not page.at_rest


def test_a_session_has_an_end() -> None:
    events = Events()
    with (
        timeless_server(session_seconds=60, log=events) as (server, clock),
        connect(server.url, timeout=SECONDS) as session,
    ):
        call = stay(session, server)
        clock.advance(60)
        with pytest.raises(fc.RemoteError, match=r"the session's 60 s are over"):
            call.result(SECONDS)
        assert events.await_one("session end", reason="time")


def test_memory_of_a_session_is_limited() -> None:
    limits = Limits(memory_bytes=64 << 20)
    with Server(init=INIT, limits=limits) as server, connect(server.url, timeout=SECONDS) as session:
        assert session.get_function("test.grab")(16) == 16
        with pytest.raises(MemoryError):
            session.get_function("test.grab")(100)
        assert add(session) == 42


@pytest.mark.parametrize("way", ["plain", "submit"])
def test_a_client_that_still_sends_hears_why_its_session_ends(way: str) -> None:
    limits, data = Limits(memory_bytes=64 << 20), bytes(200 << 20)
    with Server(init=INIT, limits=limits) as server, connect(server.url, timeout=SECONDS) as session:
        length = session.get_function("test.length")
        with pytest.raises(fc.RemoteError, match=r"a packet of 2097\d+ bytes, for which there is no memory"):
            length(data) if way == "plain" else length.submit(data).result()


@pytest.mark.parametrize("stops", [True, False])
def test_a_peer_that_sends_on_and_on_is_reset(monkeypatch: pytest.MonkeyPatch, stops: bool) -> None:
    """An orderly close would leave the peer waiting for room, with the server's last words unread."""
    monkeypatch.setattr(_session_runner, "_LINGER_SECONDS", SECONDS if stops else 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        connection, _ = listener.accept()
    with peer:
        with connection:
            if stops:
                peer.shutdown(socket.SHUT_WR)
            asyncio.run(_session_runner.last_words(connection, "ValueError: why"))
            reset = struct.unpack("ii", connection.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
            assert reset == ((0, 0) if stops else (1, 0))
        peer.settimeout(SECONDS)
        assert b"ValueError: why" in peer.recv(1000)
        if not stops:
            with pytest.raises(ConnectionError):
                peer.sendall(b"more")


def test_without_memory_sessions_go_before_their_server() -> None:
    def score(pid: int | str) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    with Server(init=INIT) as server, connect(server.url, timeout=SECONDS) as session:
        assert score(session.get_function("test.pid")()) == 1000
        assert score(session.get_function("test.parent")()) == score("self")


def test_files_and_descriptors_of_a_session_are_limited() -> None:
    limits = Limits(file_bytes=1000, open_files=40)
    with Server(init=INIT, limits=limits) as server, connect(server.url, timeout=SECONDS) as session:
        session.upload(bytes(1000), "small")
        with pytest.raises(OSError, match="File too large"):
            session.upload(bytes(2000), "large")
        with pytest.raises(OSError, match="Too many open files"):
            session.get_function("test.open_files")(50)
        assert add(session) == 42


def test_lines_that_sessions_print_name_their_session(capfd: pytest.CaptureFixture[str]) -> None:
    with Server(init=INIT) as server:
        for number in (1, 2):
            with connect(server.url, timeout=SECONDS) as session:
                for by in ("python", "c", "child"):
                    session.get_function("test.print")(f"hello {number} by {by}", by)
    out, err = capfd.readouterr()
    told = [
        f"session {number}: hello {number} by {by}" for number in (1, 2) for by in ("python", "c", "child")
    ]
    assert (out, sorted(err.splitlines())) == ("", sorted(told))


def test_a_session_prints_no_other_ones_name(capfd: pytest.CaptureFixture[str]) -> None:
    with Server(init=INIT) as server, connect(server.url, timeout=SECONDS) as session:
        session.get_function("test.print")("one\rsession 2: \x1b[2Ktwo\tthree\u009b", "python")
    assert capfd.readouterr().err == "session 1: one\\x0dsession 2: \\x1b[2Ktwo\tthree\\x9b\n"


def test_what_a_session_prints_is_limited(capfd: pytest.CaptureFixture[str]) -> None:
    limits = Limits(output_bytes=32)
    with Server(init=INIT, limits=limits) as server, connect(server.url, timeout=SECONDS) as session:
        for _ in range(10):
            session.get_function("test.print")("x" * 9, "python")
        session.get_function("test.print")("y" * (1 << 20), "python")  # more than a pipe holds: nobody waits
        assert add(session) == 42
    lines = [line.removeprefix("session 1: ") for line in capfd.readouterr().err.splitlines()]
    assert lines[:-1] == ["x" * 9] * 3 + ["xx"]
    assert lines[-1].endswith("the rest is dropped)")


def test_a_server_goes_on_though_nobody_reads_what_its_sessions_print() -> None:
    read, write = os.pipe()
    log = output.OutputLog(1 << 20, write)
    with log.pipe("session 1") as (source, descriptor):
        os.set_blocking(descriptor, False)
        with pytest.raises(BlockingIOError):  # the reader stands, and so does who prints
            while os.write(descriptor, b"line\n" * 1000):
                os.sched_yield()
    log.close()
    assert source.left > 0
    os.close(read)  # which lets the thread go
    log._thread.join(SECONDS)
    assert not log._thread.is_alive()
    os.close(write)


def test_output_that_has_ended_stays_ended_while_another_process_holds_the_pipe() -> None:
    """A process that is being forked shares all descriptors with this one for a moment."""
    read, write = os.pipe()
    log = output.OutputLog(1 << 20, write)
    with log.pipe("session 1") as (first, descriptor):
        held = os.dup(first.fd)
        os.write(descriptor, b"one\n")
    while first.fd in log._sources:
        os.sched_yield()
    with log.pipe("session 2") as (_, descriptor):
        os.write(descriptor, b"two\n")
        printed = b""
        while b"two" not in printed:
            assert select.select([read], [], [], SECONDS)[0], printed
            printed += os.read(read, 100)
        assert printed == b"session 1: one\nsession 2: two\n"
    log.close()
    log._thread.join(SECONDS)
    for fd in (held, read, write):
        os.close(fd)


@given(st.lists(st.binary(max_size=30)), st.integers(0, 60))
def test_lines_are_the_same_however_they_come(pieces: list[bytes], limit: int) -> None:
    whole, broken = (output.Source("s", -1, limit) for _ in range(2))
    at_once = whole.take(b"".join(pieces)) + whole.take(b"")
    lines = b"".join(broken.take(piece) for piece in pieces if piece) + broken.take(b"")
    if sum(map(len, pieces)) <= limit:
        assert lines == at_once


def test_the_files_of_a_session_are_limited_together() -> None:
    limits = Limits(files_bytes=300_000)
    with Server(init=INIT, limits=limits) as server, connect(server.url, timeout=SECONDS) as session:
        session.upload(bytes(100_000), "a")
        session.upload(bytes(100_000), "b/c")
        with pytest.raises(OSError, match=r"file 'd' has 200000 bytes.*at most 300000 \(Limits.files_bytes"):
            session.upload(bytes(200_000), "d")
        session.upload(bytes(90_000), "d")
        with pytest.raises(OSError, match="remove some"):
            session.upload(b"", "e/f")  # files take some room even without contents
            session.upload(b"", "g")
            session.upload(b"", "h")
        session.remove("a")
        session.upload(bytes(80_000), "a")
        assert sorted(session.listdir("")) == ["a", "b", "d", "e", "g"]


def test_files_of_the_store_count_for_the_session_that_has_them(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(200_000))
    with Server(init=INIT, limits=Limits(files_bytes=300_000)) as server:
        for _ in range(2):
            with connect(server.url, timeout=SECONDS) as session:
                session.upload(file, "a")
                with pytest.raises(OSError, match="at most 300000"):
                    session.upload(file, "b")


# ---- workers


def test_workers_are_forked_and_share_what_was_imported() -> None:
    with (
        Server(init=INIT) as server,
        connect(server.url, timeout=SECONDS) as one,
        connect(server.url, timeout=SECONDS) as two,
    ):
        parents = {s.get_function("test.parent")() for s in (one, two)}
        pids = {s.get_function("test.pid")() for s in (one, two)}
    assert (len(parents), len(pids)) == (1, 2)
    assert os.getpid() not in parents


def test_an_init_with_threads_runs_in_each_worker() -> None:
    with Server(init=THREADED) as server:
        for _ in range(2):
            with connect(server.url, timeout=SECONDS) as session:
                pid = session.get_function("test.pid")()
                assert session.get_function("test.thread_of")() == pid


@pytest.mark.parametrize("way", ["child", "session", "daemon"])
@pytest.mark.parametrize("end", ["close", "crash", "stop"])
def test_what_a_session_has_started_ends_with_it(way: str, end: str) -> None:
    with Server(init=INIT) as server, connect(server.url, timeout=SECONDS) as session:
        pid = session.get_function("test.start")(way)
        assert add(session) == 42
        os.kill(pid, 0)  # while the session is open, it lives
        if end == "crash":
            with pytest.raises(WorkerCrashedError):
                session.get_function("test.segfault")()
        (server if end == "stop" else session).close()
        assert has_ended(pid)


def test_a_zygote_that_hangs_is_replaced() -> None:
    events = Events()
    with timeless_server(spares=0, fork_seconds=5, log=events) as (server, clock):
        with connect(server.url, timeout=SECONDS) as session, ThreadPoolExecutor() as threads:
            os.kill(session.get_function("test.parent")(), signal.SIGSTOP)
            refused = threads.submit(connect, server.url, timeout=SECONDS)
            assert events.await_one("session start", session=2)
            clock.advance(0)  # it asks for a fork
            clock.advance(5)
            with pytest.raises(fc.errors.ConnectError, match="connect again"):
                refused.result()
        with connect(server.url, timeout=SECONDS) as session:
            assert add(session) == 42


def test_a_server_ends_though_its_zygote_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, seconds in (
        (pool, "_CLOSE_SECONDS", 0.1),
        (supervisor, "_END_SECONDS", 0.1),
        (pool, "_FORK_SECONDS", 3600.0),  # nobody notices that it hangs
    ):
        monkeypatch.setattr(module, name, seconds)
    with Server(init=INIT) as server, connect(server.url, timeout=SECONDS) as session:
        pid, parent = (session.get_function(f"test.{name}")() for name in ("pid", "parent"))
        os.kill(parent, signal.SIGSTOP)
        server.close()
        assert has_ended(pid)
        assert has_ended(parent)


def test_a_server_makes_its_folder_again() -> None:
    with Server(init=INIT) as server:
        with connect(server.url, timeout=SECONDS) as session:
            shutil.rmtree(Path(session.get_function("test.here")()).parent)
        for _ in range(3):
            with connect(server.url, timeout=SECONDS) as session:
                session.upload(b"x", "file")
                assert session.download("file") == b"x"


def test_a_worker_cannot_take_away_what_its_supervisor_looks_at() -> None:
    with (
        timeless_server(lease_seconds=3600) as (server, clock),
        connect(server.url, timeout=SECONDS) as session,
    ):
        with pytest.raises(PermissionError):
            session.get_function("test.truncate_page")()
        clock.advance(1)  # it looks
        assert add(session) == 42


def test_a_server_that_cannot_fork_says_so() -> None:
    with Server(init=f"{exports.__name__}:register_without_processes") as server:
        for _ in range(3):
            with pytest.raises(
                fc.errors.ConnectError, match="could not be forked: Resource temporarily unavail"
            ):
                connect(server.url, timeout=SECONDS)


def test_a_server_outlives_its_zygote() -> None:
    with Server(init=INIT) as server:
        with connect(server.url, timeout=SECONDS) as session:
            os.kill(session.get_function("test.parent")(), signal.SIGKILL)
            with pytest.raises((WorkerCrashedError, ConnectionLostError)):
                session.get_function("test.forever")()
        with connect(server.url, timeout=SECONDS) as session:
            assert add(session) == 42


def test_a_burst_of_sessions() -> None:
    with Server(init=INIT) as server:
        sessions: list[fc.Session] = []
        opened = threading.Barrier(20)

        def open_one() -> None:
            opened.wait(SECONDS)
            sessions.append(connect(server.url, timeout=SECONDS))

        threads = [threading.Thread(target=open_one) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert [add(session) for session in sessions] == [42] * 20
        assert len({session.get_function("test.pid")() for session in sessions}) == 20
        for session in sessions:
            session.close()


def test_what_breaks_the_protocol_is_logged_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    events = Events()
    with Server(init=INIT, key="k", log=events) as server, Peer(server) as raw:
        raw.shake()
        raw.socket.sendall(packet(99))
        code, body = raw.reply()
        end = events.await_one("session end")
        assert raw.socket.recv(1) == b""  # it was told once
    assert (code, end["reason"]) == (5, "protocol")
    assert "unknown packet code: 99" in str(end["words"])
    assert b"unknown packet code: 99" in body
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("deepest", [1, 10_000])
def test_a_client_that_leaves_while_its_function_is_called_is_no_crash(deepest: int) -> None:
    events = Events()
    with Server(init=INIT, log=events) as server:
        with Peer(server) as raw:
            raw.shake(b"client:")
            raw.start()
            function = struct.pack("<iQ", 68, 1 << 63 | 1)
            call = raw.function("test.call")
            depth = 0
            while depth < deepest and raw.call(call, function, integer(1))[0] == 3:  # the server calls back
                depth += 1
            assert depth == deepest or 100 < depth < 5000  # how deep Python goes
        assert events.await_one("session end")["reason"] == "closed"


def test_a_client_that_leaves_a_relay_in_the_middle_is_no_crash() -> None:
    events = Events()
    with Server(init=INIT, log=events) as near, Server(init=INIT) as far:
        session = connect(far.url, via=[near.url], timeout=SECONDS)
        session.get_function("test.pid")()
        session.get_function("test.wait").submit(0.2)
        session.close()
        assert events.await_one("session end")["reason"] in ("closed", "abandoned")
