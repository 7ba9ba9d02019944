"""The results of the original parser of IREE's 2020 signatures, row by row (tests/data/iree_abi)."""

from __future__ import annotations

import json
from typing import Any

from ..tree import ROOT

Row = dict[str, Any]


def rows(section: str) -> list[Row]:
    """The rows of ``tokens``, ``raw``, ``sip`` or ``mangle``."""
    path = ROOT / "tests" / "data" / "iree_abi" / "legacy.json"
    found: list[Row] = json.loads(path.read_text(encoding="utf-8"))[section]
    assert found
    return found
