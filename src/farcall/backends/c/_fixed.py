"""The kernels that most models need, whose objects an installation brings."""

from __future__ import annotations

from farcall.backends._kernels import Kernels
from farcall.backends.c._dots_text import dots_kernels
from farcall.backends.c._gemm_text import gemm_kernels
from farcall.backends.c._panels_text import panels_kernels
from farcall.backends.c._sums_text import sums_kernels
from farcall.backends.c._tall_text import tall_kernels
from farcall.backends.c._winograd_text import Tile, transform_kernels

_PRODUCTS = (gemm_kernels, panels_kernels, sums_kernels, dots_kernels, tall_kernels)


def fixed_kernels() -> list[Kernels]:
    """Products of float32 matrices, and Winograd's transforms."""
    products = [kernels("float", 4) for kernels in _PRODUCTS]
    return [*products, *(transform_kernels(Tile(outputs)) for outputs in (2, 4))]
