"""Starts Python programs for tests, and runs the code of the guides."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .pages import BLOCK
from .tree import ROOT

WITHOUT_TORCH = Path(__file__).with_name("without_torch")


def hiding_torch() -> dict[str, str]:
    """The environment with torch hidden, because apache-tvm-ffi would import torch, which takes seconds."""
    paths = filter(None, (str(WITHOUT_TORCH), os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def output_of(*arguments: str | Path, seconds: float = 300, **options: object) -> str:
    """The output of ``python ARGUMENTS``, which must succeed.

    Args:
        options: options for ``subprocess.run``.
    """
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(  # type: ignore[call-overload]
        command, capture_output=True, text=True, check=False, timeout=seconds, **options
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return str(done.stdout)


def blocks_of(guide: str) -> list[str]:
    """The Python blocks of ``docs/GUIDE`` (or ``README.md``), in order. Saves its files here."""
    page = ROOT / guide if guide == "README.md" else ROOT / "docs" / guide
    found = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["file"]:
            Path(block["file"]).write_text(block["text"], encoding="utf-8")
        elif block["language"] == "python":
            found.append(block["text"])
    assert found, f"{page} shows no Python"
    return found


def run_guide(guide: str, folder: Path) -> str:
    """The output of a guide whose blocks form one program, unchanged. Warnings are errors."""
    script = folder / f"{Path(guide).stem}_guide.py"
    script.write_text("\n".join(blocks_of(guide)), encoding="utf-8")
    return output_of("-W", "error", script)


def run_guide_here(guide: str) -> None:
    """Run a guide in this process, which has its imports loaded already."""
    exec(compile("\n".join(blocks_of(guide)), guide, "exec"), {"__name__": "guide"})  # noqa: S102 - our own text
