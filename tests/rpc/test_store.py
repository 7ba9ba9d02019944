"""The store: the files that it keeps and overwrites, and that no session sees another's bytes."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from farcall import _core
from farcall.rpc import Limits, Server, connect
from farcall.rpc.server._files import Workdir
from farcall.rpc.server._store import ContentStore, SharedFiles
from farcall.rpc.server._uploads import Uploads
from farcall.rpc.shared._content_names import hint_of, library_name

from ..waiting import SECONDS

ENDS = 64 * 1024
PIECE = 50_000


def content(number: int, size: int = 3 * ENDS) -> bytes:
    """Contents with different numbers differ in every byte."""
    return bytes([number % 256]) * (size - 8) + number.to_bytes(8, "little")


def hint(data: bytes) -> str:
    return hint_of(len(data), data[:ENDS], data[-ENDS:])


class Peer:
    """A session's folder, and the actions of its client."""

    def __init__(self, root: Path, store: ContentStore) -> None:
        root.mkdir()
        self.files = Workdir(root)
        self._shared = SharedFiles(self.files, lambda: store, lambda name, size: None)
        self._write = Uploads(self.files, lambda: store).writer()

    def upload(self, name: str, data: bytes) -> bool:
        """Whether it had to be sent."""
        if self._shared.known(hint(data)) and self._shared.have(
            name, hashlib.sha256(data).hexdigest(), hint(data)
        ):
            return False
        for at in range(0, len(data), PIECE):
            self._write(name, at, len(data), data[at : at + PIECE])
        self._shared.share(name, hint(data))
        return True

    def inode(self, name: str) -> int:
        return self.files.existing(name).stat().st_ino

    def end(self) -> None:
        shutil.rmtree(self.files.root)


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "store")


@pytest.fixture
def peer(tmp_path: Path, store: ContentStore) -> Peer:
    return Peer(tmp_path / "peer", store)


@pytest.fixture
def other(tmp_path: Path, store: ContentStore) -> Peer:
    return Peer(tmp_path / "other", store)


def kept(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in (root / "store").iterdir()]


@pytest.fixture
def reuses(tmp_path: Path) -> None:
    """Skips the test if the file system cannot tell whether a file is in use."""
    with (tmp_path / "probe").open("wb") as probe:
        if not _core.file_is_ours(probe.fileno()):
            pytest.skip("this file system does not count who has a file open")


# ---- what is kept


def test_the_last_two_contents_of_a_name_are_kept(peer: Peer, tmp_path: Path) -> None:
    for number in range(5):
        assert peer.upload("model.bin", content(number))
    assert sorted(kept(tmp_path)) == [content(3), content(4)]
    assert not peer.upload("model.bin", content(3))
    assert peer.files.read("model.bin") == content(3)


def test_builds_of_one_library_are_contents_of_one_name(peer: Peer, tmp_path: Path) -> None:
    for number in range(5):
        data = content(number)
        peer.upload(library_name(Path("net.so"), hashlib.sha256(data).hexdigest()), data)
    assert sorted(kept(tmp_path)) == [content(3), content(4)]
    assert len(list(peer.files.root.iterdir())) == 5


def test_the_oldest_go_where_there_is_no_room(tmp_path: Path) -> None:
    limited = ContentStore(tmp_path / "store", limit=4 * len(content(0)))
    peer = Peer(tmp_path / "peer", limited)
    for number in range(7):
        peer.upload(f"{number}.bin", content(number))
        os.utime(peer.files.existing(f"{number}.bin"), ns=(number, number))
    assert sorted(kept(tmp_path)) == [content(number) for number in range(3, 7)]
    peer.upload("large", bytes(5 * len(content(0))))
    assert len(kept(tmp_path)) == 4


def test_a_full_disk_holds_little(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.upload("a", content(1))
    disk = os.statvfs(tmp_path)
    free = type(disk)((*disk[:4], 100, *disk[5:]))  # blocks
    monkeypatch.setattr(os, "statvfs", lambda path: free)
    peer.upload("b", content(2, 100 * disk.f_frsize))
    assert peer.files.read("b") == content(2, 100 * disk.f_frsize)
    assert kept(tmp_path) == [content(1)]


def test_many_small_contents(peer: Peer, tmp_path: Path) -> None:
    for number in range(100):
        peer.upload(str(number), content(number, 100))
    assert len(kept(tmp_path)) == 64


def test_what_others_put_into_the_folder_is_no_content(peer: Peer, tmp_path: Path) -> None:
    data = content(1)
    peer.upload("a", data)
    [entry] = (tmp_path / "store").iterdir()
    (tmp_path / "secret").write_bytes(data)
    entry.unlink()
    entry.symlink_to(tmp_path / "secret")
    (tmp_path / "store" / "strange").write_bytes(b"x")
    assert peer.upload("b", data)
    assert (tmp_path / "secret").read_bytes() == data


# ---- what is written over


@pytest.mark.usefixtures("reuses")
def test_an_upload_is_written_over_the_content_before_the_last(peer: Peer) -> None:
    inodes = []
    for number in range(6):
        peer.upload("a", content(number, (3 + number % 2) * ENDS))
        inodes.append(peer.inode("a"))
        assert peer.files.read("a") == content(number, (3 + number % 2) * ENDS)
    assert inodes[2:] == inodes[:2] * 2
    assert peer.files.listdir(".") == "a"


@pytest.mark.usefixtures("reuses")
def test_a_content_that_no_session_has_is_not_copied(peer: Peer, other: Peer, tmp_path: Path) -> None:
    peer.upload("a", content(1))
    inode = peer.inode("a")
    peer.end()
    assert not other.upload("b", content(1))
    assert other.inode("b") == inode
    assert kept(tmp_path) == [content(1)]


def test_a_content_that_a_session_has_is_copied(peer: Peer, other: Peer) -> None:
    peer.upload("a", content(1))
    assert not other.upload("b", content(1))
    assert other.inode("b") != peer.inode("a")
    with other.files.existing("b").open("r+b") as file:
        file.write(b"x")
    assert peer.files.read("a") == content(1)


@pytest.mark.parametrize("held", ["mapping", "reader", "writer", "name"])
def test_a_file_that_is_in_use_is_not_written_over(
    peer: Peer, other: Peer, tmp_path: Path, held: str
) -> None:
    """Even if its session has removed the file: the library stays mapped."""
    peer.upload("a", content(1))
    path = peer.files.existing("a")
    if held == "name":
        os.link(path, tmp_path / "name")
    with path.open("r+b" if held == "writer" else "rb") as file:
        view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        if held == "mapping":
            file.close()
        elif held != "name":
            view.close()
        peer.end()
        for number in range(2, 6):
            other.upload("a", content(number))
        if held == "mapping":
            assert view[:] == content(1)
        elif held == "name":
            assert (tmp_path / "name").read_bytes() == content(1)
        else:
            assert file.read() == content(1)
        view.close()


def test_a_content_that_changed_is_put_back_and_sent(peer: Peer, other: Peer) -> None:
    data = content(1)
    peer.upload("a", data)
    with peer.files.existing("a").open("r+b") as file:
        file.seek(len(data) // 2)
        file.write(b"changed")
    peer.end()
    assert other.upload("a", data)
    assert other.files.read("a") == data


@pytest.mark.usefixtures("reuses")
def test_a_content_that_another_session_brings_meanwhile(
    peer: Peer, other: Peer, tmp_path: Path, store: ContentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.upload("a", content(1))
    peer.end()
    third = Peer(tmp_path / "third", store)
    digest = hashlib.file_digest

    def slow(file: BinaryIO, name: str) -> Any:
        assert third.upload("a", content(1))  # while it is out of the store
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", slow)
    assert not other.upload("a", content(1))
    assert other.files.read("a") == third.files.read("a") == content(1)
    assert other.inode("a") != third.inode("a")
    assert kept(tmp_path) == [content(1)]


def test_where_the_file_system_cannot_tell_nothing_is_written_over(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "file_is_ours", lambda fd: False)
    seen = []
    with (peer.files.root / "hold").open("wb"):
        for number in range(5):
            peer.upload("a", content(number))
            seen.append(peer.files.existing("a").open("rb"))  # so that no inode's number is used again
    assert [file.read() for file in seen] == [content(number) for number in range(5)]
    for file in seen:
        file.close()


# ---- all together


class Sessions(RuleBasedStateMachine):
    """Sessions start and end; each has the files that its client uploaded last."""

    NAMES = st.sampled_from(["a", "b", "dir/c", "net-0123456789abcdef.so", "net-fedcba9876543210.so"])
    WHO = st.integers(0, 2)

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.store = ContentStore(self.root / "store", limit=9 * ENDS)
        self.peers: dict[int, Peer] = {}
        self.expected: dict[int, dict[str, bytes]] = defaultdict(dict)
        self.begun = 0

    @initialize()
    def begin(self) -> None:
        for who in range(3):
            self.restart(who)

    @rule(who=WHO)
    def restart(self, who: int) -> None:
        if who in self.peers:
            self.peers[who].end()
        self.begun += 1
        self.peers[who] = Peer(self.root / str(self.begun), self.store)
        self.expected[who] = {}

    @rule(who=WHO, name=NAMES, number=st.integers(0, 4), size=st.sampled_from([10, ENDS, 3 * ENDS]))
    def upload(self, who: int, name: str, number: int, size: int) -> None:
        self.peers[who].upload(name, content(number, size))
        self.expected[who][name] = content(number, size)

    @rule(who=WHO, name=NAMES)
    def remove(self, who: int, name: str) -> None:
        if self.expected[who].pop(name, None) is not None:
            self.peers[who].files.remove(name)

    @rule(who=WHO, name=NAMES)
    def scribble(self, who: int, name: str) -> None:
        """In place, as native code may."""
        if (data := self.expected[who].get(name)) is not None:
            with self.peers[who].files.existing(name).open("r+b") as file:
                file.write(b"scribble")
            self.expected[who][name] = b"scribble" + data[8:]

    @invariant()
    def every_session_has_what_it_uploaded(self) -> None:
        for who, peer in self.peers.items():
            for name, data in self.expected[who].items():
                assert peer.files.read(name) == data
            assert sum(1 for path in peer.files.root.rglob("*") if path.is_file()) == len(self.expected[who])

    @invariant()
    def the_store_keeps_its_limits(self) -> None:
        files = list((self.root / "store").glob("*"))
        assert sum(path.stat().st_size for path in files) <= 9 * ENDS
        labels = [path.name.partition(".")[2] for path in files]
        assert max(map(labels.count, labels), default=0) <= 2

    def teardown(self) -> None:
        shutil.rmtree(self.root)


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_sessions_that_upload_the_same_names_at_the_same_time(tmp_path: Path) -> None:
    """Two stores with separate objects, as in two processes."""
    wrong: list[str] = []

    def work(who: int) -> None:
        for turn in range(25):
            peer = Peer(tmp_path / f"{who}-{turn}", ContentStore(tmp_path / "store"))
            for step in range(4):
                data = content((who * turn + step) % 7)  # some are alike, so that they are fetched
                peer.upload("model.bin", data)
                if peer.files.read("model.bin") != data:
                    wrong.append(f"session {who}-{turn}, upload {step}")
            if turn % 2:
                peer.end()

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    files = list((tmp_path / "store").iterdir())
    assert len(files) <= 2
    assert all(hint(path.read_bytes()) == path.name.partition(".")[0] for path in files)


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """The largest file that a session may write stands for the disk: the same call fails."""
    with (
        Server(limits=Limits(file_bytes=2 << 20)) as server,
        connect(server.url, timeout=SECONDS) as session,
    ):
        session.upload(content(1), "a")
        for _ in range(3):
            with pytest.raises(OSError, match="writing of file 'a'"):
                session.upload(content(2, 20 << 20), "a")
            assert session.download("a") == content(1)
            assert session.listdir() == ["a"]
        session.upload(content(3), "a")
        assert session.download("a") == content(3)
