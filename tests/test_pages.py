"""What the README and other pages show is what a reader gets who types it, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import check
from .tree import ROOT

PAGES = [ROOT / "README.md", ROOT / "docs/logging.md", *sorted((ROOT / "docs/paths").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_reader_gets(page: Path, tmp_path: Path) -> None:
    check(page, tmp_path)
