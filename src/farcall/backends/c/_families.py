"""Importing this module fills the table of operators."""

from __future__ import annotations

from farcall.backends.c import (  # noqa: F401 - each registers its operators
    _arg,
    _arithmetic,
    _bits,
    _computed,
    _conv,
    _deform,
    _determinant,
    _einsum,
    _elements,
    _fourier,
    _grid,
    _indexing,
    _loss,
    _marks,
    _matmul,
    _microsoft,
    _ngrams,
    _normalization,
    _packed,
    _pad,
    _pool,
    _qlinear,
    _quantized,
    _range,
    _recurrent,
    _reduction,
    _resize,
    _roi,
    _rotary,
    _scan,
    _selecting,
    _shaping,
    _signal_windows,
    _slices,
    _softmax,
    _suppression,
    _tile,
    _top_k,
    _transposed,
    _triangle,
)
from farcall.backends.c._registry import ALLOCATING, OPERATORS, operator

__all__ = ["ALLOCATING", "OPERATORS", "operator"]
