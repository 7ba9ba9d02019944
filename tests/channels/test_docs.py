"""The guide's code runs, block after block, as a reader would type it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from farcall.rpc.channels._address import _EXAMPLES

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "channels.md"


def test_the_guide_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    script = tmp_path / "guide.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_every_channel_is_in_the_table() -> None:
    assert set(re.findall(r"^\| `(\w+):", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)) == set(_EXAMPLES)
