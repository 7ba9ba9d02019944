"""The makers of nodes, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .building import Builder, Skip

Maker = Callable[[Builder], object]
MAKERS: list[Maker] = []


def maker(weight: int = 1) -> Callable[[Maker], Maker]:
    """Register a maker, which is taken ``weight`` times as often as one without."""

    def register(make: Maker) -> Maker:
        MAKERS.extend([make] * weight)
        return make

    return register


def since(b: Builder, table: dict[str, int]) -> str:
    """One of the operators that the graph's opset has."""
    return str(b.one([op for op, opset in table.items() if opset <= b.opset]))


def axis_of(b: Builder, array: np.ndarray, extra: int = 0) -> int:
    rank = array.ndim + extra
    if not rank:
        raise Skip("no axis")
    return int(b.rng.integers(-rank, rank))


def axes_of(b: Builder, array: np.ndarray) -> list[int]:
    """Some axes, each once, counted from the front or the back."""
    count = int(b.rng.integers(0, array.ndim + 1))
    axes = b.rng.permutation(array.ndim)[:count]
    return [int(axis) - array.ndim if b.chance(0.3) else int(axis) for axis in axes]


def window(b: Builder, array: np.ndarray, taps: list[int], dilate: bool = True) -> dict[str, object]:
    """Random geometry of windows over the last axes of an array."""
    count = len(taps)
    more: dict[str, object] = {"strides": [int(b.one((1, 1, 2, 3))) for _ in taps]}
    if dilate and b.chance(0.3):
        more["dilations"] = [int(b.one((1, 2))) for _ in taps]
    match int(b.rng.integers(0, 5)):
        case 0 | 1:
            more["pads"] = [size // 2 for size in taps] * 2
        case 2:
            more["pads"] = [int(b.rng.integers(0, size)) for size in taps * 2]
        case 3 if "dilations" not in more:
            more["auto_pad"] = b.one(("SAME_UPPER", "SAME_LOWER", "VALID"))
    extent = [(size - 1) * d + 1 for size, d in zip(taps, more.get("dilations", [1] * count), strict=True)]  # type: ignore[call-overload]
    if any(size < one for size, one in zip(array.shape[-count:], extent, strict=True)) or 0 in array.shape:
        raise Skip("smaller than its window")
    return more


def image(b: Builder, low: int = 3) -> str:
    """An array with channels and one or two axes of places, none of them empty."""
    names = [
        n for n, a in b.values.items() if a.dtype == b.dtype and low <= a.ndim <= 4 and a.size and n[0] != "k"
    ]
    if names and b.chance(0.8):
        return str(b.one(names))
    sizes = [int(b.one((3, 5, 6, 8, 14, 16))) for _ in range(int(b.one((1, 2, 2, 2))))]
    return b.new((int(b.one((1, 2))), int(b.one((1, 2, 4, 6))), *sizes), constant=False)
