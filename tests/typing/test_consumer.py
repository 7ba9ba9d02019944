"""The program that type checkers read is valid: its top level runs, and its annotations make Signatures."""

from __future__ import annotations

from pathlib import Path

from farcall.abi import Signature

from ..programs import run_guide
from . import consumer


def test_the_annotations_make_a_signature() -> None:
    assert str(Signature.from_callable(consumer.score)) == (
        '(tokens: {"ids": int64[n], "mask": bool[n] | None}, image: float32[batch, 1, 8, 8], *, '
        "scale: float64 = 1.0) -> Scores(best: int64, rows: [float32[...], ...])"
    )


def test_the_guide_runs(tmp_path: Path) -> None:
    assert run_guide("typing.md", tmp_path) == "calculator has no function `ad`; it has `add`\n"
