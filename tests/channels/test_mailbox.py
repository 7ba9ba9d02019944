"""Mailboxes: sessions one after another, peers that die or write garbage, and files that are none."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farcall._core import Channel, Mailbox
from farcall.errors import (
    ConnectError,
    ConnectionLostError,
    ConnectTimeoutError,
    DeadlineExceededError,
    UsageError,
)
from farcall.rpc import Server, connect
from farcall.rpc.channels import dial

from ..rpc import exports
from ..waiting import SECONDS, soon
from .places import Box

OFFERED, ENTERED = 64, 68  # offsets in the header; see docs/spec/mailbox.md
UP, DOWN = 128, 256  # lanes
WRITTEN, TAKEN = 0, 64
HEADER, RING = 4096, 1 << 20
END = 1 << 31


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


@contextlib.contextmanager
def opened(path: str) -> Iterator[mmap.mmap]:
    """The file's memory, as a hostile peer has it."""
    with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        yield memory


def poke(memory: mmap.mmap, offset: int, value: int) -> None:
    struct.pack_into("<I", memory, offset, value)


# ---- the file


def test_the_header_is_as_specified(box: Box) -> None:
    data = Path(box.path).read_bytes()
    assert len(data) == HEADER + 2 * RING
    assert data[:24] == b"FCMAILBX" + bytes.fromhex("01000000 04030201 00100000 00001000")
    assert Path(box.path).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in Path(box.path).parent.iterdir()] == ["box"]


def test_the_words_and_rings_are_as_specified(box: Box) -> None:
    with box.pair() as (ours, theirs), opened(box.path) as memory:
        assert struct.unpack_from("<2I", memory, OFFERED) == (1, 1)
        ours.send(b"abc")
        theirs.send(b"defgh")
        ours.receive(2)
        assert struct.unpack_from("<I", memory, UP + WRITTEN) == (3,)
        assert struct.unpack_from("<I", memory, DOWN + WRITTEN) == (5,)
        assert struct.unpack_from("<I", memory, DOWN + TAKEN) == (2,)
        assert memory[HEADER : HEADER + 3] == b"abc"
        assert memory[HEADER + RING : HEADER + RING + 5] == b"defgh"
        ours.finish()
        assert struct.unpack_from("<I", memory, UP + WRITTEN) == (END | 3,)


@pytest.mark.parametrize(
    ("offset", "value", "error"),
    [
        (0, 0, "the file is no mailbox"),
        (8, 2, "another version than 1; use the same release"),
        (12, 0x04030201, "another version than 1"),
        (16, 8192, "its sizes are not valid"),
        (20, 0, "its sizes are not valid"),
        (20, RING + 1, "its sizes are not valid"),
        (20, 2 * RING, "its sizes are not valid"),
        (20, 0xFFFFFFFF, "its sizes are not valid"),
    ],
)
@pytest.mark.parametrize("serving", [False, True])
def test_a_header_that_is_not_valid(box: Box, offset: int, value: int, error: str, serving: bool) -> None:
    with opened(box.path) as memory:
        poke(memory, offset, value)
    del box.server
    with pytest.raises(UsageError, match=error):
        Mailbox(box.path, serving=serving)


@pytest.mark.parametrize("size", [0, 100, HEADER, HEADER + RING, 1 << 30])
def test_a_file_of_another_size(box: Box, size: int) -> None:
    os.truncate(box.path, size)
    with pytest.raises(UsageError, match=r"no mailbox|sizes are not valid"):
        Mailbox(box.path)


def test_a_path_that_cannot_be_one(tmp_path: Path, box: Box) -> None:
    with pytest.raises(ConnectError, match=r"No such file.*is `farcall-server --mailbox`"):
        connect(f"mailbox://{tmp_path}/missing")
    link = tmp_path / "link"
    link.symlink_to(box.path)
    with pytest.raises(UsageError, match="symbolic links"):
        Mailbox(str(link))
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (str(tmp_path / "pipe"), "/dev/null"):
        with pytest.raises(UsageError, match="no file"):
            Mailbox(path)
    with pytest.raises(UsageError, match="choose another path"):
        Mailbox(str(tmp_path / "missing" / "box"), serving=True)
    Path(box.path).chmod(0o660)
    with pytest.raises(UsageError, match="yours alone: chmod 600"):
        Mailbox(box.path)


def test_a_mailbox_has_one_server(box: Box) -> None:
    with pytest.raises(UsageError, match="another server has it open"):
        Mailbox(box.path, serving=True)


# ---- sessions one after another


def test_a_client_takes_its_turn(box: Box) -> None:
    ours, theirs = box.meet()
    with pytest.raises(ConnectTimeoutError, match="another client uses the mailbox"):
        Mailbox(box.path).meet(0.0)
    later: list[Channel] = []
    waiting = threading.Thread(target=lambda: later.append(Mailbox(box.path).meet(soon())))
    waiting.start()
    ours.send(b"the last bytes")
    ours.close()
    assert theirs.receive(100, soon()) == b"the last bytes"
    assert theirs.receive(100, soon()) == b""
    theirs.close()
    again = box.server.meet(soon())
    waiting.join(SECONDS)
    later[0].send(b"x")
    assert again.receive(9, soon()) == b"x"


def test_what_one_session_left_is_not_in_the_next(box: Box) -> None:
    with box.pair() as (ours, theirs):
        ours.send(b"unread")
        theirs.send(b"unread")
    with box.pair() as (ours, theirs), pytest.raises(DeadlineExceededError):
        ours.receive(1, 0.0)
    with box.pair() as (ours, theirs), pytest.raises(DeadlineExceededError):
        theirs.receive(1, 0.0)


def test_a_client_without_a_server(box: Box) -> None:
    del box.server
    with pytest.raises(ConnectError, match=r"no server has the mailbox open; is `farcall serve` running"):
        connect(f"mailbox:{box.path}")


def test_a_server_that_takes_nobody(box: Box) -> None:
    with pytest.raises(ConnectTimeoutError, match="did not take the client in time"):
        dial(f"mailbox:{box.path}", 0.0)


def test_the_number_of_a_session_is_never_0(box: Box) -> None:
    with opened(box.path) as memory:
        poke(memory, ENTERED, 0xFFFFFFFF)
        with box.pair():
            assert struct.unpack_from("<2I", memory, OFFERED) == (1, 1)


def test_an_interrupted_server_ends(box: Box) -> None:
    failed = []

    def serve() -> None:
        with pytest.raises(ConnectionLostError) as caught:
            box.server.meet()
        failed.append(caught.value)

    thread = threading.Thread(target=serve)
    thread.start()
    box.server.interrupt()
    thread.join(SECONDS)
    assert failed


# ---- death

CLIENT = """
import sys, time
from farcall._core import Mailbox
channel = Mailbox(sys.argv[1]).meet(time.monotonic() + 20)
channel.send(b"half a mess")
print("sent", flush=True)
channel.receive(1)
"""
SERVER = """
import sys, time
from farcall._core import Mailbox
channel = Mailbox(sys.argv[1], serving=True).meet(time.monotonic() + 20)
channel.send(b"half a mess")
print("sent", flush=True)
channel.receive(1)
"""


@contextlib.contextmanager
def child(program: str, path: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE)
    with process:
        try:
            yield process
        finally:
            process.kill()


def is_lost(channel: Channel) -> None:
    assert channel.receive(100, soon()) == b"half a mess"
    with pytest.raises(ConnectionLostError, match="the peer's process has ended"):
        channel.receive(1, soon())
    with pytest.raises(ConnectionLostError, match="takes no more"):
        channel.send(bytes(4 * RING), soon())
    channel.close()


def test_a_client_that_is_killed(box: Box) -> None:
    with child(CLIENT, box.path) as process:
        channel = box.server.meet(soon())
        assert process.stdout is not None
        assert process.stdout.readline() == b"sent\n"
        process.kill()
        is_lost(channel)
    with box.pair() as (ours, theirs):
        theirs.send(b"alive")
        assert ours.receive(9, soon()) == b"alive"


def test_a_server_that_is_killed_and_its_successor(tmp_path: Path) -> None:
    path = str(tmp_path / "box")

    def dialled() -> Channel:
        while True:
            with contextlib.suppress(ConnectError):
                return dial(f"mailbox:{path}", soon()).channel

    with child(SERVER, path) as process:
        channel = dialled()
        assert process.stdout is not None
        assert process.stdout.readline() == b"sent\n"
        process.kill()
        process.wait()
        is_lost(channel)
    with child(SERVER, path):
        assert dialled().receive(100, soon()) == b"half a mess"


def test_a_successor_removes_the_file_of_a_dead_server(box: Box) -> None:
    ours, _ = box.meet()
    del box.server, _
    box.server = Mailbox(box.path, serving=True)
    with box.pair() as (near, far):  # though the client of the dead server is still there
        near.send(b"x")
        assert far.receive(9, soon()) == b"x"
        assert ours.receive(1, soon()) == b""
    ours.close()


def test_what_a_dead_server_offered_is_not_an_offer_of_its_successor(box: Box) -> None:
    with pytest.raises(DeadlineExceededError):
        box.server.meet(0.0)  # it offers a session, which nobody enters
    offered = Mailbox(box.path)  # a client that has opened the file when the server dies
    del box.server
    successor = Mailbox(box.path, serving=True)
    with pytest.raises(ConnectError, match="no server has the mailbox open"):
        offered.meet(soon())
    box.server = successor
    with box.pair() as (ours, theirs):
        ours.send(b"x")
        assert theirs.receive(9, soon()) == b"x"


def test_a_file_that_is_no_mailbox_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "box"
    path.write_bytes(b"somebody's letter")
    path.chmod(0o600)
    with pytest.raises(UsageError, match="the file is no mailbox"):
        Mailbox(str(path), serving=True)
    assert path.read_bytes() == b"somebody's letter"


# ---- files that become shorter


@pytest.mark.parametrize("size", [0, HEADER, HEADER + RING])
def test_a_file_that_becomes_shorter_ends_the_session_and_no_process(box: Box, size: int) -> None:
    ours, theirs = box.meet()
    os.truncate(box.path, size)
    with pytest.raises(ConnectionLostError):
        theirs.send(bytes(4 * RING), soon())
    theirs.close()
    with pytest.raises(DeadlineExceededError):
        box.server.meet(0.0)  # makes the file whole again
    assert ours.receive(1, soon()) == b""
    ours.close()
    with box.pair() as (ours, theirs):
        ours.send(b"x")
        assert theirs.receive(9, soon()) == b"x"


@pytest.mark.parametrize("size", [0, HEADER, 8 * RING])
def test_a_file_that_changes_its_size_while_nobody_is_there(box: Box, size: int) -> None:
    with pytest.raises(DeadlineExceededError):
        box.server.meet(0.0)
    os.truncate(box.path, size)
    with pytest.raises(DeadlineExceededError):
        box.server.meet(0.0)
    with box.pair() as (ours, theirs):
        ours.send(b"x")
        assert theirs.receive(9, soon()) == b"x"


# ---- peers that write garbage


@pytest.mark.parametrize("written", [RING + 1, 2 * RING, END - 1, END | (RING + 1), 0xFFFFFFFF])
def test_a_position_beyond_the_ring_breaks_the_channel(box: Box, written: int) -> None:
    with box.pair() as (ours, theirs), opened(box.path) as memory:
        poke(memory, UP + WRITTEN, written)
        with pytest.raises(ConnectionLostError, match="Protocol error"):
            theirs.receive(100, soon())
        poke(memory, UP + TAKEN, 1)
        with pytest.raises(ConnectionLostError, match="Protocol error"):
            ours.send(b"x", soon())


@settings(max_examples=50)
@given(
    pokes=st.lists(st.tuples(st.sampled_from(range(0, 400, 4)), st.integers(0, 0xFFFFFFFF)), max_size=8),
)
def test_anything_in_the_header_is_bytes_or_an_error(
    pokes: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    box = Box(tmp_path_factory.mktemp("box"))
    with box.pair() as (ours, theirs), opened(box.path) as memory:
        for offset, value in pokes:
            poke(memory, offset, value)
            for end in (ours, theirs):
                for work in (lambda end=end: end.receive(100, 0.0), lambda end=end: end.send(b"x" * 9, 0.0)):
                    with contextlib.suppress(ConnectionLostError, DeadlineExceededError):
                        work()
        ours.close()
        theirs.close()
        poke(memory, 20, 0xFFFFFFFF)  # each side keeps the sizes that it has checked
        with contextlib.suppress(DeadlineExceededError):
            box.server.meet(0.0)


# ---- whole servers


def test_a_server_removes_its_file(tmp_path: Path) -> None:
    url = f"mailbox://{tmp_path}/box"
    for _ in range(2):
        with Server(urls=[url], init=f"{exports.__name__}:register") as server:
            assert server.urls == [url]
            for i in range(3):
                with connect(f"mailbox:{tmp_path}/box", timeout=SECONDS) as session:
                    assert session.get_function("test.add")(i, 1) == i + 1
        assert list(tmp_path.iterdir()) == []
