"""The Python of docs/rpc.md runs, block after block, as a reader would type it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "rpc.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_guide_runs(block: str, tmp_path: Path) -> None:
    script = tmp_path / "guide.py"
    script.write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
