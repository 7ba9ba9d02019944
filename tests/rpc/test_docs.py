"""The code in the guides to sessions and to servers runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..programs import run_guide_here


def test_the_guide_to_servers(capsys: pytest.CaptureFixture[str]) -> None:
    run_guide_here("rpc.md")
    assert "\ndsp0 [0. 2. 4.]\n" in capsys.readouterr().out


def test_the_guide_to_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run_guide_here("remote.md")
    printed = capsys.readouterr().out
    for shown in ("mean", "\nfan at 1200 rpm\n", "that it printed:\n    index 4096 is out of range\n"):
        assert shown in printed
    assert (tmp_path / "trace.json").exists()
