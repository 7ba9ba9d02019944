"""Importing this fills the table of operators."""

from __future__ import annotations

from farcall.backends.c import arithmetic, conv, indexing, matmul, pool, reduction, shaping, softmax
from farcall.backends.c._registry import OPERATORS, operator

__all__ = [
    "OPERATORS",
    "arithmetic",
    "conv",
    "indexing",
    "matmul",
    "operator",
    "pool",
    "reduction",
    "shaping",
    "softmax",
]
