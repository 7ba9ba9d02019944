"""Drivers for a server: a correct one, and others with one fault each. ``register`` is the ``--init``."""

from __future__ import annotations

import mmap
import struct
from typing import Any

import numpy as np

import farcall as fc
from farcall.testing import NullDevice

SOUND = NullDevice(count=2, memory_bytes=32 << 20)


class Dirty(NullDevice):
    """New memory is not zeroed."""

    def allocate(self, index: int, nbytes: int, /) -> int:
        address = super().allocate(index, nbytes)
        if nbytes:
            super().write(index, address, memoryview(b"x"))
        return address


class Flipping(NullDevice):
    """Flips one bit in a large transfer."""

    def write(self, index: int, address: int, data: memoryview, /) -> None:
        changed = bytearray(data)
        if len(changed) > 1 << 20:
            changed[1 << 20] ^= 1
        super().write(index, address, memoryview(changed))


class Aliasing(NullDevice):
    """Returns the same memory for every small allocation."""

    same: int | None = None

    def allocate(self, index: int, nbytes: int, /) -> int:
        if nbytes > 64:
            return super().allocate(index, nbytes)
        if self.same is None:
            self.same = super().allocate(index, 64)
        return self.same

    def release(self, index: int, address: int, /) -> None:
        if address != self.same:
            super().release(index, address)


class Rounding(NullDevice):
    """Writes whole words, and so overwrites adjacent bytes."""

    def write(self, index: int, address: int, data: memoryview, /) -> None:
        padded = bytes(data) + bytes(-len(data) % 4) if len(data) < 64 else bytes(data)
        super().write(index, address, memoryview(padded))


class Starting(NullDevice):
    """Reads from the start of an allocation and ignores the offset."""

    def read(self, index: int, address: int, out: memoryview, /) -> None:
        super().read(index, self._starts[self._at(address)], out)

    def _at(self, address: int) -> int:
        return max(i for i, start in enumerate(self._starts) if start <= address)


class Idle(NullDevice):
    """Copies do nothing."""

    def copy(self, index: int, to: int, source: int, nbytes: int, /) -> None:
        pass


class Endless(NullDevice):
    """Succeeds for allocations that are larger than its memory."""

    def allocate(self, index: int, nbytes: int, /) -> int:
        return super().allocate(index, min(nbytes, 1 << 20))


class Leaking(NullDevice):
    """Never releases memory."""

    def release(self, index: int, address: int, /) -> None:
        pass


class Truncating(NullDevice):
    """Transfers whole words, and drops the bytes behind the last one."""

    def write(self, index: int, address: int, data: memoryview, /) -> None:
        super().write(index, address, data[: data.nbytes // 4 * 4])


class Forgetting(NullDevice):
    """Clears what it reads, as a queue does."""

    def read(self, index: int, address: int, out: memoryview, /) -> None:
        super().read(index, address, out)
        self.write(index, address, memoryview(bytes(out.nbytes)))


class Board(NullDevice):
    """Its memory is shared by all processes of the server, so it outlives a session."""

    def __init__(self, memory_bytes: int) -> None:
        super().__init__(memory_bytes=memory_bytes)
        self._held = mmap.mmap(-1, 8)  # bytes that are allocated
        self._sizes: dict[int, int] = {}

    def _hold(self, nbytes: int) -> None:
        (held,) = struct.unpack("<q", self._held[:])
        self._held[:] = struct.pack("<q", held + nbytes)

    def attribute(self, index: int, name: str, /) -> int | str | None:
        if name == "available_global_memory":
            return self.memory_bytes - int(struct.unpack("<q", self._held[:])[0])
        return super().attribute(index, name)

    def allocate(self, index: int, nbytes: int, /) -> int:
        address = super().allocate(index, nbytes)
        self._sizes[address] = nbytes
        self._hold(nbytes)
        return address

    def release(self, index: int, address: int, /) -> None:
        super().release(index, address)
        self._hold(-self._sizes.pop(address))


class Keeping(Board):
    """Its memory is not given back when a process releases it."""

    def release(self, index: int, address: int, /) -> None:
        pass


class Everywhere(NullDevice):
    """Accepts every device index."""

    def attribute(self, index: int, name: str, /) -> int | str | None:
        return super().attribute(0, name)


class Hung(NullDevice):
    """Fails to synchronize."""

    def synchronize(self, index: int, /) -> None:
        raise TimeoutError("the device does not answer")


FAULTY: dict[str, type[NullDevice]] = {
    "cuda": Dirty,
    "opencl": Flipping,
    "vulkan": Aliasing,
    "metal": Rounding,
    "rocm": Starting,
    "webgpu": Idle,
    "hexagon": Endless,
    "oneapi": Leaking,
    "vpi": Everywhere,
    "maia": Hung,
    "cuda_host": Truncating,
    "rocm_host": Forgetting,
    "trn": Keeping,
}


def _double(x: Any) -> None:
    SOUND.array(x)[...] *= 2


def _made(n: int) -> Any:
    tensor = fc.ffi.empty((n,), "float32", "ext_dev:1")
    SOUND.array(tensor)[:] = np.arange(n)
    return tensor


def register() -> None:
    """The ``--init`` of the server under test."""
    fc.ffi.register_device_memory("ext_dev", SOUND)
    fc.ffi.register_device_memory("cuda_managed", Board(memory_bytes=32 << 20))
    for kind, driver in FAULTY.items():
        fc.ffi.register_device_memory(kind, driver(memory_bytes=32 << 20))
    fc.register_global_func("test.double", _double)
    fc.register_global_func("test.made", _made)
    fc.register_global_func("test.device_of", lambda x: str(x.device))
    fc.register_global_func("test.sum_here", lambda x: float(x.to("cpu").numpy().sum()))
