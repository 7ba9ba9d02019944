"""The transport of the vendor's driver library, found by name at run time."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

from farcall.errors import UsageError
from farcall.idl._values import Call

VENDOR_LIBRARY = "libcdsprpc.so"


class _Buffer(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("size", c_size_t))


class _Dma(ctypes.Structure):
    _fields_ = (("fd", c_int32), ("offset", c_uint32))


class Argument(ctypes.Union):
    """``fc_remote_arg`` of ``farcall/fastrpc.h``."""

    _fields_ = (("buffer", _Buffer), ("dma", _Dma), ("handle", c_uint64))


class LibraryTransport:
    """Calls through a library with the functions ``remote_handle64_open``, ``_invoke`` and ``_close``."""

    def __init__(self, name: str = VENDOR_LIBRARY) -> None:
        """Load the library.

        Args:
            name: its file name or path; by default that of the compute DSP's driver.

        Raises:
            UsageError: it cannot be loaded, or lacks a function.
        """
        try:
            library = ctypes.CDLL(name)
            self._open = library.remote_handle64_open
            self._invoke = library.remote_handle64_invoke
            self._close = library.remote_handle64_close
        except (OSError, AttributeError) as error:
            raise UsageError(
                f"{name!r} is not a driver of FastRPC: {error}; use a device that has one, or name its file"
            ) from None
        self._open.argtypes = (c_char_p, POINTER(c_uint64))
        self._invoke.argtypes = (c_uint64, c_uint32, POINTER(Argument))
        self._close.argtypes = (c_uint64,)
        self._open.restype = self._invoke.restype = self._close.restype = c_int

    def open(self, uri: str) -> tuple[int, int]:
        """Open the interface that ``uri`` names. Returns a status and a handle."""
        handle = c_uint64()
        return int(self._open(uri.encode(), handle)), handle.value

    def invoke(self, handle: int, call: Call) -> int:
        """Make ``call`` on an open ``handle``, and fill ``call.outs``. Returns a status."""
        return int(self._invoke(handle, call.scalars, arguments(call)))

    def close(self, handle: int) -> int:
        """Close ``handle``. Returns a status."""
        return int(self._close(handle))


def arguments(call: Call) -> ctypes.Array[Argument]:
    """The argument array of a call. It refers to the call's buffers: keep both."""
    made = (Argument * max(1, len(call.ins) + len(call.outs) + len(call.handles)))()
    for argument, data in zip(made, (*call.ins, *call.outs), strict=False):
        argument.buffer = _Buffer(_address(data), len(data))
    first = len(call.ins) + len(call.outs)
    for index, (descriptor, offset) in enumerate(call.handles):
        made[first + index].dma = _Dma(descriptor, offset)
    return made


def _address(data: bytes | bytearray | memoryview) -> int | None:
    if not len(data):
        return None
    if isinstance(data, bytes):
        return ctypes.cast(c_char_p(data), c_void_p).value
    return ctypes.addressof(ctypes.c_char.from_buffer(data))
