"""The rule of tensor arguments.

A tensor is passed as it is - the same memory - where dtype, dims and device are right, it is aligned, and it
is row-major or the parameter takes strides. Else it is copied, if it is only read: into row-major memory of
the right byte order, alignment and, by farcall.abi.calls._casts, dtype. What is written in place is never
copied; what is on another device is never moved.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from farcall import _core
from farcall.abi._leaves import ANY_DTYPE, TensorSpec
from farcall.abi.calls._casts import Casting, can_cast, cast_number, is_dtype
from farcall.abi.calls._values import TensorInfo, as_number, numpy_dtype

_COMPLEX = _core.dtype("complex64").code
_MOST_VALUES = 1 << 24


class Later(NamedTuple):
    """A tensor with dims that are expressions: compared when all other names have their sizes."""

    path: str
    spec: TensorSpec
    info: TensorInfo


class Fault(NamedTuple):
    """What is wrong with a tensor whose dims are right."""

    got: str
    cure: str


def fault(spec: TensorSpec, info: TensorInfo, casting: Casting) -> Fault | None:
    """Why a tensor can neither be passed nor copied, its dims aside; None: it can."""
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
    """Why the function cannot take this memory, in words; None: it can."""
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
    """Of an element in bytes; a complex number is aligned as its parts are."""
    element = _core.dtype(dtype)
    size = element.itemsize // 2 if element.code == _COMPLEX else element.itemsize
    return max(1, size & -size)


def _cast_cure(info: TensorInfo, target: str) -> str:
    return (
        f"convert it to {target}" if can_cast(info.dtype, target, "unsafe") else f"pass an array of {target}"
    )


def plain_array(value: Any, spec: TensorSpec, casting: Casting) -> Any:
    """numpy's array of a number, or of nested lists of numbers, each judged as a single number is.

    Raises:
        ValueError, TypeError, OverflowError: a number does not fit, or it is none of these.
    """
    import numpy as np

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
        raise TypeError("lists for a tensor are of numbers, and of one length at each level")
    return cast_number(number, dtype, casting)


@lru_cache(maxsize=64)
def _device(text: str) -> str:
    return str(_core.Device(text))
