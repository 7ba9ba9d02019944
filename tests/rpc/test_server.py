"""The server as a process: its start, the options that it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import farcall as fc
from farcall.errors import ConnectionLostError
from farcall.rpc import Limits, Server, connect, serve_forever
from farcall.rpc.channels import is_loopback
from farcall.rpc.server import _output as output
from farcall.rpc.server import _pool as pool
from farcall.rpc.server import _supervisor as supervisor

from ..waiting import SECONDS, has_ended
from . import exports
from .servers import INIT, works

PROGRAM = """
import sys
from farcall.rpc import Limits, serve_forever
limits = Limits(drain_seconds=3600)
serve_forever(init=sys.argv[1], limits=limits, on_listening=lambda url: print(url, flush=True))
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The address of a server in a separate process, whose temporary files are in tmp_path."""
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": paths}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, INIT], stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]])
def test_a_signal_ends_the_server_and_all_that_it_started(
    program: tuple[subprocess.Popen[str], str], tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    process, url = program
    with connect(url, timeout=SECONDS) as session:
        session.upload(b"x", "file")
        pid = session.get_function("test.pid")()
        assert list(tmp_path.glob("*/*/file"))
        call = session.get_function("test.forever").submit()
        for number in numbers:
            process.send_signal(number)
            assert has_stopped_listening(url)  # a signal that comes before the last was taken is lost
        assert process.wait(SECONDS) == 0
        assert has_ended(pid)
        with pytest.raises(ConnectionLostError, match="shutting down"):
            call.result()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_whose_init_never_does(number: signal.Signals, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-c", PROGRAM, f"{exports.__name__}:hang"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == b"begun\n"
            process.send_signal(number)
            out, err = process.communicate(timeout=SECONDS)  # the end of stderr: its zygote is gone, too
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, b"", b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_call_that_runs_may_finish_and_idle_sessions_end_at_once(
    program: tuple[subprocess.Popen[str], str], tmp_path: Path, number: signal.Signals
) -> None:
    process, url = program  # its drain takes an hour
    with connect(url, timeout=SECONDS) as busy, connect(url, timeout=SECONDS) as idle:
        pid, add = idle.get_function("test.pid")(), idle.get_function("test.add")
        root = Path(busy.get_function("test.here")()).parent
        call = busy.get_function("test.wait_for").submit("go")
        process.send_signal(number)
        assert has_ended(pid)
        with pytest.raises(ConnectionLostError, match="the server is shutting down"):
            add(20, 22)
        process.send_signal(signal.SIGHUP)  # the terminal's shell says it again: nothing ends for that
        (root / "go").touch()
        assert call.result(SECONDS) is None
        assert process.wait(SECONDS) == 0
        with pytest.raises(ConnectionLostError, match="the server is shutting down"):
            busy.get_function("test.add")
    assert list(tmp_path.iterdir()) == []


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    """The process is started as by ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, INIT],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            text=True,
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    with program as process:
        try:
            assert process.stdout is not None
            with connect(process.stdout.readline().strip(), timeout=SECONDS) as session:
                add = session.get_function("test.add")
                process.send_signal(signal.SIGHUP)
                assert add(20, 22) == 42
                process.send_signal(signal.SIGTERM)
                assert process.wait(SECONDS) == 0
        finally:
            process.kill()


def test_a_stop_takes_less_than_the_ten_seconds_that_containers_give() -> None:
    waits = (supervisor._END_SECONDS, pool._CLOSE_SECONDS, output._CLOSE_SECONDS)
    assert Limits().drain_seconds + sum(waits) < 10


def test_workers_go_when_their_supervisor_is_killed(
    program: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    process, url = program
    with connect(url, timeout=SECONDS) as session:
        pid, zygote = (session.get_function(f"test.{name}")() for name in ("pid", "parent"))
        process.kill()
        process.wait(SECONDS)
        assert has_ended(pid)
        assert has_ended(zygote)  # it cleans up
        with pytest.raises(ConnectionLostError):
            session.get_function("test.add")
    assert list(tmp_path.iterdir()) == []


def test_nothing_stays_when_the_terminal_of_a_server_is_closed(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, INIT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        with connect(process.stdout.readline().strip(), timeout=SECONDS) as session:
            zygote = session.get_function("test.parent")()
            os.killpg(process.pid, signal.SIGHUP)
            process.wait(SECONDS)
            assert has_ended(zygote)
    assert list(tmp_path.iterdir()) == []


def has_stopped_listening(url: str) -> bool:
    """Wait until the server accepts no more clients."""
    host, port = url.removeprefix("tcp://").rsplit(":", 1)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        try:
            socket.create_connection((host, int(port)), timeout=SECONDS).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:  # it is about to
            pass
    return False


def test_the_folder_of_a_session_goes_with_it() -> None:
    with Server(init=INIT) as server, connect(server.url, timeout=SECONDS) as session:
        session.upload(b"x", "file")
        folder = Path(session.get_function("test.here")())
        pid = session.get_function("test.pid")()
        assert (folder / "file").exists()
        session.close()
        assert has_ended(pid)
    assert not folder.exists()


def test_close_ends_workers_and_is_safe_to_call_twice() -> None:
    server = Server(init=INIT)
    session = connect(server.url, timeout=SECONDS)
    pid = session.get_function("test.pid")()
    server.close()
    server.close()
    assert has_ended(pid)
    with pytest.raises(ConnectionLostError):
        session.get_function("test.add")
    session.close()
    with pytest.raises(fc.errors.ConnectError):
        connect(server.url, timeout=SECONDS)


def test_a_key() -> None:
    with Server(init=INIT, key="lab/board-7") as server:
        assert works(server, key="lab/board-7")


@pytest.mark.parametrize(
    ("init", "reason"),
    [
        ("nothing", "expected PKG.MOD:FUNC"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        (f"{exports.__name__}:missing", "has no attribute 'missing'"),
        (f"{exports.__name__}:broken", "it failed with RuntimeError: no such board"),
    ],
)
def test_a_broken_init_is_known_at_once(init: str, reason: str) -> None:
    with pytest.raises(fc.UsageError, match=reason):
        Server(init=init)
    gc.collect()  # what the server had opened is closed: otherwise Python warns, and the test fails


def test_a_public_address_is_refused() -> None:
    for host in ("0.0.0.0", "192.0.2.1", "::"):  # noqa: S104
        for start in (Server, serve_forever):
            with pytest.raises(fc.UsageError, match=r"--insecure"):
                start(host=host)


def test_an_address_that_is_taken() -> None:
    with Server() as server, pytest.raises(fc.UsageError, match="cannot listen on"):
        Server(port=server.port)


def test_ports_that_are_none() -> None:
    for port in (-1, 70000):
        with pytest.raises(fc.UsageError, match="from 0"):
            Server(port=port)


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104
        ("h", False),
    ],
)
def test_is_loopback(host: str, answer: bool) -> None:
    assert is_loopback(host) is answer


def test_a_server_without_init_has_the_standard_functions_only() -> None:
    with Server() as server, connect(server.url, timeout=SECONDS) as session:
        assert session.get_function("ffi.ArraySize") is not None
        with pytest.raises(AttributeError):
            session.get_function("test.add")
