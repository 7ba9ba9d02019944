"""Logs: what a server and a client tell people and programs, and what they keep to themselves."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

import farcall as fc
from farcall.rpc import Server, connect
from farcall.rpc.server._event_texts import END_REASONS, log_event, log_sessions
from farcall.rpc.tokens import TokenFile

from ..waiting import SECONDS
from .servers import COMMAND, INIT, Events

CLIENT = r"127\.0\.0\.1:\d+ \(tcp\)"
SIZES = r"[\d.]+ \w+ received, [\d.]+ \w+ sent"


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """What farcall logs during the test."""
    kept: list[logging.LogRecord] = []
    handler, logger = logging.Handler(), logging.getLogger("farcall")
    handler.emit = kept.append  # type: ignore[method-assign]
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield kept
    logger.removeHandler(handler)
    logger.setLevel(level)


def lines(records: list[logging.LogRecord], layer: str) -> list[str]:
    return [
        f"{record.levelname} {record.getMessage()}" for record in records if record.name == f"farcall.{layer}"
    ]


# ---- records


def test_a_session_is_logged_with_its_number(records: list[logging.LogRecord]) -> None:
    events = Events()
    with Server(init=INIT, log=events) as server:
        with connect(server.url, timeout=SECONDS) as session:
            session.get_function("test.add")(1, 2)
        events.await_one("session end")
    start, end, stop = lines(records, "rpc.server")
    assert re.fullmatch(rf"INFO session 1: opened by {CLIENT}", start)
    assert re.fullmatch(
        rf"INFO session 1: closed by its client after [\d.]+ s: {CLIENT}, 1 call, {SIZES}", end
    )
    assert stop == "INFO stopped"
    numbers = [record.session for record in records if record.name == "farcall.rpc.server"]  # type: ignore[attr-defined]
    assert numbers == [1, 1, None]
    assert all(hasattr(record, "session") for record in records if record.name.startswith("farcall."))


def test_a_crash_is_an_error_that_names_the_function(records: list[logging.LogRecord]) -> None:
    with (
        Server(init=INIT) as server,
        connect(server.url, timeout=SECONDS) as session,
        pytest.raises(fc.errors.WorkerCrashedError),
    ):
        session.get_function("test.segfault")()
    (crash,) = [line for line in lines(records, "rpc.server") if line.startswith("ERROR")]
    assert "session 1: crashed after" in crash and "SIGSEGV" in crash and "`test.segfault`" in crash


def test_a_refusal_is_a_warning(records: list[logging.LogRecord]) -> None:
    with Server(key="desk") as server, pytest.raises(fc.errors.ConnectError):
        connect(server.url, key="other", timeout=SECONDS)
    assert re.fullmatch(r"WARNING refused 127\.0\.0\.1:\d+: wrong key", lines(records, "rpc.server")[0])


def test_no_line_has_a_secret(records: list[logging.LogRecord], tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    good = file.create("alice")
    bad = "alice." + "x" * 40
    with Server(urls=[f"unix://{tmp_path}/u"], tokens=file.path) as server:
        with connect(server.url, token=good, timeout=SECONDS):
            pass
        with pytest.raises(fc.errors.AccessDeniedError):
            connect(server.url, token=bad, timeout=SECONDS)
    text = "\n".join(record.getMessage() for record in records)
    assert "token alice" in text and "refused" in text
    for token in (good, bad):
        assert token.partition(".")[2] not in text


def test_names_from_peers_cannot_forge_a_line(records: list[logging.LogRecord]) -> None:
    evil = "x\x1b[2K\r\nsession 9: opened by root\u202e"
    common = {"session": 1, "peer": evil, "channel": "tcp", "token": evil, "seconds": 0.1}
    counts = {"calls": 1, "received": 2, "sent": 3, "pid": 4}
    log_event({"event": "session start", **common})
    log_event({"event": "refused", "peer": evil, "reason": evil})
    for reason in END_REASONS:
        log_event({"event": "session end", "reason": reason, "words": evil, **common})
    assert all(record.getMessage().isprintable() for record in records)
    log_sessions([{**common, **counts, "calling": evil}])
    assert len(records[-1].getMessage().split("\n")) == 3  # how many, the columns, the session
    assert all(line.isprintable() for line in records[-1].getMessage().split("\n"))


def test_a_clients_session(records: list[logging.LogRecord], server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        session.get_function("test.add")(1, 2)
        session.close()
    opened, closed = lines(records, "rpc.session")
    number = opened.split()[2]
    assert opened == f"INFO session {number} opened with {server.url}"
    assert re.fullmatch(rf"INFO session {number} closed: 1 call, .* sent, .* received", closed)
    assert lines(records, "rpc.channels") == [f"DEBUG connected to {server.url}"]


def test_a_build(records: list[logging.LogRecord], digits: Path) -> None:
    fc.partition(digits).build()
    (built,) = lines(records, "build")
    assert built.startswith("INFO built digits for ") and built.endswith(": 1 region")
    assert "DEBUG link for " in " ".join(lines(records, "toolchain"))


def test_a_program_without_logging_prints_nothing() -> None:
    code = """
import farcall as fc
from farcall.rpc import Server
with Server(key="desk") as server:
    try:
        fc.connect(server.url, key="other")
    except fc.errors.ConnectError:
        pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


# ---- the command


@contextmanager
def command(*options: str, stderr: int | IO[str] = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [*COMMAND, "--init", INIT, *options]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
    ) as process:
        yield process


def a_day(process: subprocess.Popen[str]) -> str:
    """A client that calls, one with a wrong key, SIGUSR1, and one that crashes; returns the log."""
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1]
    with connect(url, timeout=SECONDS) as session, pytest.raises(fc.errors.WorkerCrashedError):
        with pytest.raises(fc.errors.ConnectError):
            connect(url, key="wrong", timeout=SECONDS)
        process.send_signal(signal.SIGUSR1)
        session.get_function("test.segfault")()
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=SECONDS)[1]


def test_the_command_shows_sessions_refusals_and_crashes() -> None:
    with command() as process:
        log = a_day(process)
    assert re.search(rf"^\d\d:\d\d:\d\d session 1: opened by {CLIENT}$", log, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d refused 127\.0\.0\.1:\d+: wrong key$", log, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d session 1: crashed after ", log, re.MULTILINE)
    assert re.search(r"1 open session\nsession +client .*\n1 +127\.0\.0\.1:\d+ +tcp +- ", log)
    assert "process" not in log.replace("worker process", "")


def test_quiet_leaves_crashes_and_the_table() -> None:
    with command("--quiet") as process:
        log = a_day(process)
    assert "opened" not in log and "refused" not in log and "crashed" in log and "1 open session" in log


def test_verbose_adds_details() -> None:
    with command("--verbose") as process:
        log = a_day(process)
    assert re.search(r"worker \d+ is process \d+", log)


def test_json_names_its_schema() -> None:
    with command("--json") as process:
        assert process.stdout is not None
        events = [json.loads(process.stdout.readline())]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SECONDS)
        events += map(json.loads, out.splitlines())
    assert err == "" and {event["schema"] for event in events} == {"farcall.serve/1"}


def test_a_reader_of_the_log_that_stops_reading_stops_nothing() -> None:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(read), os.fdopen(write, "w") as stderr, command(stderr=stderr) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        place = fc.rpc.channels.parse_address(url)
        for _ in range(200):  # lines of the log: more than the pipe holds
            with socket.create_connection((place.host, place.port)) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(64))
        with connect(url, timeout=SECONDS) as session:
            assert session.get_function("test.add")(20, 22) == 42
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
