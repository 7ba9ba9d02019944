"""The matrices of Winograd's transforms, whose C source is in _winograd_text.py."""

from __future__ import annotations

from functools import cache

import numpy as np

from farcall.backends.c._winograd_text import A, B, Tile

_BLOCK = 1024  # weights that are transformed at once: they stay in a cache, and one thread computes them


@cache
def matrices(tile: Tile) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrices of one axis: of the inputs, of the weights, and of the outputs."""
    points, count = [0.0, 1.0, -1.0] if tile.outputs == 2 else [0.0, A, -A, B, -B], tile.inputs
    left, right = np.zeros((count, count)), np.zeros((count, 3))
    back = np.zeros((tile.outputs, count))
    for row, point in enumerate(points):
        others = [other for other in points if other != point]
        left[row, : count - 1] = np.poly(others)[::-1]
        right[row] = np.array([1, point, point**2]) / np.prod([point - other for other in others])
        back[:, row] = point ** np.arange(tile.outputs)
    left[-1], right[-1, 2], back[-1, -1] = np.poly(points)[::-1], 1, 1
    return left, right, back


def amplification(tile: Tile) -> float:
    """The most by which an error of a tile's terms grows, relative to the sum of ``9 |x| |w|``."""
    left, right, back = map(np.abs, matrices(tile))
    ones = (matrix @ np.ones((matrix.shape[1],) * 2) @ matrix.T for matrix in (left, right))
    return float((back @ np.multiply(*ones) @ back.T).max()) / 9


def transform(tile: Tile, weights: np.ndarray, to: np.ndarray) -> None:
    """Write weights (..., 9), transformed, as (products, ...). They are computed in float64."""
    both = np.kron(matrices(tile)[1], matrices(tile)[1])
    rows, places = weights.reshape(-1, 9), to.reshape(tile.products, -1)
    for first in range(0, len(rows), _BLOCK):
        block = slice(first, first + _BLOCK)
        places[:, block] = both @ rows[block].T.astype(np.float64)
