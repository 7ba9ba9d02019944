"""Dims of a tensor parameter: fixed, named, expressions over names, or any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import lru_cache

from farcall.abi.leaves import DYNAMIC
from farcall.ffi import _dims


@lru_cache(maxsize=4096)
def is_symbol(dim: int | str) -> bool:
    """Whether a dim is a name, which a call binds to a size. Text that is no expression is a name too."""
    if not isinstance(dim, str) or dim == DYNAMIC:
        return False
    if dim.isidentifier():
        return True
    try:
        _dims.names(dim)
    except ValueError:
        return True
    return False


def is_expression(dim: int | str) -> bool:
    """Whether a dim follows from names: ``2*n``."""
    return isinstance(dim, str) and dim != DYNAMIC and not is_symbol(dim)


def symbols(shape: Iterable[int | str] | None) -> list[str]:
    """The names in the dims, each once, in order."""
    found: dict[str, None] = {}
    for dim in shape or ():
        if is_symbol(dim):
            found[str(dim)] = None
        elif is_expression(dim):
            found.update(dict.fromkeys(sorted(_dims.names(str(dim)))))
    return list(found)


def known_text(shape: Iterable[int | str] | None, known: Mapping[str, int]) -> str:
    """The names in the dims whose sizes are known, for a message: `` with batch=4, n=7``; or nothing."""
    sizes = ", ".join(f"{name}={known[name]}" for name in symbols(shape) if name in known)
    return f" with {sizes}" if sizes else ""


def fits(shape: Sequence[int | str] | None, sizes: Sequence[int], known: MutableMapping[str, int]) -> bool:
    """Whether a tensor has these dims. Names that are not yet known get their sizes; expressions hold any."""
    return shape is None or (len(shape) == len(sizes) and first_misfit(shape, sizes, known) is None)


def first_misfit(
    shape: Sequence[int | str], sizes: Sequence[int], known: MutableMapping[str, int]
) -> tuple[int, int, str] | None:
    """The first axis of another size than its dim: axis, the size that it must have, the name that says so.

    The ranks are equal. Names that are not yet known get their sizes.
    """
    for axis, (dim, size) in enumerate(zip(shape, sizes, strict=True)):
        name = str(dim) if is_symbol(dim) else ""
        wanted = known.setdefault(name, size) if name else dim
        if isinstance(wanted, int) and wanted != size:
            return axis, wanted, name
    return None


def size_of(dim: int | str, known: Mapping[str, int]) -> int | None:
    """The size of a dim; None where the known names do not say.

    Raises:
        ValueError: it comes out negative, or divides by zero.
    """
    if isinstance(dim, int):
        return dim
    if not is_expression(dim):
        return known.get(dim)
    if not _dims.names(dim) <= known.keys():
        return None
    size = int(_dims.evaluate(dim, known))
    if size < 0:
        raise ValueError(f"the dim {dim} comes out as {size}")
    return size
