"""The guide on calling runs, block after block, as a reader would type it."""

from __future__ import annotations

from pathlib import Path

from ..programs import run_guide


def test_the_guide_runs(tmp_path: Path) -> None:
    run_guide("calling.md", tmp_path)
