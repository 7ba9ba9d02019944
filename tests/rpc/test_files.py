"""Names of files lead into the session's folder and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from farcall.errors import UsageError
from farcall.rpc.files import Workdir

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
]


@pytest.fixture
def files(tmp_path: Path) -> Workdir:
    (tmp_path / "session").mkdir()
    (tmp_path / "secret").write_text("secret")
    return Workdir(tmp_path / "session")


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_out(files: Workdir, name: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    for use in (files.read, files.remove, files.existing, lambda name: files.write(name, b"x")):
        with pytest.raises(UsageError, match="file name"):
            use(name)
    assert sorted(tmp_path.rglob("*")) == before


def test_links_that_lead_out(files: Workdir, tmp_path: Path) -> None:
    (files.root / "folder").symlink_to(tmp_path)
    (files.root / "file").symlink_to(tmp_path / "secret")
    for name in ("folder/secret", "file"):
        for use in (files.read, files.remove, lambda name: files.write(name, b"x")):
            with pytest.raises(UsageError, match="link"):
                use(name)
    assert (tmp_path / "secret").read_text() == "secret"


def test_write_read_list_remove(files: Workdir) -> None:
    files.write("a/b/c.bin", b"\0\1")
    files.write("a/b/c.bin", b"\2")
    files.write("d", b"")
    assert files.read("a/b/c.bin") == b"\2"
    assert (files.listdir("."), files.listdir("a/b")) == ("a,d", "c.bin")
    files.remove("a/b/c.bin")
    with pytest.raises(FileNotFoundError, match="upload it first"):
        files.read("a/b/c.bin")
    with pytest.raises(FileNotFoundError):
        files.listdir("nowhere")
