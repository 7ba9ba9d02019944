"""A fake accelerator whose memory the CPU cannot address, to test code for devices without hardware."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from farcall.ffi._addresses import Addresses

if TYPE_CHECKING:
    import numpy as np

    from farcall._core import Tensor

_MIB = 1 << 20


class NullDevice:
    """Devices with separate memory: a driver for :func:`farcall.ffi.register_device_memory`.

    It detects errors that would crash a real device: an access that begins or ends outside an allocation, a
    release of an address that is not allocated, and (by :meth:`check_empty`) memory that was never released.

    ::

        device = NullDevice()
        farcall.ffi.register_device_memory("ext_dev", device)
        x = farcall.from_dlpack(array).to("ext_dev:0")
        device.array(x)[:] *= 2             # as a kernel on the device would do
        assert x.to("cpu").numpy() ...

    Args:
        count: number of devices.
        memory_bytes: of each device.
    """

    def __init__(self, count: int = 1, memory_bytes: int = 64 * _MIB) -> None:
        self.count = count
        self.memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._blocks = Addresses[tuple[int, bytearray]]()  # (index of the device, its bytes)

    # ---- the driver's methods: see farcall.ffi.DeviceMemory

    def attribute(self, index: int, name: str, /) -> int | str | None:
        """The memory of the device ``index``, its name, and whether it exists."""
        exists = 0 <= index < self.count
        if name == "exist" or not exists:
            return int(exists) if name == "exist" else None
        if name == "available_global_memory":
            return self.memory_bytes - self.allocated(index)
        if name == "total_global_memory":
            return self.memory_bytes
        return "null device" if name == "device_name" else None

    def allocate(self, index: int, nbytes: int, /) -> int:
        """Allocate ``nbytes`` zeroed bytes on the device ``index``, at an address that is never reused."""
        with self._lock:
            free = self.memory_bytes - self._allocated(index)
            if nbytes > free:
                raise MemoryError(
                    f"null device {index}: {nbytes} bytes wanted, {free} of {self.memory_bytes} free"
                )
            return self._blocks.add(nbytes, (index, bytearray(nbytes)))

    def release(self, index: int, address: int, /) -> None:
        """Free the block at ``address`` of the device ``index``."""
        with self._lock:
            found = self._blocks.find(address, 0)
            if found is None or found[0][0] != index or found[1]:
                raise ValueError(
                    f"null device {index}: {address:#x} is no allocation; was it released twice?"
                )
            self._blocks.remove(address)

    def write(self, index: int, address: int, data: memoryview, /) -> None:
        """Copy ``data`` from the CPU to ``address`` on the device ``index``."""
        with self._lock:
            self._span(index, address, data.nbytes)[:] = data

    def read(self, index: int, address: int, out: memoryview, /) -> None:
        """Copy from ``address`` on the device ``index`` into ``out``."""
        with self._lock:
            out[:] = self._span(index, address, out.nbytes)

    def copy(self, index: int, to: int, source: int, nbytes: int, /) -> None:
        """Copy ``nbytes`` from ``source`` to ``to`` on the device ``index``."""
        with self._lock:
            self._span(index, to, nbytes)[:] = bytes(self._span(index, source, nbytes))

    def synchronize(self, index: int, /) -> None:
        """Do nothing for any ``index``: each method finishes its work before it returns."""

    # ---- for tests

    def array(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """The memory of a tensor on this device as a numpy array, as a kernel on the device sees it.

        Raises:
            IndexError: the tensor is not inside one allocation.
        """
        import numpy as np

        plain = np.dtype(str(tensor.dtype))
        shape = tuple(tensor.shape)
        with self._lock:
            span = self._span(tensor.device.index, tensor.data_ptr(), tensor.numel() * plain.itemsize)
        return np.frombuffer(span, plain).reshape(shape)

    def allocated(self, index: int = 0) -> int:
        """The number of bytes that are allocated on the device ``index`` now."""
        with self._lock:
            return self._allocated(index)

    def check_empty(self) -> None:
        """Check that all memory was released.

        Raises:
            AssertionError: blocks are left; the message lists them.
        """
        with self._lock:
            left = [
                f"{len(block)} bytes at {start:#x} of device {index}"
                for start, (index, block) in self._blocks.all()
            ]
        assert not left, f"never released: {', '.join(left)}"

    def _allocated(self, index: int) -> int:
        return sum(len(block) for _, (owner, block) in self._blocks.all() if owner == index)

    def _span(self, index: int, address: int, nbytes: int) -> memoryview:
        found = self._blocks.find(address, nbytes)
        if found is None or found[0][0] != index:
            raise IndexError(
                f"null device {index}: {nbytes} bytes at {address:#x} are not inside an allocation"
            )
        (_, block), begin = found
        return memoryview(block)[begin : begin + nbytes]
