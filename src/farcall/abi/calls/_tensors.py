"""The rule of tensor arguments.

A tensor is passed without a copy if its dtype, dims and device match, it is aligned, and it is row-major or
the parameter accepts strides. Otherwise, a tensor that the function only reads is copied: to row-major
memory of the right byte order, alignment and (by farcall.abi.calls._casts) dtype. A tensor that the
function writes is never copied, and a tensor on another device is never moved.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from farcall import _core
from farcall._extras import import_numpy
from farcall.abi._leaves import ANY_DTYPE, TensorSpec
from farcall.abi.calls._casts import Casting, can_cast, cast_number, is_dtype
from farcall.abi.calls._values import TensorInfo, as_number, numpy_dtype

_COMPLEX = _core.dtype("complex64").code
_MOST_VALUES = 1 << 24


class Later(NamedTuple):
    """A tensor with dims that are expressions, which are checked when all other names have sizes."""

    path: str
    spec: TensorSpec
    info: TensorInfo


class Fault(NamedTuple):
    """The problem of a tensor whose dims are right."""

    got: str
    cure: str


def fault(spec: TensorSpec, info: TensorInfo, casting: Casting) -> Fault | None:
    """The reason why a tensor can neither be passed nor copied, apart from its dims; None: it can."""
    if not is_dtype(info.dtype):
        return Fault(info.text, "native code has no such dtype")
    if not can_cast(info.dtype, target_dtype(spec, info), casting):
        return Fault(info.text, _cast_cure(info, target_dtype(spec, info)))
    if spec.device and _device(spec.device) != info.device:
        return Fault(f"{info.text} on {info.device}", f"move it to {spec.device}")
    if spec.access != "in" and not info.writable:
        return Fault(f"a read-only {info.text}", "it is written in place; pass a writable one")
    if (layout := unfit_layout(spec, info)) is None:
        return None
    if spec.access != "in":
        return Fault(
            f"{info.text}, {layout}", "it is written in place, so no copy is made; pass one that fits"
        )
    if not info.device.startswith("cpu:"):
        return Fault(f"{info.text} on {info.device}, {layout}", "copy it there")
    return None


def target_dtype(spec: TensorSpec, info: TensorInfo) -> str:
    """The dtype that the function gets."""
    return info.dtype if spec.dtype == ANY_DTYPE else spec.dtype


def unfit_layout(spec: TensorSpec, info: TensorInfo) -> str | None:
    """The reason, as text, why the function cannot take this memory; None: it can."""
    if info.dtype != target_dtype(spec, info):
        return "of another dtype"
    if info.swapped:
        return "of another byte order"
    if not info.contiguous and not spec.strided:
        return "not row-major"
    if info.address % (alignment := spec.alignment or natural_alignment(info.dtype)):
        return f"not aligned to {alignment} bytes"
    return None


@lru_cache(maxsize=256)
def natural_alignment(dtype: str) -> int:
    """The alignment of an element in bytes. A complex number has the alignment of its parts."""
    element = _core.dtype(dtype)
    size = element.itemsize // 2 if element.code == _COMPLEX else element.itemsize
    return max(1, size & -size)


def _cast_cure(info: TensorInfo, target: str) -> str:
    return (
        f"convert it to {target}" if can_cast(info.dtype, target, "unsafe") else f"pass an array of {target}"
    )


def plain_array(value: Any, spec: TensorSpec, casting: Casting) -> Any:
    """The numpy array of a number, or of nested lists of numbers, each checked as a single number.

    Raises:
        ValueError, TypeError, OverflowError: a number does not fit, or the value is of another kind.
    """
    np = import_numpy("a number or a list in place of an array")
    if not isinstance(value, list | tuple) and as_number(value) is None:
        raise TypeError("pass an array or a tensor")
    array = np.array(value, dtype=object)
    if array.size > _MOST_VALUES:
        raise ValueError(f"these are more than {_MOST_VALUES} numbers; pass an array")
    if spec.dtype == ANY_DTYPE:
        raise ValueError("any dtype will do, so a number does not say which; pass an array")
    numbers = [_number(item, spec.dtype, casting) for item in array.ravel().tolist()]
    return np.array(numbers, dtype=object).reshape(array.shape).astype(numpy_dtype(spec.dtype))


def _number(item: Any, dtype: str, casting: Casting) -> Any:
    number = as_number(item)
    if number is None:
        raise TypeError("lists for a tensor must hold numbers, and have one length at each level")
    return cast_number(number, dtype, casting)


@lru_cache(maxsize=64)
def _device(text: str) -> str:
    return str(_core.Device(text))
