"""Mailboxes between this machine and others, in emulators, with other pointers and another byte order."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from farcall._core import Channel, Mailbox
from farcall.errors import (
    AccessDeniedError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    UsageError,
    WorkerCrashedError,
)
from farcall.rpc import Session, connect
from farcall.rpc.tokens import TokenFile
from farcall.testing import check_channel
from farcall.toolchain import MACHINES

from ..waiting import SECONDS, soon
from ..wire.conftest import compiler
from .small_server import LONG, compile_server, small_server


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(machine, marks=[pytest.mark.slow] if machine.name in LONG else [])
        for machine in MACHINES
    ],
    ids=lambda machine: machine.name,
)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that start the small server."""
    return small_server(request.param, tmp_path_factory)


# ---- the channel


@contextlib.contextmanager
def relayed(program: list[str], path: Path, near: Mailbox | None = None) -> Iterator[tuple[Channel, Channel]]:
    """A mailbox's channel, and the pipes to the program that has its far end: the server, unless this process
    serves the mailbox ``near``.
    """
    place = f"{'connect' if near else 'serve'}:{path}"
    process = subprocess.Popen(
        program,
        env=os.environ | {"FARCALL_TEST_RELAY": place},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        theirs = Channel(os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno()))
        process.stdin.close()
        process.stdout.close()
        ours = dialled(path, process) if near is None else near.meet(soon())
        try:
            yield ours, theirs
        finally:
            theirs.close()
            ours.close()
            process.wait(SECONDS)


def dialled(path: Path, process: subprocess.Popen[bytes]) -> Channel:
    """A client's channel, once the server is there."""
    while process.poll() is None:
        with contextlib.suppress(ConnectError):
            return Mailbox(str(path)).meet(soon())
    raise AssertionError(f"the server ended with status {process.returncode}")


def test_a_far_server_keeps_the_contract(program: list[str], tmp_path: Path) -> None:
    check_channel(lambda: relayed(program, tmp_path / "box"), bulk_bytes=4 << 20)


def test_a_far_client_keeps_the_contract(program: list[str], tmp_path: Path) -> None:
    near = Mailbox(str(tmp_path / "box"), serving=True)
    check_channel(lambda: relayed(program, tmp_path / "box", near), bulk_bytes=4 << 20)


@pytest.mark.slow
def test_a_system_without_futexes(tmp_path: Path) -> None:
    """The far end looks at the words again and again."""
    built = compile_server(compiler(), tmp_path / "server", "-O1", "-DFC_WORDS_POLL")
    check_channel(lambda: relayed([str(built)], tmp_path / "box"), bulk_bytes=4 << 20)


# ---- sessions with the small server


@contextlib.contextmanager
def serving(program: list[str], path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The small server with a mailbox."""
    words = [*program, "--mailbox", str(path), *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"farcall-server: listening on mailbox:{path}\n"
            yield process
        finally:
            process.terminate()


def opened(path: Path) -> Session:
    return connect(f"mailbox:{path}", timeout=SECONDS)


def test_sessions_one_after_another(program: list[str], tmp_path: Path) -> None:
    path = tmp_path / "box"
    data = np.random.default_rng(0).random(1 << 19, dtype="float32")
    with serving(program, path) as process:
        for i in range(3):
            with opened(path) as session:
                assert session.get_function("test.add")(i, 1) == i + 1
                there = session.tensor(data)
                session.get_function("test.twice")(there)
                np.testing.assert_array_equal(there.numpy(), 2 * data)
        process.terminate()
        assert process.wait(SECONDS) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_crash_ends_one_session(program: list[str], tmp_path: Path) -> None:
    path = tmp_path / "box"
    with serving(program, path):
        session = opened(path)
        with pytest.raises(WorkerCrashedError, match=r"`test.segfault`.*The server lives on"):
            session.get_function("test.segfault")()
        session.close()
        with opened(path) as session:
            assert session.get_function("test.add")(1, 2) == 3


def test_a_killed_server_and_its_successor(program: list[str], tmp_path: Path) -> None:
    path = tmp_path / "box"
    with serving(program, path) as process:
        session = opened(path)
        add = session.get_function("test.add")
        process.kill()
        process.wait()
        with pytest.raises(ConnectionLostError):  # the worker dies with its host
            while True:
                add(1, 1)
        session.close()  # it has its turn until then
        with serving(program, path), opened(path) as again:
            assert again.get_function("test.add")(1, 2) == 3


@pytest.mark.parametrize("size", [0, 4096, 1 << 20])
def test_a_file_that_becomes_shorter_ends_no_server(program: list[str], tmp_path: Path, size: int) -> None:
    if "qemu-s390x" in program[0]:
        pytest.skip("qemu-s390x gives a handler of SIGBUS the address in the host's order of bytes")
    path = tmp_path / "box"
    with serving(program, path) as process:
        session = opened(path)
        add = session.get_function("test.add")
        os.truncate(path, size)
        with pytest.raises((ConnectionLostError, WorkerCrashedError)):
            for _ in range(1 << 20):  # enough for a whole ring
                add(1, 1)
        session.close()
        with again(path, process) as session:
            assert session.get_function("test.add")(1, 2) == 3


def again(path: Path, process: subprocess.Popen[str]) -> Session:
    """A session, once the server has made its file whole again. The server ends one that begins meanwhile."""
    while process.poll() is None:
        with contextlib.suppress(UsageError, ConnectError):
            return opened(path)
    raise AssertionError(f"the server ended with status {process.returncode}")


def test_keys_and_tokens(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    program = small_server(MACHINES[0], tmp_path_factory)
    tokens = TokenFile(tmp_path / "tokens")
    secret = tokens.create("alice", scopes=("call",))
    path = tmp_path / "box"
    with serving(program, path, "--token-file", str(tokens.path), "--key", "k"):
        for key, token in (("wrong", secret), ("k", None), ("k", "alice.no")):
            with pytest.raises(AccessDeniedError):
                connect(f"mailbox:{path}", key, token=token, timeout=SECONDS)
        with connect(f"mailbox:{path}", "k", token=secret, timeout=SECONDS) as session:
            assert session.get_function("test.add")(1, 2) == 3


def test_bytes_that_are_no_handshake(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    program = small_server(MACHINES[0], tmp_path_factory)
    path = tmp_path / "box"
    with serving(program, path):
        for data in (b"", b"\xff", b"GET / HTTP/1.1\r\n", b"\x71\xf2\x0f\x00\xff\xff\xff\x7f"):
            channel = Mailbox(str(path)).meet(soon())
            channel.send(data)
            channel.finish()
            assert channel.receive(9, soon()) == b""
            channel.close()
        with opened(path) as session:
            assert session.get_function("test.add")(1, 2) == 3


def test_a_session_that_lasts_too_long(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    program = small_server(MACHINES[0], tmp_path_factory)
    path = tmp_path / "box"
    with (
        serving(program, path),
        connect(f"mailbox:{path}", session_timeout=0.1, timeout=SECONDS) as session,
        pytest.raises((DeadlineExceededError, ConnectionLostError), match=r"0\.1\d* s are over"),
    ):
        session.get_function("test.spin")()
