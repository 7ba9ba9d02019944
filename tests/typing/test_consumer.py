"""The program that type checkers read is valid: its top level runs, and its annotations make Signatures."""

from __future__ import annotations

from farcall.abi import Signature

from . import consumer


def test_the_annotations_make_a_signature() -> None:
    assert str(Signature.from_callable(consumer.score)) == (
        '(tokens: {"ids": int64[n], "mask": bool[n] | None}, image: float32[batch, 1, 8, 8], *, '
        "scale: float64 = 1.0) -> Scores(best: int64, rows: [float32[...], ...])"
    )
