"""File transfers: any size, from bytes and from files, complete or not at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import farcall as fc
from farcall.rpc import Server, Session, connect
from farcall.rpc.client import _transfer as transfer

from ..waiting import SECONDS

PIECE = 512 * 1024
SIZES = [0, 1, 65535, 65536, 65537, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 17]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("streams", [True, False])
def test_sizes(session: Session, tmp_path: Path, size: int, streams: bool) -> None:
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)
    assert session.upload(tmp_path / "f" if streams else data, "f") == "f"
    assert session.download("f") == data


def test_more_pieces_than_are_ahead(session: Session, tmp_path: Path) -> None:
    data = os.urandom(20 << 20)
    (tmp_path / "f").write_bytes(data)
    session.upload(tmp_path / "f")
    assert session.download("f") == data


@pytest.fixture(scope="module")
def module_session(server: Server) -> Iterator[Session]:
    with connect(server.url, key="k", timeout=SECONDS) as opened:
        yield opened


@given(offset=st.integers(0, 20), size=st.integers(0, 20))
def test_any_part_of_a_file(module_session: Session, offset: int, size: int) -> None:
    read = module_session.get_function("farcall.rpc.read")
    module_session.upload(b"0123456789", "part")
    assert read("part", offset, size) == b"0123456789"[offset : offset + size]


def test_parts_that_are_none(session: Session) -> None:
    read, size = (session.get_function(f"farcall.rpc.{name}") for name in ("read", "size"))
    session.upload(b"0123456789", "f")
    assert size("f") == 10
    for args in ((-1, 5), (0, -5)):
        with pytest.raises((OSError, ValueError)):
            read("f", *args)
    for call in (lambda: read("g", 0, 1), lambda: size("g")):
        with pytest.raises(FileNotFoundError, match="no file 'g'"):
            call()
    with pytest.raises(fc.UsageError, match="file name"):
        read("../f", 0, 1)


def test_one_answer_is_bounded(session: Session) -> None:
    session.upload(bytes(5 << 20), "f")
    assert len(session.get_function("farcall.rpc.read")("f", 0, 1 << 40)) == 4 << 20


def test_what_is_no_file(session: Session, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(fc.UsageError, match="give the path of a file"):
            session.upload(path)
    assert session.listdir() == []


def test_files_without_a_size(session: Session, tmp_path: Path) -> None:
    session.upload("/proc/self/cmdline", "cmdline")
    assert session.download("cmdline") == Path("/proc/self/cmdline").read_bytes()
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(bytes(100_000),))
    writer.start()
    session.upload(tmp_path / "pipe")
    writer.join()
    assert session.download("pipe") == bytes(100_000)


def test_a_file_that_becomes_shorter(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(20 << 20))
    pread = os.pread

    def cut(fd: int, size: int, at: int) -> bytes:
        if at == 10 << 20:
            os.truncate(path, at + 5)
        return pread(fd, size, at)

    monkeypatch.setattr(os, "pread", cut)
    session.upload(b"old", "f")
    with pytest.raises(fc.UsageError, match="it became shorter"):
        session.upload(path)
    assert session.download("f") == b"old"
    session.upload(b"new", "f")
    assert session.download("f") == b"new"


def test_what_is_ahead_of_a_failure_is_bounded(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_PIECE", 70_000)
    before = session.stats.bytes_out
    with pytest.raises(fc.UsageError, match="file name"):
        session.upload(bytes(200 * 70_000), "../f")
    assert session.stats.bytes_out - before < 40 * 70_000


def test_a_file_that_changes_while_it_is_downloaded(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_turn = transfer._in_turn

    def late(*args: Any) -> Iterator[Any]:
        session.get_function("tvm.rpc.server.upload")("f", bytes(2 * PIECE))
        return in_turn(*args)

    session.upload(bytes(range(256)) * (16 * PIECE // 256), "f")
    with monkeypatch.context() as patch, pytest.raises(fc.RemoteError, match="'f' changed while"):
        patch.setattr(transfer, "_in_turn", late)
        session.download("f")
    assert session.download("f") == bytes(2 * PIECE)


def test_a_file_that_is_too_large_for_memory(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.upload(bytes(2 * PIECE), "f")
    monkeypatch.setattr(transfer.Limits, "string_bytes", 2 * PIECE - 1)
    with pytest.raises(fc.RemoteError, match="has 1048576 bytes, the limit is 1048575"):
        session.download("f")
