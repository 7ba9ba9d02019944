"""The documents are complete: they list every public name, limit, option, and file of the layout."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

import farcall as fc
from farcall import rpc
from farcall.rpc import Limits, Session, TimingOptions

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names_in(text: str) -> set[str]:
    """The words in back quotes."""
    return set(re.findall(r"`(\w+)`", text))


def section(page: str, title: str) -> str:
    """A section of a page, without its subsections."""
    _, _, rest = (DOCS / page).read_text().partition(f"\n## {title}\n")
    assert rest, f"{page} has no section {title}"
    return rest.partition("\n## ")[0]


def test_every_name_of_the_package_has_its_guide() -> None:
    rows = "\n".join(
        line for line in section("reference.md", "`farcall`").splitlines() if line.startswith("|")
    )
    assert names_in(rows) == set(fc.__all__)


def test_every_limit_has_its_row() -> None:
    rows = re.findall(r"^\| .* \| .* \| (`.*`) \|.*\|$", (DOCS / "rpc.md").read_text(), re.MULTILINE)
    assert names_in(" ".join(rows)) == {field.name for field in dataclasses.fields(Limits)}


def test_what_a_session_has_is_in_its_guide() -> None:
    guide = (DOCS / "remote.md").read_text()
    public = [name for name in vars(Session) if not name.startswith("_")]
    kept_by_itself = {"beat"}  # see _heartbeat.py
    options = [field.name for field in dataclasses.fields(TimingOptions)]
    missing = [
        name for name in (*public, *options, *rpc.Stats._fields) if not re.search(rf"\b{name}\b", guide)
    ]
    assert set(missing) == kept_by_itself


def test_the_house_has_these_files() -> None:
    text = (DOCS / "house.md").read_text()
    files = re.findall(r"`((?:native|src|include)/[\w/.]+)`", text)
    assert len(files) > 25
    for file in files:
        assert (ROOT / file).is_file(), file
    tree = text.partition("## Rooms")[2].partition("A room imports")[0]
    for pattern in re.findall(r"[\w*]+\.(?:c|h|hpp)\b", tree):
        assert any((ROOT / "native").rglob(pattern)) or (ROOT / "include/farcall" / pattern).is_file(), (
            pattern
        )


def test_the_readme_counts_what_the_scoreboard_shows() -> None:
    [(ours, theirs)] = re.findall(
        r"of 8 abuses, .* farcall's stands (\d) and TVM's (\d)", (ROOT / "README.md").read_text()
    )
    rows = re.findall(
        r"^\| \w+ \| .* \| (\w+) \| (\w+) \|$", section("guarantees.md", "The scoreboard"), re.MULTILINE
    )
    rows = [row for row in rows if set(row) <= {"stands", "falls"}]
    assert len(rows) == 8
    assert [sum(column == "stands" for column in side) for side in zip(*rows, strict=True)] == [
        int(ours),
        int(theirs),
    ]
