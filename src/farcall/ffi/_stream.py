"""Streams: on which queue of a device the kernels of a thread put their work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from farcall._core import Device, get_stream, set_stream


@contextmanager
def use_stream(device: Any, stream: Any) -> Iterator[int]:
    """Kernels that this thread calls in the block, and that ask for the device's stream, get this one.

    Without it, a call whose arguments are tensors of torch (or of another framework with DLPack's
    exchange API) gets the stream on which that framework works, for each device that its kernel asks for;
    another call gets the default stream.

    Args:
        device: a Device, or what makes one, such as ``"cuda:1"``.
        stream: the handle as an int, None for the default stream, or an object that has it as ``cuda_stream``
            (torch) or gives it by ``__cuda_stream__()`` (the protocol of CUDA's Python packages).

    Yields:
        The handle.

    Raises:
        TypeError: ``stream`` is none of these.
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
