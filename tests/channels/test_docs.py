"""The guide's code runs, block after block, as a reader would type it; its table is complete."""

from __future__ import annotations

import re
from pathlib import Path

from farcall.rpc.channels._schemes import BUILTIN

from ..programs import run_guide
from ..tree import ROOT


def test_the_guide_runs(tmp_path: Path) -> None:
    run_guide("channels.md", tmp_path)


def test_every_channel_is_in_the_table() -> None:
    guide = (ROOT / "docs" / "channels.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+):", guide, re.MULTILINE)) == set(BUILTIN)
