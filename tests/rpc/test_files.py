"""Names of files lead into the session's folder and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farcall.errors import ArtifactError, UsageError
from farcall.rpc import Limits, Session
from farcall.rpc.server._files import Workdir
from farcall.rpc.server._standard_functions import standard_functions
from farcall.rpc.server._uploads import Uploads
from farcall.rpc.shared._content_names import hint_of

OUTSIDE = [
    "/etc/passwd",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "",
    "  ",
    ".",
    "a\0b",
    "~/x",
    "C:/x",
    "a\\b",
    "x" * 2000,
    "d/" * 32 + "x",
]


def write(files: Workdir, name: str, data: bytes) -> None:
    """Writes a file as the server's upload does."""
    Uploads(files, None).writer()(name, data)


@pytest.fixture
def files(tmp_path: Path) -> Workdir:
    (tmp_path / "session").mkdir()
    (tmp_path / "secret").write_text("secret")
    return Workdir(tmp_path / "session")


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_out(files: Workdir, name: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    for use in (files.read, files.remove, files.existing, lambda name: write(files, name, b"x")):
        with pytest.raises(UsageError, match="file name"):
            use(name)
    assert sorted(tmp_path.rglob("*")) == before


def test_links_that_lead_out(files: Workdir, tmp_path: Path) -> None:
    (files.root / "folder").symlink_to(tmp_path)
    (files.root / "file").symlink_to(tmp_path / "secret")
    for name in ("folder/secret", "file"):
        for use in (files.read, files.remove, lambda name: write(files, name, b"x")):
            with pytest.raises(UsageError, match="link"):
                use(name)
    assert (tmp_path / "secret").read_text() == "secret"


def test_write_read_list_remove(files: Workdir) -> None:
    write(files, "a/b/c.bin", b"\0\1")
    write(files, "a/b/c.bin", b"\2")
    write(files, "d", b"")
    assert files.read("a/b/c.bin") == b"\2"
    assert (files.listdir("."), files.listdir("a/b")) == ("a,d", "c.bin")
    files.remove("a/b/c.bin")
    with pytest.raises(FileNotFoundError, match="upload it first"):
        files.read("a/b/c.bin")
    with pytest.raises(FileNotFoundError):
        files.listdir("nowhere")


def test_a_file_in_pieces_appears_with_the_last(files: Workdir) -> None:
    write = Uploads(files, None).writer()
    write("big", b"old")
    for at in range(0, 10, 3):
        assert files.read("big") == b"old"
        write("big", at, 10, b"0123456789"[at : at + 3])
    assert files.read("big") == b"0123456789"
    assert files.listdir(".") == "big"


@pytest.mark.parametrize(
    "pieces",
    [
        [(3, 10, b"345")],
        [(0, 10, b"012"), (4, 10, b"4")],
        [(0, 10, b"012"), (3, 11, b"3")],
        [(0, 10, b"0123456789"), (3, 10, b"345")],
        [(0, 10, b"012"), (3, 10, b"345"), (3, 10, b"345")],
    ],
    ids=repr,
)
def test_pieces_out_of_order(files: Workdir, pieces: list[tuple[int, int, bytes]]) -> None:
    write = Uploads(files, None).writer()
    write("other", b"other")
    with pytest.raises(UsageError, match="'name': no piece is awaited at byte"):
        for piece in pieces:
            write("name", *piece)
    whole = [data for at, total, data in pieces if (at, len(data)) == (0, total)]
    assert [path.read_bytes() for path in files.root.glob("name")] == whole


def test_uploads_of_two_names_at_a_time(files: Workdir) -> None:
    write = Uploads(files, None).writer()
    for at in range(4):
        write("a", at, 4, b"AAAA"[at : at + 1])
        write("b", at, 4, b"BBBB"[at : at + 1])
    assert (files.read("a"), files.read("b")) == (b"AAAA", b"BBBB")


def test_an_upload_that_begins_anew(files: Workdir) -> None:
    write = Uploads(files, None).writer()
    write("a", 0, 9, b"012345")
    write("a", 0, 2, b"x")
    write("a", 1, 2, b"y")
    assert files.read("a") == b"xy"
    assert files.listdir(".") == "a"


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("a",),
        ("a", 1),
        ("a", 0, b"x"),
        ("a", -1, 5, b"x"),
        ("a", 5, 4, b""),
        ("a", 3, 4, b"xx"),
        ("a", 0.0, 4, b"x"),
    ],
    ids=repr,
)
def test_pieces_that_are_none(files: Workdir, args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="an upload is"):
        Uploads(files, None).writer()(*args)
    assert files.listdir(".") == ""


def test_a_library_comes_back_as_it_is(files: Workdir, kernels: Path) -> None:
    write(files, "kernels.so", kernels.read_bytes())
    write(files, "text.so", b"text")
    download = standard_functions(files.root, Limits())["tvm.rpc.server.download_linked_module"]
    assert download("kernels.so") == kernels.read_bytes()
    with pytest.raises(ArtifactError, match=r"text\.so: no shared library"):
        download("text.so")


def test_errors_do_not_say_where_the_folder_is(session: Session, tmp_path: Path) -> None:
    session.upload(b"\x7fELF" + b"\0" * 500, "broken.so")
    load = session.get_function("tvm.rpc.server.load_module")
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"text")
    attempts: list[tuple[type[Exception], Callable[[], object]]] = [
        (ArtifactError, lambda: load("broken.so")),
        (ArtifactError, lambda: session.load_module(broken)),
        (FileExistsError, lambda: session.upload(b"x", "broken.so/name")),
        (OSError, lambda: session.upload(b"x", "x" * 300)),
        (OSError, lambda: session.download("x" * 300)),
        (OSError, lambda: session.get_function("tvm.rpc.server.workpath")("x" * 300)),
        (OSError, lambda: session.get_function("farcall.rpc.share")("x" * 300, hint_of(0, b"", b""))),
        (
            OSError,
            lambda: session.get_function("farcall.rpc.have")("x" * 300, "0" * 64, hint_of(0, b"", b"")),
        ),
        (
            FileExistsError,
            lambda: session.get_function("farcall.rpc.have")("broken.so/x", "0", hint_of(0, b"", b"")),
        ),
    ]
    for expected, attempt in attempts:
        with pytest.raises(expected, match=r"broken|xxx") as raised:
            attempt()
        assert "/" not in str(raised.value)
