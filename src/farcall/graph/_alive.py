"""The memory that is in use at once, whatever the plan: the lower bound of a plan's size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sympy

from farcall.graph.dims import Dim, fold

_MOST = 12  # sums between which the sizes decide; of more, the bound is the largest part of them

_Sum = dict[Dim, int]  # what is alive in a step: each size without its factor -> the sum of the factors


def most_alive(buffers: Iterable[tuple[Dim, int, int]]) -> Dim:
    """The most bytes that are alive in one step. A buffer is its size, the first and the last step.

    Sums that another one exceeds for all values of the symbols are left out; of those that are left, the
    result is the largest, an expression ``Max(...)``.
    """
    changes: dict[int, list[tuple[Dim, int]]] = {}
    for size, start, end in buffers:
        key, factor = _parts(size)
        changes.setdefault(start, []).append((key, factor))
        changes.setdefault(end + 1, []).append((key, -factor))
    alive: _Sum = {}
    peaks: list[_Sum] = []
    for step in sorted(changes):
        for key, factor in changes[step]:
            alive[key] = alive.get(key, 0) + factor
        _keep(peaks, alive)
    return maximum_of([total(peak) for peak in peaks[:_MOST]])


def largest(sums: Iterable[_Sum]) -> Dim | None:
    """The largest of these sums of ``factor * size``; None: too many of them may be it."""
    peaks: list[_Sum] = []
    for one in sums:
        _keep(peaks, one)
    return None if len(peaks) > _MOST else maximum_of([total(peak) for peak in peaks])


def _parts(size: Dim) -> tuple[Dim, int]:
    """A size without its integer factor, and the factor."""
    if isinstance(size, int):
        return 1, size
    factor, key = size.as_coeff_Mul()
    return (fold(key), int(factor)) if factor.is_Integer and factor > 0 else (size, 1)


def _keep(peaks: list[_Sum], alive: _Sum) -> None:
    """Add a sum that none exceeds, and remove those that it exceeds."""
    if any(_exceeds(peak, alive) for peak in peaks):
        return
    peaks[:] = [peak for peak in peaks if not _exceeds(alive, peak)]
    peaks.append({key: factor for key, factor in alive.items() if factor})


def _exceeds(one: _Sum, other: _Sum) -> bool:
    return all(one.get(key, 0) >= factor for key, factor in other.items())


def total(peak: _Sum) -> Dim:
    """The sum as one size."""
    found: Dim = 0
    for key, factor in peak.items():
        found = found + factor * key
    return fold(found)


def maximum_of(sums: Sequence[Dim]) -> Dim:
    """The largest of these sizes; 0 without any."""
    if all(isinstance(one, int) for one in sums):
        return max(sums, default=0)
    # Without evaluation, which compares all pairs.
    return sums[0] if len(sums) == 1 else sympy.Max(*sums, evaluate=False)
