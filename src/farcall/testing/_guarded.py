"""Tensors whose memory ends where no memory is: code that reads or writes beyond them ends the process."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from farcall import _core

_DLPACK = (1, 0)  # the version of the structures


class DLTensor(ctypes.Structure):
    """The structure of DLPack that describes a tensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


_ALLOCATOR = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(DLTensor),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    ctypes.c_void_p,
)


def guarded(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A row-major copy at the end of its memory. Objects, such as strings, stay where they are."""
    if array.dtype.hasobject:
        return array
    copy: np.ndarray[Any, Any] = _memory(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@contextmanager
def guarded_results() -> Iterator[None]:
    """What this thread allocates for results of functions is at the end of its memory."""
    _set_allocator(_ALLOCATE)
    try:
        yield
    finally:
        _set_allocator(None)


def _set_allocator(allocator: Any) -> None:
    ctypes.CDLL(_core.__file__).TVMFFIEnvSetDLPackManagedTensorAllocator(allocator, 0, None)


def _memory(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """So many bytes, behind which is a page that cannot be read or written."""
    end = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = np.frombuffer(mmap.mmap(-1, end + mmap.PAGESIZE), np.uint8)
    none = 0
    if _libc().mprotect(ctypes.c_void_p(pages.ctypes.data + end), mmap.PAGESIZE, none) != 0:
        raise MemoryError("mprotect failed")
    return pages[end - size : end]


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


_kept: dict[int, tuple[Any, ...]] = {}  # what the tensors of native code are made of, by address


def _allocate(prototype: Any, out: Any, *_: object) -> int:
    like = prototype.contents
    shape = [like.shape[i] for i in range(like.ndim)]
    memory = _memory(-(-math.prod(shape) * like.bits * like.lanes // 8))
    dims = (ctypes.c_int64 * max(like.ndim, 1))(*shape)
    steps = (ctypes.c_int64 * max(like.ndim, 1))(*(math.prod(shape[i + 1 :]) for i in range(like.ndim)))
    managed = _Managed(*_DLPACK, None, _DELETE, 0)
    tensor = managed.tensor
    for name in ("device_type", "device_id", "ndim", "code", "bits", "lanes"):
        setattr(tensor, name, getattr(like, name))
    tensor.data, tensor.shape, tensor.strides = memory.ctypes.data, dims, steps
    _kept[ctypes.addressof(managed)] = (managed, memory, dims, steps)
    out[0] = ctypes.addressof(managed)
    return 0


def _delete(managed: int) -> None:
    _kept.pop(managed)


_ALLOCATE = _ALLOCATOR(_allocate)
_DELETE = _DELETER(_delete)
