"""Views of remote tensors, and copies from and to them.

A strided tensor travels as runs of adjacent elements, many in one round trip, or as the whole span that it
covers.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from farcall import _core
from farcall._core import Tensor
from farcall._extras import import_numpy

if TYPE_CHECKING:
    import numpy as np

RUNS_MAX = 16384  # runs of less than _RUN_LARGE bytes that one write sends at most
_RUN_LARGE = 256
_RUN_COSTS = 1024  # the overhead of a run, as the number of bytes that travel in the same time


def is_remote(x: object) -> bool:
    """Whether ``x`` is a tensor on another machine."""
    return isinstance(x, Tensor) and x.device.dlpack_device_type() >= _core.REMOTE_STEP


def view(tensor: Tensor, index: Any) -> Tensor:
    """Part of a remote tensor, by numpy's basic indexing; it shares the memory.

    Raises:
        ValueError: ``tensor`` is not remote, or its elements are not whole bytes.
        IndexError: the index does not fit, or picks elements one by one.
    """
    if not is_remote(tensor):
        raise ValueError("view takes a tensor of this session")
    strides, offset, shape = _slice(tensor, index)
    return _core.remote_view(tensor, shape, strides, offset * _itemsize(tensor))


def _slice(tensor: Tensor, index: Any) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Strides, offset (both in elements) and shape of a part: numpy indexes a shape that has no memory."""
    np = import_numpy("a view of a tensor")
    nowhere = np.lib.stride_tricks.as_strided(
        np.empty(1, "uint8"), tuple(tensor.shape), tensor.strides, writeable=False
    )
    items = index if isinstance(index, tuple) else (index,)
    if not all(_is_int(item) or isinstance(item, slice | type(None) | type(...)) for item in items):
        raise IndexError("a remote tensor is indexed by ints, slices, None and ..., not by lists or arrays")
    if ... not in items:
        items = (*items, ...)
    axes = _axes_of_ints(items, tensor)
    # Ints become slices, which keep their axis: numpy would read an element, but this array has no memory.
    part = nowhere[tuple(slice(i, i + 1 or None) if _is_int(i) else i for i in items)]
    shape = tuple(n for axis, n in enumerate(part.shape) if axis not in axes)
    strides = tuple(s for axis, s in enumerate(part.strides) if axis not in axes)
    return strides, part.ctypes.data - nowhere.ctypes.data, shape


def _is_int(item: object) -> TypeGuard[int]:
    return isinstance(item, Integral) and not isinstance(item, bool)


def _axes_of_ints(items: tuple[Any, ...], tensor: Tensor) -> set[int]:
    """The positions of an index's ints among the axes of its result, counted as if ints kept their axis.

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


class _Layout(NamedTuple):
    """How the elements of a strided tensor lie in memory: runs of neighbours, with gaps between."""

    flips: tuple[slice, ...]  # turns axes whose stride is negative
    order: tuple[int, ...]  # the axes, the longest stride first
    outer: tuple[int, ...]  # those axes that count runs
    steps: tuple[int, ...]  # absolute strides, in elements
    begin: int  # offset of the first run from the tensor's data pointer, in elements
    run: int  # elements of one run
    span: int  # elements from the first run's beginning to the last one's end

    @classmethod
    def of(cls, tensor: Tensor) -> _Layout:
        """The layout of a tensor that is not empty."""
        shape, strides = tensor.shape, tensor.strides
        steps = tuple(map(abs, strides))
        order = sorted(range(tensor.ndim), key=lambda axis: -steps[axis] if shape[axis] > 1 else 0)
        outer, run = [*order], 1
        while outer and (shape[outer[-1]] == 1 or steps[outer[-1]] == run):
            run *= shape[outer.pop()]
        return cls(
            tuple(slice(None, None, -1 if s < 0 else 1) for s in strides),
            tuple(order),
            tuple(outer),
            steps,
            sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0),
            run,
            sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + 1,
        )

    def offsets(self, tensor: Tensor) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The runs' offsets from the first run, in bytes."""
        import numpy as np

        found = np.zeros(1, np.int64)
        for axis in self.outer:
            found = np.add.outer(found, np.arange(tensor.shape[axis]) * self.steps[axis]).ravel()
        return found * _itemsize(tensor)

    def in_memory(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A view of an array of the tensor's shape, with axes in the order of the tensor's memory."""
        return array[self.flips].transpose(self.order)

    def part(self, tensor: Tensor, elements: int) -> Tensor:
        """The first ``elements`` elements of the tensor's memory, from the first run on."""
        return _core.remote_view(tensor, (elements,), (1,), self.begin * _itemsize(tensor))


def fetch(tensor: Tensor) -> Tensor | np.ndarray[Any, Any]:
    """Copy a remote tensor to this process; ``.numpy()`` and ``.to("cpu")`` call this. A strided one becomes
    a numpy array."""
    if tensor.is_contiguous() or not math.prod(tensor.shape):
        return _core.fetch_remote(_packed(tensor))
    import_numpy("a copy of a strided tensor")
    layout, count = _Layout.of(tensor), math.prod(tensor.shape)
    runs, itemsize = count // layout.run, _itemsize(tensor)
    if count * itemsize + runs * _RUN_COSTS < layout.span * itemsize:
        return _fetch_runs(tensor, layout)
    return _strided(_core.fetch_remote(layout.part(tensor, layout.span)).numpy(), tensor, layout)


def _strided(span: np.ndarray[Any, Any], like: Tensor, layout: _Layout) -> np.ndarray[Any, Any]:
    import numpy as np

    strides = tuple(s * span.itemsize for s in like.strides)
    return np.lib.stride_tricks.as_strided(span[-layout.begin :], tuple(like.shape), strides)


def _fetch_runs(tensor: Tensor, layout: _Layout) -> np.ndarray[Any, Any]:
    import numpy as np

    memory = _core.empty((math.prod(tensor.shape),), tensor.dtype)
    _core.copy_runs(layout.part(tensor, layout.run), layout.offsets(tensor), memory, False)
    ordered = memory.numpy().reshape([tensor.shape[axis] for axis in layout.order])
    return ordered.transpose(np.argsort(layout.order))[layout.flips]


def _packed(tensor: Tensor) -> Tensor:
    """Without its strides, if the tensor is empty: they have no meaning then."""
    if math.prod(tensor.shape):
        return tensor
    return _core.remote_view(tensor, tuple(tensor.shape), (0,) * tensor.ndim, 0)


def copy(source: Any, target: Any) -> None:
    """Copy into an existing tensor; see :meth:`farcall.rpc.Session.copy`."""
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
    if isinstance(target, Tensor) and target.is_contiguous() and source.is_contiguous():
        _core.copy_from_remote(source, target)
        return
    np = import_numpy("a copy between tensors that are not both row-major Tensors")
    packed = source.dtype.bits * source.dtype.lanes % 8 != 0
    # jax's capsules do not tell that they are read-only.
    if type(target).__module__.partition(".")[0] in ("jax", "jaxlib"):
        raise ValueError("copy: the local target is read-only, as all arrays of jax; take source.numpy()")
    if not isinstance(target, np.ndarray):
        target = _core.from_dlpack(target)
        if packed or source.dtype.lanes > 1:  # numpy has no such types
            _core.copy_from_remote(source, target)
            return
        target = target.numpy()
    if not target.flags.writeable:
        raise ValueError("copy: the local target is read-only")
    if target.flags.c_contiguous and source.is_contiguous() and not packed:
        _core.copy_from_remote(source, target)
    else:
        _check_alike(source, target)
        np.copyto(target, np.asarray(fetch(source)))


def _check_alike(there: Tensor, here: np.ndarray[Any, Any]) -> None:
    if here.shape != tuple(there.shape) or _core.dtype(here.dtype) != there.dtype:
        raise ValueError(
            f"copy: {there.dtype}{list(there.shape)} there and {here.dtype}{list(here.shape)} here must agree"
        )


def _write_strided(target: Tensor, source: Any) -> None:
    """Write the runs of a strided target, and not the bytes between them.

    If the runs are many and small, their span is read, changed and written back instead: what others write to
    it meanwhile is lost.
    """
    np = import_numpy("a copy into a strided tensor")
    array = source if isinstance(source, np.ndarray) else _core.from_dlpack(source).numpy()
    _check_alike(target, array)
    layout, itemsize = _Layout.of(target), _itemsize(target)
    if array.size // layout.run <= RUNS_MAX or layout.run * itemsize >= _RUN_LARGE:
        ordered = np.ascontiguousarray(layout.in_memory(array))
        _core.copy_runs(layout.part(target, layout.run), layout.offsets(target), ordered, True)
        return
    span = layout.part(target, layout.span)
    memory = _core.fetch_remote(span).numpy()
    _strided(memory, target, layout)[...] = array
    _core.copy_to_remote(span, memory)


_core.set_remote_tensor_hook(fetch)
