"""Dims of which some may not be known, and what two sources say of the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from farcall.graph._constraints import MisfitError
from farcall.graph._view import PartialDims
from farcall.graph.dims import Dim


def both(declared: PartialDims | None, found: PartialDims | None, where: str) -> PartialDims | None:
    """Merge two results: if one does not know a dim, the other's is used.

    Raises:
        MisfitError: The two results contradict each other.
    """
    if declared is None or found is None:
        return declared if found is None else found
    if contradict(declared, found):
        raise MisfitError(f"{where}: expected the declared {text(declared)}, got {text(found)}")
    return tuple(b if a is None else a for a, b in zip(declared, found, strict=True))


def contradict(a: PartialDims, b: PartialDims) -> bool:
    """Whether two sources cannot both be right."""
    return len(a) != len(b) or any(
        isinstance(one, int) and isinstance(other, int) and one != other
        for one, other in zip(a, b, strict=True)
    )


def text(dims: PartialDims) -> str:
    """Dims in messages."""
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def is_static(dims: Sequence[Dim | str | None] | None) -> TypeGuard[tuple[int, ...]]:
    """Whether all dims are numbers."""
    return dims is not None and all(isinstance(dim, int) for dim in dims)
