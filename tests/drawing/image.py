"""Writes docs/images/plan.svg, the picture of the README: ``python -m tests.drawing.image``."""

from __future__ import annotations

from tests.tree import ROOT

from .samples import plan

IMAGE = ROOT / "docs" / "images" / "plan.svg"

if __name__ == "__main__":
    IMAGE.write_text(plan().svg(), encoding="utf-8")
