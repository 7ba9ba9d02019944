"""Launchers of other packages, by entry points in the group `farcall.launchers`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import farcall as fc
from farcall import _plugins
from farcall.errors import UsageError
from farcall.launch import _launchers

from ..terminal import Cli

SOURCE = """
from farcall.launch._launcher import ProcessLauncher

class BoxLauncher(ProcessLauncher):
    folder = {folder!r}

    def words(self, script):
        return ["sh", "-c", script]

seven = 7
"""


@pytest.fixture
def package(tmp_path: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with one launcher that works and two that do not. The folder on its device."""
    folder = run_folder.parent / "box"
    (tmp_path / "acme_box.py").write_text(SOURCE.format(folder=str(folder)))
    about = tmp_path / "acme_box-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme_box\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[farcall.launchers]\nbox = acme_box:BoxLauncher\ngone = acme_gone:X\nseven = acme_box:seven\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    _forget()
    yield folder
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    importlib.invalidate_caches()
    _plugins._found.cache_clear()
    _launchers.load_launcher.cache_clear()


def test_it_copies_the_server_and_starts_it(package: Path, own_server: Path) -> None:
    with fc.launch("box:one", server=own_server) as device:
        assert device.url == "box:one"
        with device.connect() as session:
            assert session.get_function("test.add")(2, 3) == 5
        (copied,) = package.glob("server-*")
        assert copied.read_bytes() == own_server.read_bytes()
    assert list(package.glob("run-*")) == []


@pytest.mark.usefixtures("package")
def test_plugins_show_it(cli: Cli) -> None:
    rows = {row["name"]: row for row in json.loads(cli("plugins", "list", "--json").out)["plugins"]}
    assert (rows["box"]["kind"], rows["box"]["package"], rows["box"]["state"]) == (
        "launcher",
        "acme_box",
        "ok",
    )
    assert "acme_gone" in rows["gone"]["state"]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("gone:x", r"launcher `gone` \(acme_gone:X\) cannot be imported: ModuleNotFoundError"),
        (
            "seven:x",
            r"launcher `seven` \(acme_box:seven\): expected a class of farcall.launch.Launcher, got int",
        ),
        ("bos:x", r"there is no launcher 'bos'; did you mean `box`\?"),
    ],
)
def test_one_that_is_broken_names_its_package(url: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        fc.launch(url)
