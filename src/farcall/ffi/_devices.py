"""Devices with memory of their own: a driver allocates, releases and copies that memory."""

from __future__ import annotations

from typing import Protocol

from farcall import _core

_CPU = _core.Device("cpu").dlpack_device_type()
_EXISTS = 0

DEVICE_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "warp_size": 2,
    "max_shared_memory_per_block": 3,
    "compute_version": 4,
    "device_name": 5,
    "max_clock_rate": 6,
    "multi_processor_count": 7,
    "max_thread_dimensions": 8,
    "max_registers_per_block": 9,
    "gcn_arch": 10,
    "api_version": 11,
    "driver_version": 12,
    "l2_cache_size_bytes": 13,
    "total_global_memory": 14,
    "available_global_memory": 15,
    "image_pitch_alignment": 16,
}
"""The attributes of a device and their numbers in TVM's ``kDevGetAttr``."""

_NAMES = {number: name for name, number in DEVICE_ATTRIBUTES.items()}


class DeviceMemory(Protocol):
    """The memory of all devices of one kind, which the CPU cannot address.

    ``index`` is the number of the device (the 1 of ``ext_dev:1``). The driver chooses addresses, numbers
    from 1 to 2**63 - 1. Inside an allocation, ``address + offset`` must name the byte at that offset.
    farcall itself never reads or writes at an address. Any thread may call the methods. If a method raises
    an exception, the call that needed it raises that exception.

    :class:`farcall.testing.NullDevice` is an example, and :func:`farcall.testing.check_device` tests the
    contract.
    """

    def attribute(self, index: int, name: str, /) -> int | float | str | None:
        """The value of an attribute: a name of :data:`DEVICE_ATTRIBUTES`, or ``"exist"``.

        ``"exist"`` is 0 or 1, for any index. Amounts of memory are in bytes. None: the device does not know
        the attribute.
        """

    def allocate(self, index: int, nbytes: int, /) -> int:
        """Allocate ``nbytes`` zeroed bytes (possibly 0) on the device ``index``.

        Returns:
            Their address, a multiple of 64.

        Raises:
            MemoryError: the device has not enough free memory.
        """

    def release(self, index: int, address: int, /) -> None:
        """Release the allocation at ``address`` of the device ``index``. farcall calls this once for each."""

    def write(self, index: int, address: int, data: memoryview, /) -> None:
        """Copy ``data`` to ``address`` on the device ``index``. It is borrowed: do not keep it."""

    def read(self, index: int, address: int, out: memoryview, /) -> None:
        """Copy from ``address`` on the device ``index`` into ``out``, which is borrowed: do not keep it."""

    def copy(self, index: int, to: int, source: int, nbytes: int, /) -> None:
        """Copy ``nbytes`` from ``source`` to ``to`` on the device ``index``. The ranges may overlap."""

    def synchronize(self, index: int, /) -> None:
        """Return when the device ``index`` has finished its work."""


class _Numbered:
    """Adapts a driver for the core, which names attributes by number."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self.allocate = memory.allocate
        self.release = memory.release
        self.write = memory.write
        self.read = memory.read
        self.copy = memory.copy
        self.synchronize = memory.synchronize

    def attribute(self, index: int, kind: int) -> int | float | str | None:
        if kind == _EXISTS:
            return int(bool(self._memory.attribute(index, "exist")))
        return self._memory.attribute(index, _NAMES[kind]) if kind in _NAMES else None


def register_device_memory(kind: str, memory: DeviceMemory | None) -> None:
    """Register the driver of a kind of device, for this process and the sessions that it serves.

    Programs can then allocate tensors on the device (``ffi.empty(shape, device="ext_dev:0")``,
    ``session.empty``), and copy them to and from the CPU (``tensor.to("cpu")``,
    ``session.tensor(x, "ext_dev:0")``).

    Args:
        kind: a device type of DLPack, such as ``"ext_dev"`` or ``"hexagon"``.
        memory: the driver, which farcall keeps until the process ends. None removes the kind; existing
            tensors keep their driver.

    Raises:
        ValueError: ``kind`` names no device type, or names the CPU.
        TypeError: ``memory`` lacks a method of :class:`DeviceMemory`.
    """
    device = _core.Device(kind)
    if device.dlpack_device_type() == _CPU:
        raise ValueError(
            "register_device_memory: the CPU's memory needs no driver; name another kind of device"
        )
    _core.set_device_memory(
        device.dlpack_device_type(), None if memory is None else _Numbered(_whole(memory))
    )


def _whole(memory: DeviceMemory) -> DeviceMemory:
    methods = [name for name in vars(DeviceMemory) if not name.startswith("_")]
    missing = [name for name in methods if not callable(getattr(memory, name, None))]
    if missing:
        raise TypeError(
            f"register_device_memory: `{type(memory).__name__}` has no method {', '.join(missing)}; "
            "a driver has all methods of farcall.ffi.DeviceMemory"
        )
    return memory
