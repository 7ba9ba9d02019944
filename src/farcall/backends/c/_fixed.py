"""The kernels that most models need, whose objects an installation brings."""

from __future__ import annotations

from farcall.backends._kernels import Kernels
from farcall.backends.c._depthwise_text import Geometry, Side, depthwise_kernels
from farcall.backends.c._dots_text import dots_kernels
from farcall.backends.c._gemm_text import gemm_kernels
from farcall.backends.c._panels_text import panels_kernels
from farcall.backends.c._sums_text import sums_kernels
from farcall.backends.c._tall_text import tall_kernels
from farcall.backends.c._winograd_text import Tile, transform_kernels

_PRODUCTS = (gemm_kernels, panels_kernels, sums_kernels, dots_kernels, tall_kernels)
_DEPTHWISE = ((3, 1, 7), (3, 1, 8), (3, 2, 7), (5, 1, 7), (5, 2, 7))  # taps, stride, rows of a tile


def fixed_kernels() -> list[Kernels]:
    """Products of float32 matrices, Winograd's transforms, and a MobileNet's depthwise convolutions."""
    sides = [(Side(taps, stride, 1), high) for taps, stride, high in _DEPTHWISE]
    return [
        *(kernels("float", 4) for kernels in _PRODUCTS),
        *(transform_kernels(Tile(outputs)) for outputs in (2, 4)),
        *(depthwise_kernels("float", 4, Geometry(side, side, high)) for side, high in sides),
    ]
