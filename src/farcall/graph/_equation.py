"""The equation of an Einsum: a label for each axis of each operand and of the result (numpy's notation)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_TERM = re.compile(r"([A-Za-z]*)(?:(\.\.\.)([A-Za-z]*))?")


@dataclass(frozen=True)
class Equation:
    """Labels: letters, and ``...1``, ``...2`` for the axes of an ellipsis, counted from its end."""

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]


def equation_of(text: str, ranks: Sequence[int]) -> Equation:
    """Read an equation.

    Args:
        text: The attribute ``equation``.
        ranks: The rank of each operand.

    Raises:
        ValueError: The text is no equation for operands of these ranks.
    """
    left, arrow, right = "".join(text.split()).partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"an equation of {len(terms)} operands, and {len(ranks)} are given")
    operands = tuple(_labels(term, rank) for term, rank in zip(terms, ranks, strict=True))
    shared = max((_ellipsis(labels) for labels in operands), key=len)
    count = Counter(label for labels in operands for label in labels)
    if arrow:
        result = _labels(right, len(right.replace("...", "")) + len(shared) * ("..." in right))
    else:  # the labels that stand once, in the order of the alphabet
        result = (*shared, *sorted(label for label in count if count[label] == 1 and label not in shared))
    if len(set(result)) != len(result) or not set(result) <= count.keys():
        raise ValueError(f"the result `{right}` has a label twice, or one that no operand has")
    if not set(shared) <= set(result):
        raise ValueError("the result has no ellipsis")
    return Equation(operands, result)


def _labels(term: str, rank: int) -> tuple[str, ...]:
    found = _TERM.fullmatch(term)
    if found is None:
        raise ValueError(f"`{term}` is no list of letters with at most one ellipsis")
    before, dots, after = found[1], found[2], found[3] or ""
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise ValueError(f"`{term}` does not label {rank} axes")
    return (*before, *(f"...{number}" for number in range(hidden, 0, -1)), *after)


def _ellipsis(labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(label for label in labels if label.startswith("..."))
