"""The memory that is in use at once, whatever the plan: the lower bound of a plan's size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

import sympy

from farcall.graph.dims import Dim, fold

_MOST = 12  # sums between which the sizes decide; of more, the bound is the largest part of them
_TERMS = 8  # of a size; of one with more, the size is one term

# A size as a sum of ``factor * unit``. A unit is 1 or an expression that is never negative.
Sum: TypeAlias = dict[Dim, int]


def most_alive(buffers: Iterable[tuple[Dim, int, int]]) -> Dim:
    """The most bytes that are alive in one step. A buffer is its size, the first and the last step.

    Sums that another one exceeds for all values of the symbols are left out; of those that are left, the
    result is the largest, an expression ``Max(...)``.
    """
    changes: dict[int, list[tuple[Dim, int]]] = {}
    for size, start, end in buffers:
        for unit, factor in terms(size).items():
            changes.setdefault(start, []).append((unit, factor))
            changes.setdefault(end + 1, []).append((unit, -factor))
    alive: Sum = {}
    peaks: list[Sum] = []
    for step in sorted(changes):
        for unit, factor in changes[step]:
            alive[unit] = alive.get(unit, 0) + factor
        keep(peaks, alive)
    return maximum_of([total(peak) for peak in peaks[:_MOST]])


@lru_cache(maxsize=4096)
def _terms(size: sympy.Expr) -> tuple[tuple[Dim, int], ...]:
    found = [term.as_coeff_Mul() for term in sympy.Add.make_args(_expanded(size))]
    if all(factor.is_Integer and unit.is_integer and unit.is_nonnegative for factor, unit in found):
        return tuple((fold(unit), int(factor)) for factor, unit in found)
    factor, unit = size.as_coeff_Mul()
    whole = factor.is_Integer and factor > 0 and unit.is_integer
    return ((fold(unit), int(factor)),) if whole else ((size, 1),)


def _expanded(size: sympy.Expr) -> sympy.Expr:
    """``3072*s + 3072`` for ``3072*(s + 1)``."""
    count = 1
    for item in sympy.Mul.make_args(size):
        count *= len(sympy.Add.make_args(item))
    return sympy.expand(size, deep=False) if count <= _TERMS else size


def terms(size: Dim) -> Sum:
    """A size, which is not negative, as a sum. It is one unit if parts of it may be negative."""
    return {1: size} if isinstance(size, int) else dict(_terms(size))


def keep(peaks: list[Sum], one: Sum) -> None:
    """Add a sum that none exceeds, and remove those that it exceeds."""
    if any(_exceeds(peak, one) for peak in peaks):
        return
    peaks[:] = [peak for peak in peaks if not _exceeds(one, peak)]
    peaks.append({unit: factor for unit, factor in one.items() if factor})


def _exceeds(one: Sum, other: Sum) -> bool:
    return all(one.get(unit, 0) >= factor for unit, factor in other.items()) and all(
        factor >= 0 or unit in other for unit, factor in one.items()
    )


def total(peak: Sum) -> Dim:
    """The sum as one size."""
    found: Dim = 0
    for unit, factor in peak.items():
        found = found + factor * unit
    return fold(found)


def maximum_of(sums: Sequence[Dim]) -> Dim:
    """The largest of these sizes; 0 without any."""
    if all(isinstance(one, int) for one in sums):
        return max(sums, default=0)
    # Without evaluation, which compares all pairs.
    return sums[0] if len(sums) == 1 else sympy.Max(*sums, evaluate=False)
