"""Importing this fills the table of operators."""

from __future__ import annotations

from farcall.backends.c import _arithmetic as arithmetic
from farcall.backends.c import _conv as conv
from farcall.backends.c import _indexing as indexing
from farcall.backends.c import _matmul as matmul
from farcall.backends.c import _pool as pool
from farcall.backends.c import _reduction as reduction
from farcall.backends.c import _shaping as shaping
from farcall.backends.c import _softmax as softmax
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
