"""What the README and other pages show is what a reader gets who types it, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import BLOCK, check
from .tree import ROOT

DOCS = ROOT / "docs"
NAMES = (
    "commands",
    "devices",
    "launchers",
    "logging",
    "backends",
    "pictures",
    "speed",
    "environment",
    "compatibility",
    "operating",
    "fastrpc",
    "torch_compile",
    "spec/wire",
    "spec/artifact",
)
COLUMNS = 105  # the width of code on the site
PROSE = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PAGES = [ROOT / "README.md", *(DOCS / f"{name}.md" for name in NAMES), *sorted((DOCS / "paths").glob("*.md"))]


# Up to half a minute each, and more on a busy machine.
LONG = (
    "README",
    "backends",
    "boards",
    "commands",
    "devices",
    "fastrpc",
    "kernels",
    "launchers",
    "pytorch",
    "speed",
    "torch_compile",
)


def marked(page: Path) -> object:
    return pytest.param(page, id=page.stem, marks=[pytest.mark.long] if page.stem in LONG else [])


@pytest.mark.parametrize("page", [*map(marked, PAGES)])
def test_a_page_shows_what_its_reader_gets(page: Path, tmp_path: Path) -> None:
    check(page, tmp_path)


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_fits_the_site(page: Path) -> None:
    blocks = [
        block for block in BLOCK.finditer(page.read_text()) if block["language"] not in ("text", "console")
    ]
    assert [line for block in blocks for line in block["text"].splitlines() if len(line) > COLUMNS] == []


def test_the_python_of_every_page_runs() -> None:
    """Here, or in a test that names the page: that of a guide whose blocks form one program, or of errors."""
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    for page in DOCS.rglob("*.md"):
        if page not in PAGES and "\n```python\n" in page.read_text():
            assert re.search(
                rf'run_guide(?:_here)?\("{page.name}"|DOCS / "{page.name}"|"docs/{page.name}"', tests
            ), page
