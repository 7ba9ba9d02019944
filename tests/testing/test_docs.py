"""The code in the guide to extensions runs."""

from __future__ import annotations

from pathlib import Path

from ..programs import run_guide


def test_the_guide_runs(tmp_path: Path) -> None:
    run_guide("extending.md", tmp_path)
