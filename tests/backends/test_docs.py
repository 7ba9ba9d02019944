"""The documented list of operators equals the backend's table."""

from __future__ import annotations

import re
from pathlib import Path

from farcall.backends.c._families import ALLOCATING, OPERATORS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def test_the_page_lists_every_operator_once() -> None:
    listed = re.findall(r"`((?:[a-z.]+::)?[A-Z]\w+)`", PAGE.read_text())
    own = {name for name in OPERATORS if name.startswith("farcall.")}  # no model has these
    assert sorted(listed) == sorted({*OPERATORS, *ALLOCATING} - own)
