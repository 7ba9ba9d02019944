"""The code in the guide to extensions runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..programs import run_guide


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_guide("extending.md", tmp_path)
