"""Streams: the queues of a device on which the kernels of a thread run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from farcall._core import Device, get_stream, set_stream


@contextmanager
def use_stream(device: Any, stream: Any) -> Iterator[int]:
    """Set the stream of a device for the kernels that this thread calls in the block.

    Without it, the arguments decide. If they are tensors of torch (or of another framework with DLPack's
    exchange API), a kernel that asks for a device's stream gets that framework's current stream. In other
    calls it gets the default stream.

    Args:
        device: a Device, or a value that converts to one, such as ``"cuda:1"``.
        stream: the handle as an int, None for the default stream, an object with the attribute
            ``cuda_stream`` (torch), or an object with the method ``__cuda_stream__()`` (CUDA's Python
            packages).

    Yields:
        The handle.

    Raises:
        TypeError: ``stream`` has another type.
        ValueError: the device is unknown.
        OverflowError: the handle needs more than 64 bits.
    """
    where, handle = Device(device), _handle_of(stream)
    before = set_stream(where, handle)
    try:
        yield handle
    finally:
        set_stream(where, before)


def _handle_of(stream: Any) -> int:
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__()
        return int(protocol[1])
    if hasattr(stream, "cuda_stream"):
        return int(stream.cuda_stream)
    raise TypeError(
        "use_stream: expected a stream handle (int), None, or an object with cuda_stream or __cuda_stream__, "
        f"got `{type(stream).__name__}`"
    )


__all__ = ["get_stream", "use_stream"]
