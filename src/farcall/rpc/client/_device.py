"""Devices of a server: their attributes and streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from farcall._core import PACKETS, REMOTE_STEP, TYPE_INDICES, Device
from farcall.ffi._devices import DEVICE_ATTRIBUTES
from farcall.rpc.client._remote import Remote

_SET_DEVICE, _GET_ATTR, _SYNC = PACKETS["set_device"], PACKETS["get_attr"], PACKETS["stream_sync"]
_CREATE, _FREE = PACKETS["create_stream"], PACKETS["free_stream"]
_SET, _CURRENT = PACKETS["set_stream"], PACKETS["get_current_stream"]
_POINTER = TYPE_INDICES["pointer"]


class RemoteDevice:
    """A device of a server. From :meth:`Session.device`.

    ``exist`` says whether the server has it; the other attributes are None if the device does not know them:
    ``max_threads_per_block``, ``warp_size``, ``max_shared_memory_per_block``, ``compute_version``,
    ``device_name``, ``max_clock_rate``, ``multi_processor_count``, ``max_thread_dimensions``,
    ``max_registers_per_block``, ``gcn_arch``, ``api_version``, ``driver_version``, ``l2_cache_size_bytes``,
    ``total_global_memory``, ``available_global_memory`` (bytes), ``image_pitch_alignment``.

    Attributes:
        device: the device by the server's numbers. A RemoteDevice can be passed to the server's functions.
    """

    def __init__(self, remote: Remote, device: Device) -> None:
        session, kind = divmod(device.dlpack_device_type(), REMOTE_STEP)
        if session and session - 1 != remote.endpoint.slot:
            raise ValueError(f"device {device} belongs to another session, not to the one with {remote.url}")
        self.device = Device(kind, device.index)
        self._remote = remote

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device as remote tensors give it, so that it can be passed to functions of the server."""
        return self.device.dlpack_device_type() + REMOTE_STEP * (
            self._remote.endpoint.slot + 1
        ), self.device.index

    @property
    def exist(self) -> bool:
        """Whether the server has this device."""
        return bool(self._ask(_GET_ATTR, 0))

    @property
    def name(self) -> str | None:
        """The same as ``device_name``."""
        value = self._ask(_GET_ATTR, DEVICE_ATTRIBUTES["device_name"])
        return None if value is None else str(value)

    def __getattr__(self, name: str) -> Any:
        if name not in DEVICE_ATTRIBUTES:
            raise AttributeError(
                f"a device has no attribute {name!r}; it has exist, {', '.join(DEVICE_ATTRIBUTES)}"
            )
        value = self._ask(_GET_ATTR, DEVICE_ATTRIBUTES[name])
        if name == "max_thread_dimensions" and isinstance(value, str):
            return self._remote.parse(list, f"device {self.device}", value)
        return value

    def sync(self, stream: Stream | None = None) -> None:
        """Wait until the device has done all work of a stream; None: of the default stream."""
        self._ask(_SYNC, (_POINTER, stream.handle if stream is not None else 0))

    def set_current(self) -> None:
        """Make it the device on which the server's thread works."""
        self._ask(_SET_DEVICE)

    def stream(self) -> Stream:
        """A new stream; use it in a ``with`` statement, or free it."""
        return Stream(self, self._pointer(_CREATE))

    @property
    def current_stream(self) -> int:
        """The handle of the current stream; 0: the default stream."""
        return self._pointer(_CURRENT)

    def _pointer(self, code: int) -> int:
        return self._remote.pointer(code, f"device {self.device}", self.device)

    def _ask(self, code: int, *values: Any) -> Any:
        return self._remote.ask(code, f"device {self.device}", self.device, *values)

    def __str__(self) -> str:
        return str(self.device)

    def __repr__(self) -> str:
        return f"<device {self.device} of {self._remote.url}>"


class Stream:
    """A stream of a remote device. From :meth:`RemoteDevice.stream`.

    Attributes:
        handle: the server's number for it.
    """

    def __init__(self, device: RemoteDevice, handle: int) -> None:
        self.device = device
        self.handle = handle
        self._freed = False

    @contextmanager
    def use(self) -> Iterator[Stream]:
        """Make this the device's current stream within the block, and the previous one after it."""
        before = self.device.current_stream
        self.device._ask(_SET, (_POINTER, self.handle))
        try:
            yield self
        finally:
            self.device._ask(_SET, (_POINTER, before))

    def sync(self) -> None:
        """Wait until all its work is done."""
        self.device.sync(self)

    def free(self) -> None:
        """Free the stream. Safe to call twice."""
        if not self._freed:
            self._freed = True
            self.device._ask(_FREE, (_POINTER, self.handle))

    def __repr__(self) -> str:
        return f"<stream {self.handle:#x} of {self.device!r}{', freed' if self._freed else ''}>"

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self.free()
