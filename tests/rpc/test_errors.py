"""Each way in which a session can fail to begin or to go on has one clear error."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import farcall as fc
from farcall.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    ProtocolError,
    WorkerCrashedError,
)
from farcall.rpc import Server, connect

from ..waiting import SECONDS, has_ended
from .impostors import ACCEPT, VOID, impostor, take_packet, until_closed
from .peers import packet, sequence, text
from .servers import INIT, works


def refused(url: str, key: str = "", timeout: float = SECONDS) -> str:
    with pytest.raises(ConnectError) as caught:
        connect(url, key=key, timeout=timeout)
    return str(caught.value)


# ---- no session


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "Connection refused; is `farcall serve` running there?" in refused(f"tcp://127.0.0.1:{port}")


def test_a_wrong_key(server: Server) -> None:
    assert "refused the key 'wrong'" in refused(server.url, "wrong")
    assert "refused the key ''" in refused(server.url)
    assert works(server)


@pytest.mark.parametrize("url", ["", "127.0.0.1", "tcp://h", "tcp://h:x", "tcp://h:1/a"])
def test_no_address(url: str) -> None:
    with pytest.raises(fc.UsageError, match="expected tcp://HOST:PORT"):
        connect(url)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not an RPC server"),
        (b"", "closed the connection in the handshake"),
        (b"\x71", "closed the connection in the handshake"),
        (struct.pack("<i", 0xFF272), "in use at the proxy"),
        (struct.pack("<ii", 0xFF271, -5), "not an RPC server"),
        (ACCEPT, "no session"),
        (ACCEPT + b"garbage garbage garbage", "no session"),
        (ACCEPT + struct.pack("<Q", 2**60), "no session"),
        (ACCEPT + packet(5, sequence(text("ValueError: not today"))), "no session: .*not today|not today"),
    ],
)
def test_what_is_no_server(answer: bytes, reason: str) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(12)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        until_closed(connection)

    with impostor(serve) as url, pytest.raises((ConnectError, ValueError), match=reason):
        connect(url, key="k", timeout=SECONDS)


@pytest.mark.parametrize("answer", [b"", ACCEPT[:6], ACCEPT])
def test_a_server_that_says_no_more(answer: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(answer)
        until_closed(connection)

    with impostor(serve) as url:
        refused(url, "k", timeout=0.2)


# ---- in a session


def stage(replies: list[bytes]) -> Callable[[socket.socket], None]:
    """A server that begins a session and then answers each request with the next of these."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(ACCEPT + VOID + VOID)  # a plain peer: it has no farcall.rpc.hello
        connection.recv(8 + len("client:k"), socket.MSG_WAITALL)
        for _ in range(2):  # the init and that question: a reply before its request would be another story
            take_packet(connection)
        for reply in replies:
            take_packet(connection)
            connection.sendall(reply)
        connection.shutdown(socket.SHUT_WR)
        until_closed(connection)

    return serve


@pytest.mark.parametrize("cut", [0, 1, 8, 12, 19])
def test_a_server_that_dies_in_mid_call(cut: int) -> None:
    with impostor(stage([VOID[:cut]])) as url:
        session = connect(url, key="k", timeout=SECONDS)
        for _ in range(2):
            with pytest.raises(ConnectionLostError, match="was lost while"):
                session.get_function("f")
        assert session.closed


@pytest.mark.parametrize(
    "reply",
    [
        packet(4, struct.pack("<i", -1)),
        packet(99),
        struct.pack("<Q", 2**61),
        packet(8, b"payload that nobody asked for"),
        packet(7, b""),
        packet(2, struct.pack("<Q", 0) + sequence()),
        packet(5, sequence()),
    ],
)
def test_replies_that_are_none(reply: bytes) -> None:
    with impostor(stage([reply])) as url:
        session = connect(url, key="k", timeout=SECONDS)
        with pytest.raises(ProtocolError):
            session.get_function("f")
        assert session.closed


@pytest.mark.parametrize("kind", ["ConnectionLostError", "WorkerCrashedError"])
def test_a_function_that_lost_a_session_of_its_own(server: Server, kind: str) -> None:
    """This text, from the server itself, means that the session is over."""
    with connect(server.url, key="k", timeout=SECONDS) as session:
        with pytest.raises(fc.RemoteError) as error:
            session.get_function("test.fail")(kind, "the board is gone")
        assert str(error.value) == f"{kind}: the board is gone"
        assert not session.closed
        assert session.get_function("test.add")(1, 1) == 2


def test_the_call_is_named_when_the_connection_is_lost(server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        kill = session.get_function("test.kill")
        with pytest.raises(WorkerCrashedError, match=r"SIGKILL.* in `test\.kill`"):
            kill(int(signal.SIGKILL))
        with pytest.raises(WorkerCrashedError):
            kill(0)
    assert works(server)


def test_a_deadline_on_a_call(server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS, call_timeout=0.2) as session:
        assert session.call_timeout == 0.2
        session.call_timeout = None
        pid = session.get_function("test.pid")()
        forever = session.get_function("test.forever")
        session.call_timeout = 0.2
        with pytest.raises(DeadlineExceededError, match=r"within 0\.2 s"):
            forever()
        with pytest.raises(DeadlineExceededError):
            session.get_function("test.add")
        assert has_ended(pid)
    assert works(server)


def test_close_ends_a_call_in_another_thread(server: Server) -> None:
    session = connect(server.url, key="k", timeout=SECONDS)
    pid = session.get_function("test.pid")()
    forever, caught = session.get_function("test.forever"), []

    def call() -> None:
        try:
            forever()
        except fc.RemoteError as error:
            caught.append(type(error))

    thread = threading.Thread(target=call)
    thread.start()
    session.close()
    thread.join(SECONDS)
    assert caught == [ConnectionLostError]
    with contextlib.suppress(ProcessLookupError):  # the call may not have begun when the session closed
        os.kill(pid, signal.SIGKILL)


INTERRUPT = """
import signal, sys, threading
from farcall.rpc import connect

session = connect(sys.argv[1], key="k")
forever = session.get_function("test.forever")
main = threading.main_thread().ident
threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()
try:
    forever()
except KeyboardInterrupt:
    print("interrupted")
session.close()
"""


FORKED = """
import gc, os, sys
import farcall as fc

session = fc.connect(sys.argv[1], "k")
add = session.get_function("test.add")
child = os.fork()
if child == 0:
    try:
        add(1, 1)
    except fc.errors.ConnectionLostError:
        session.close()
        del add, session
        gc.collect()
        os._exit(7)
    os._exit(1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), add(20, 22))
"""


@pytest.mark.parametrize("channel", ["tcp", "unix", "shm"])
def test_a_child_process_does_not_disturb_the_session(channel: str, tmp_path: Path) -> None:
    place = "tcp://127.0.0.1:0" if channel == "tcp" else f"{channel}://{tmp_path}/place"
    with Server(init=INIT, key="k", urls=[place]) as server:
        command = [sys.executable, "-c", FORKED, server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.stdout, done.stderr) == ("7 42\n", "")


def test_a_call_can_be_interrupted(server: Server) -> None:
    command = [sys.executable, "-c", INTERRUPT, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    assert works(server)


@pytest.mark.parametrize(
    "hello", [b"", b"[]", b"7", b"{", b'{"features": 1}', b'{"limits": 3}', b"[" * 100_000, b"\xff"]
)
def test_a_hello_that_is_invalid(hello: bytes) -> None:
    pointer = packet(4, sequence(struct.pack("<iQ", 4, 5)))
    said = struct.pack("<iQ", 8, len(hello)) + hello
    answer = packet(4, sequence(struct.pack("<iq", 1, 65), said))

    def serve(connection: socket.socket) -> None:
        connection.sendall(ACCEPT + VOID + pointer)
        connection.recv(8 + len("client:k"), socket.MSG_WAITALL)
        for _ in range(3):
            take_packet(connection)
        connection.sendall(answer)
        until_closed(connection)

    with impostor(serve) as url:
        assert re.search("its hello is not |hello` gave a text that is not UTF-8", refused(url, "k"))


@pytest.mark.parametrize("code", [3, 10])
def test_a_plain_server_does_not_call_back(code: int) -> None:
    body = struct.pack("<Q", 1 << 63) + sequence() if code == 3 else sequence(struct.pack("<iQ", 4, 1 << 63))
    with impostor(stage([packet(code, body)])) as url:
        session = connect(url, key="k", timeout=SECONDS)
        with pytest.raises(ProtocolError, match="which only a client sends"):
            session.get_function("f")
        assert session.closed


def test_tracebacks_for_those_who_ask(server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        fail = session.get_function("test.fail")
        with pytest.raises(ValueError, match="before"):
            fail("ValueError", "before")
        assert session.last_traceback() == ""  # nothing is kept unless it was asked for
        session.keep_tracebacks()
        with pytest.raises(ValueError, match="reason"):
            fail("ValueError", "reason")
        text = session.last_traceback()
        assert text.startswith("Traceback (most recent call last)")
        assert "in _fail" in text
        assert text.endswith("ValueError: reason\n")
        with pytest.raises(KeyError):
            fail("KeyError", "x" * 100_000)
        assert len(session.last_traceback()) <= 16384
