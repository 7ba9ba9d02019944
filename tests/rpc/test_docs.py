"""The code in the guides to sessions and to servers runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..programs import run_guide_here


def test_the_guide_to_servers() -> None:
    run_guide_here("rpc.md")


def test_the_guide_to_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_guide_here("remote.md")
    assert "mean" in capsys.readouterr().out
    assert (tmp_path / "trace.json").exists()
