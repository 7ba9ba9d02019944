"""Copies of tensors in parts, for callers who want to hear of the progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from farcall import _core
from farcall._progress import Phase, Report
from farcall.rpc.client import _views as views

if TYPE_CHECKING:
    from farcall._core import Tensor

_PART_MIN, _PART_MAX = 1 << 20, 64 << 20  # bytes
_PART_SECONDS = 0.2  # parts grow while they take less: a round trip then costs little, and reports come often

_Part = Callable[[int, int], Any]  # part(first element, number of elements)


def copy(source: Any, target: Any, report: Report, clock: Callable[[], float] = time.monotonic) -> None:
    """Copy as :meth:`farcall.rpc.Session.copy` does, and report the phase ``copy``.

    Contiguous tensors travel in parts, and others in one.
    """
    like: Tensor = target if views.is_remote(target) else source
    if not views.is_remote(like) or tuple(source.shape) != tuple(target.shape):
        views.copy(source, target)  # raises the error
    count, bits = math.prod(like.shape), like.dtype.bits * like.dtype.lanes
    words = f"{like.dtype}{list(like.shape)}"
    phase = Phase(report, "copy", count * bits // 8, "bytes", words)
    parts = _parts_of(source), _parts_of(target, is_target=True)
    if None in parts:
        views.copy(source, target)
    else:
        at, size = 0, _PART_MIN
        while at < count:
            begin, n = clock(), min(max(size * 8 // bits, 1), count - at)
            views.copy(*(part(at, n) for part in parts if part is not None))
            at += n
            if at < count:  # the end is reported below
                phase.step(words, n * bits // 8)
            if clock() - begin < _PART_SECONDS:
                size = min(2 * size, _PART_MAX)
    phase.end(words)


def _parts_of(x: Any, *, is_target: bool = False) -> _Part | None:
    """Views of parts of a contiguous tensor; None if it has no such views."""
    if views.is_remote(x):
        size, rest = divmod(x.dtype.bits * x.dtype.lanes, 8)
        contiguous = not rest and x.is_contiguous()
        return (lambda at, n: _core.remote_view(x, (n,), (1,), at * size)) if contiguous else None
    try:
        import numpy as np
    except ImportError:
        return None
    if not isinstance(x, np.ndarray):
        if is_target:  # views.copy() knows which targets it may write to
            return None
        try:
            x = _core.from_dlpack(x).numpy()
        except Exception:  # views.copy() can do without numpy, or raises the error
            return None
    flat = x.reshape(-1) if x.flags.c_contiguous else None
    return None if flat is None else lambda at, n: flat[at : at + n]
