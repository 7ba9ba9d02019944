"""Views of remote tensors, and copies between any two: what is strided travels as the span that it covers."""

from __future__ import annotations

import math
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeGuard

from farcall import _core
from farcall._core import Tensor

if TYPE_CHECKING:
    import numpy as np

_REMOTE = 128  # device types from here on are behind a session


def is_remote(x: object) -> bool:
    """Whether ``x`` is a tensor on another machine."""
    return isinstance(x, Tensor) and x.device.type >= _REMOTE


def view(tensor: Tensor, index: Any) -> Tensor:
    """Part of a remote tensor, by numpy's basic indexing; it shares the memory.

    Raises:
        ValueError: ``tensor`` is not remote, or its elements are no whole bytes.
        IndexError: the index does not fit, or picks elements one by one.
    """
    if not is_remote(tensor):
        raise ValueError("view takes a tensor of this session")
    strides, offset, shape = _slice(tensor, index)
    return _core.remote_view(tensor, shape, strides, offset * _itemsize(tensor))


def _slice(tensor: Tensor, index: Any) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Strides, offset (both in elements) and shape of a part: numpy indexes a shape that has no memory."""
    import numpy as np

    nowhere = np.lib.stride_tricks.as_strided(
        np.empty(1, "uint8"), tuple(tensor.shape), tensor.strides, writeable=False
    )
    items = index if isinstance(index, tuple) else (index,)
    if not all(_is_int(item) or isinstance(item, slice | type(None) | type(...)) for item in items):
        raise IndexError("a remote tensor is indexed by ints, slices, None and ..., not by lists or arrays")
    if ... not in items:
        items = (*items, ...)
    axes = _axes_of_ints(items, tensor)
    # Ints keep their axis until here, so that no element of the shape that has no memory is read.
    part = nowhere[tuple(slice(i, i + 1 or None) if _is_int(i) else i for i in items)]
    shape = tuple(n for axis, n in enumerate(part.shape) if axis not in axes)
    strides = tuple(s for axis, s in enumerate(part.strides) if axis not in axes)
    return strides, part.ctypes.data - nowhere.ctypes.data, shape


def _is_int(item: object) -> TypeGuard[int]:
    return isinstance(item, Integral) and not isinstance(item, bool)


def _axes_of_ints(items: tuple[Any, ...], tensor: Tensor) -> set[int]:
    """Where the ints of an index stand among the axes of its result, as if they kept theirs.

    Raises:
        IndexError: one is out of bounds; numpy's slices never are.
    """
    skipped = tensor.ndim - sum(item is not None and item is not ... for item in items)
    source, result, axes = 0, 0, set()
    for item in items:
        if item is ...:
            source, result = source + skipped, result + skipped
            continue
        if _is_int(item):
            n = tensor.shape[source] if source < tensor.ndim else 0
            if not -n <= item < n:
                raise IndexError(f"index {item} is out of bounds for axis {source} with size {n}")
            axes.add(result)
        source += item is not None
        result += 1
    return axes


def _itemsize(tensor: Tensor) -> int:
    bits = tensor.dtype.bits * tensor.dtype.lanes
    if bits % 8:
        raise ValueError(
            f"a tensor of {tensor.dtype} has elements that are no whole bytes; it cannot be viewed in part"
        )
    return bits // 8


def _span(tensor: Tensor) -> tuple[Tensor, int]:
    """The memory from the first to the last element of a strided tensor, in one dim; and where it begins."""
    reach = [(n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True)]
    low = sum(r for r in reach if r < 0)
    high = sum(r for r in reach if r > 0)
    return _core.remote_view(tensor, (high - low + 1,), (1,), low * _itemsize(tensor)), -low


def _strided(span: np.ndarray[Any, Any], begin: int, like: Tensor) -> np.ndarray[Any, Any]:
    import numpy as np

    strides = tuple(s * span.itemsize for s in like.strides)
    return np.lib.stride_tricks.as_strided(span[begin:], tuple(like.shape), strides)


def fetch(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A remote tensor as an array here: what ``.numpy()`` does."""
    if tensor.is_contiguous() or not math.prod(tensor.shape):
        return _core.fetch_remote(_packed(tensor)).numpy()
    span, begin = _span(tensor)
    return _strided(_core.fetch_remote(span).numpy(), begin, tensor)


def _packed(tensor: Tensor) -> Tensor:
    """A tensor whose strides say nothing (empty, or dims of one element) without them."""
    if math.prod(tensor.shape):
        return tensor
    return _core.remote_view(tensor, tuple(tensor.shape), (0,) * tensor.ndim, 0)


def copy(source: Any, target: Any) -> None:
    """Copy into a tensor that exists; see :meth:`farcall.rpc.Session.copy`."""
    if not is_remote(source) and not is_remote(target):
        raise ValueError("copy: neither of the tensors is on a session")
    if not is_remote(target):
        _copy_out(source, target)
    elif is_remote(source) and source.is_contiguous() and target.is_contiguous():
        _core.copy_among_remote(source, target)
    elif target.is_contiguous():
        _core.copy_to_remote(target, fetch(source) if is_remote(source) else source)
    else:
        _write_strided(target, fetch(source) if is_remote(source) else source)


def _copy_out(source: Tensor, target: Any) -> None:
    import numpy as np

    if source.is_contiguous():
        _core.copy_from_remote(source, target)
        return
    _check_alike(source, np.from_dlpack(target))
    np.copyto(np.asarray(target), fetch(source))


def _check_alike(there: Tensor, here: np.ndarray[Any, Any]) -> None:
    if here.shape != tuple(there.shape) or _core.dtype(here.dtype) != there.dtype:
        raise ValueError(
            f"copy: {there.dtype}{list(there.shape)} there and {here.dtype}{list(here.shape)} here must agree"
        )


def _write_strided(target: Tensor, source: Any) -> None:
    """What lies between the elements is read, and written back as it was."""
    import numpy as np

    array = np.from_dlpack(source) if not isinstance(source, np.ndarray) else source
    _check_alike(target, array)
    if not array.size:
        return
    span, begin = _span(target)
    memory = _core.fetch_remote(span).numpy()
    _strided(memory, begin, target)[...] = array
    _core.copy_to_remote(span, memory)


_core.set_remote_tensor_hook(fetch)
