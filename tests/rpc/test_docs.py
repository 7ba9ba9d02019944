"""The code in the guides to sessions and to servers runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def run_guide(name: str) -> None:
    """The blocks of a guide are one program."""
    guide = DOCS / name
    blocks = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    exec(compile("\n".join(blocks), str(guide), "exec"), {})  # noqa: S102 - our own text


def test_the_guide_to_servers() -> None:
    run_guide("rpc.md")


def test_the_guide_to_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_guide("remote.md")
    assert "mean" in capsys.readouterr().out
    assert (tmp_path / "trace.json").exists()
