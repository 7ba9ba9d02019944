"""The guide on calling runs, block after block, as a reader would type it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "calling.md"


def test_the_guide_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    script = tmp_path / "calling.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    subprocess.run([sys.executable, "-W", "error", script], check=True)
