"""Inspects a Python value for a tensor parameter: dtype, shape, layout and memory, of any framework."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from farcall import _core
from farcall._extras import import_numpy
from farcall.abi._leaves import STRING

_CPU = _core.Device("cpu").dlpack_device_type()
_KINDS = {
    letter: kind
    for letters, kind in (("bhilqn", "int"), ("BHILQN", "uint"), ("efd", "float"))
    for letter in letters
}
"""The dtypes of buffers' elements, by the letters of the struct module, without their bits."""


class TensorInfo(NamedTuple):
    """The properties of a tensor argument, found without a look at its elements."""

    value: Any
    dtype: str
    """farcall's name of the dtype, or numpy's name if DLPack has no such dtype."""
    shape: tuple[int, ...]
    contiguous: bool
    address: int
    """The address of the first element; 0 on other devices, where farcall does not check it."""
    writable: bool
    device: str
    swapped: bool = False
    """Whether the elements have the byte order of other machines."""

    @property
    def text(self) -> str:
        """dtype and dims: ``int64[3, 128]``."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def tensor_info(value: Any) -> TensorInfo | None:
    """The properties of a tensor; None if the value is not a tensor.

    Raises:
        Exception: the error of a framework that refuses to share the tensor.
    """
    if is_numpy(value):
        return _numpy_info(value)
    if isinstance(value, _core.Tensor):
        return _shared_info(value, value)
    if hasattr(value, "__dlpack__") and not isinstance(value, type):
        return _shared_info(value, share(value))
    return None


def strings_info(array: Any) -> TensorInfo:
    """The properties of a numpy array of strings."""
    return TensorInfo(array, STRING, array.shape, True, 0, False, "cpu:0")


def is_numpy(value: Any) -> bool:
    """Whether a value is a numpy array. This does not import numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def exported_array(value: Any, writable: bool) -> Any:
    """A numpy array over the memory of a value with Python's buffer protocol; None: it has no buffer.

    ``__array__`` may make a copy, so a value that has only that can be an argument that is read, not written.
    """
    if isinstance(value, list | tuple | str | bool | int | float | complex | None):
        return None
    if type(value).__module__ == "numpy":  # its single numbers are judged as numbers
        return None
    try:
        import numpy as np
    except ModuleNotFoundError:
        return None if writable else _copied_buffer(value)
    try:
        if hasattr(type(value), "__array__"):
            return None if writable else np.asarray(value)
        return np.asarray(memoryview(value))
    except (TypeError, ValueError, NotImplementedError):  # it has no buffer, or its elements have no dtype
        return None


def _copied_buffer(value: Any) -> _core.Tensor | None:
    """A Tensor with the elements of a buffer; None: it has no buffer, or its elements have no dtype."""
    try:
        view = memoryview(value)
        tensor = _core.empty(view.shape or (), f"{_KINDS[view.format]}{8 * view.itemsize}")
    except (TypeError, KeyError):
        return None
    if view.nbytes:
        memoryview(tensor).cast("B")[:] = view.tobytes()
    return tensor


def share(value: Any) -> _core.Tensor:
    """A Tensor over the memory of any framework's tensor. As in a call, a torch tensor may require grad."""
    return _core.from_dlpack(value.detach() if getattr(value, "requires_grad", False) is True else value)


def _numpy_info(array: Any) -> TensorInfo:
    swapped = not array.dtype.isnative
    plain = array.dtype.newbyteorder("=") if swapped else array.dtype
    try:
        name = str(_core.dtype(plain))
    except (TypeError, ValueError):
        name = str(array.dtype)
    flags = array.flags
    return TensorInfo(
        array,
        name,
        array.shape,
        flags.c_contiguous,
        array.ctypes.data if array.size else 0,
        flags.writeable,
        "cpu:0",
        swapped,
    )


def _shared_info(value: Any, tensor: _core.Tensor) -> TensorInfo:
    on_cpu = tensor.device.dlpack_device_type() == _CPU
    address = tensor.data_ptr() if on_cpu and tensor.numel() else 0
    return TensorInfo(
        value,
        str(tensor.dtype),
        tuple(tensor.shape),
        tensor.is_contiguous(),
        address,
        _is_writable(value),
        str(tensor.device),
    )


def _is_writable(value: Any) -> bool:
    """Whether a tensor is writable. jax's arrays never are; others without numpy's flags do not say."""
    return not type(value).__module__.startswith(("jax", "jaxlib"))


def copy_tensor(info: TensorInfo, dtype: str, alignment: int) -> Any:
    """A row-major copy on the CPU with that dtype: a torch tensor of a torch tensor, else a numpy array.

    Raises:
        Exception: numpy's error if it cannot convert the values.
    """
    np = import_numpy("a copy of an argument, because of its dtype or layout,")

    value = info.value
    to = numpy_dtype(dtype)
    array = value if isinstance(value, np.ndarray) else share(value).numpy()
    if array.dtype.kind == "c" and to.kind != "c":
        array = array.real
    copy = _aligned(array.shape, to, max(alignment, to.itemsize))
    try:
        np.copyto(copy, array, casting="unsafe")
    except TypeError:  # ml_dtypes lacks some casts between its own, such as int4 to uint4
        np.copyto(copy, array.astype(np.float64), casting="unsafe")
    if type(value).__module__.partition(".")[0] != "torch":
        return copy
    return sys.modules["torch"].from_dlpack(_core.from_dlpack(copy))


def _aligned(shape: tuple[int, ...], dtype: Any, alignment: int) -> Any:
    np = import_numpy("aligned memory")
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + size].view(dtype).reshape(shape)


def numpy_dtype(name: str) -> Any:
    """numpy's dtype of that name, or the dtype of ml_dtypes.

    Raises:
        TypeError: neither package has it.
    """
    np = import_numpy("a dtype of numpy")
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        try:
            return np.dtype(getattr(ml_dtypes, name))
        except AttributeError:
            raise TypeError(f"numpy has no dtype {name}") from None


def describe(value: Any) -> str:
    """A short description of a value for an error message, without its elements."""
    try:
        if info := tensor_info(value):
            return info.text
    except Exception as error:
        return unshared(value, error)
    if value is None:
        return "None"
    name = type(value).__name__
    if isinstance(value, bool | int | float | complex):
        return f"{name} {value!r:.40}"
    if isinstance(value, str | bytes):
        text = repr(value[:30])
        return f"{name} {text}{'...' if len(value) > 30 else ''}"
    if isinstance(value, Mapping | Sequence) and not value:
        return f"an empty {name}"
    if isinstance(value, Mapping):
        return f"{name} with the keys {', '.join(repr(key)[:20] for key in list(value)[:6])}"
    if isinstance(value, Sequence):
        return f"{name} of {len(value)} items"
    if type(value).__module__ == "numpy":  # a number of its own types
        return f"{name} {value!s:.40}"
    return f"`{name}`"


def unshared(value: Any, error: Exception) -> str:
    """The description of a tensor that its framework does not share, with the first part of the reason."""
    reason = (str(error).splitlines() or [""])[0]
    return f"a `{type(value).__name__}` that cannot be shared ({reason:.200})"


def as_number(value: Any) -> bool | int | float | complex | None:
    """The number in a value: Python's, numpy's, or a tensor of rank 0; None for other values."""
    if isinstance(value, bool | int | float | complex):
        return value
    item = getattr(value, "item", None)
    if item is None or getattr(value, "shape", None) != ():
        return _from_rank_0(value)
    number = item()
    return number if isinstance(number, bool | int | float | complex) else None


def _from_rank_0(value: Any) -> bool | int | float | complex | None:
    if not isinstance(value, _core.Tensor) or tuple(value.shape) or value.device.dlpack_device_type() != _CPU:
        return None
    return as_number(value.numpy())
