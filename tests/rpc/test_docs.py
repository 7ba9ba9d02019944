"""The code in docs/rpc.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[2] / "docs" / "rpc.md"


def test_the_blocks_of_the_guide_run_in_order() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    scope: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/rpc.md", "exec"), scope)  # noqa: S102 - our own text
