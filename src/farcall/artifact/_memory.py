"""Assigns the tensors between regions to a few slots of one workspace, which they share by liveness.

Two tensors share a slot if the second is made after the last use of the first. Sizes may be symbolic, so a
tensor takes a slot only if one of the two sizes is provably the larger for every binding of the symbols:
equal expressions, or one a constant multiple of the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import sympy

from farcall.graph.dims import Dim


@dataclass(frozen=True)
class Buffer:
    """A tensor between regions: its size in bytes, the step that makes it, the last step that reads it."""

    key: Hashable
    size: Dim
    first: int
    last: int


@dataclass
class Slots:
    """The slot of each buffer (by the buffer's key), and the size of each slot in bytes."""

    of: dict[Hashable, int]
    sizes: list[Dim]


def plan_slots(buffers: Sequence[Buffer]) -> Slots:
    """Assign buffers, sorted by ``first``, to slots."""
    slots = Slots({}, [])
    busy: list[tuple[int, int]] = []  # (last step, slot)
    free: list[int] = []
    for buffer in buffers:
        free += [slot for last, slot in busy if last < buffer.first]
        busy = [(last, slot) for last, slot in busy if last >= buffer.first]
        slot = _pick(buffer.size, free, slots.sizes)
        if slot is None:
            slot = len(slots.sizes)
            slots.sizes.append(buffer.size)
        else:
            free.remove(slot)
        slots.of[buffer.key] = slot
        busy.append((buffer.last, slot))
    return slots


def _pick(size: Dim, free: Sequence[int], sizes: list[Dim]) -> int | None:
    """The free slot that wastes the least memory for ``size``; the caller enlarges one that is smaller."""
    best: tuple[float, int, Dim] | None = None
    for slot in free:
        ratio = _ratio(size, sizes[slot])
        if ratio is None:
            continue
        waste = ratio if ratio >= 1 else 1 / ratio
        if best is None or waste < best[0]:
            best = (waste, slot, size if ratio > 1 else sizes[slot])
    if best is None:
        return None
    sizes[best[1]] = best[2]
    return best[1]


def _ratio(size: Dim, other: Dim) -> float | None:
    """``size / other``, if it is the same positive number for every binding of the symbols. Numbers count one
    byte more, since they may be 0."""
    if isinstance(size, int) and isinstance(other, int):
        return (size + 1) / (other + 1)
    if size == other:
        return 1.0
    if isinstance(size, int) or isinstance(other, int):
        return None
    ratio = sympy.cancel(size / other) if size.free_symbols == other.free_symbols else sympy.nan
    return float(ratio) if ratio.is_Rational and ratio > 0 else None
