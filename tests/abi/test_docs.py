"""The guide's Python runs, block after block, as a reader would type it."""

from __future__ import annotations

from pathlib import Path

from ..programs import blocks_of, run_guide


def test_the_guide_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    printed = " ".join(run_guide("signatures.md", tmp_path).split())
    lines = [line for block in blocks_of("signatures.md") for line in block.splitlines()]
    shown = [line.removeprefix("# ").strip() for line in lines if line[:2] == "# "]
    assert shown
    for line in shown:
        for part in line.split("..."):
            assert " ".join(part.split()) in printed, line
