"""The guide's Python runs, block after block, as a reader would type it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ..conftest import ROOT

GUIDE = ROOT / "docs" / "signatures.md"


def test_the_guide_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 12
    script = tmp_path / "guide.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    shown = [
        line.removeprefix("# ").strip() for block in blocks for line in block.splitlines() if line[:2] == "# "
    ]
    printed = " ".join(done.stdout.split())
    for line in shown:
        for part in line.split("..."):
            assert " ".join(part.split()) in printed, line
