"""The notebooks of examples/ run from their first cell to their last."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from .tree import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))


@pytest.mark.filterwarnings("default")  # of the kernel's packages
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells raise nothing, and show the same kinds of output as the file does."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    shown = nbformat.read(file, as_version=4)
    run = nbformat.from_dict(shown)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(run, timeout=300, kernel_name="python3", resources=resources).execute()
    assert [kinds(cell) for cell in run.cells] == [kinds(cell) for cell in shown.cells]


def kinds(cell: dict[str, object]) -> list[str]:
    """The kinds of a cell's outputs: streams, or the richest form of a result."""
    found: set[str] = set()
    for output in cell.get("outputs", ()):  # type: ignore[attr-defined]
        found.update(output.get("data", {output.get("name", "")}))
    return sorted(found)
