"""What the Python stubs of ``farcall idl`` use: a stub is a class whose methods make calls by a transport."""

from __future__ import annotations

import array
from collections.abc import Sequence as Values
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from farcall.errors import StatusError
from farcall.idl._declarations import Method, Parameter
from farcall.idl._library import LibraryTransport
from farcall.idl._types import BUILTIN, STANDARD, Array, DmaHandle, Enum, Scalar, Sequence, Struct, Text
from farcall.idl._values import Call

__all__ = [
    "Array",
    "Call",
    "DmaHandle",
    "Enum",
    "LibraryTransport",
    "Method",
    "Numbers",
    "Parameter",
    "Scalar",
    "Sequence",
    "Struct",
    "Stub",
    "Text",
    "Transport",
    "scalar",
]
__dir__ = __all__.copy

Numbers: TypeAlias = "Values[int] | Values[float] | bytes | bytearray | memoryview | array.array[Any]"
"""The values that a parameter accepts whose type is a sequence of numbers."""

_MEANINGS = {1: "failed", 2: "no memory", 14: "bad parameter", 20: "unsupported"}


def scalar(name: str) -> Scalar:
    """The type of this name in the interface language: ``"unsigned long"``."""
    return BUILTIN.get(name) or STANDARD[name]


class Transport(Protocol):
    """Carries calls to the other side. Each method returns a status; 0 is success."""

    def open(self, uri: str) -> tuple[int, int]:
        """Open the interface that ``uri`` names. Returns a status and a handle."""

    def invoke(self, handle: int, call: Call) -> int:
        """Make ``call`` on an open ``handle``, and fill ``call.outs``. Returns a status."""

    def close(self, handle: int) -> int:
        """Close ``handle``. Returns a status."""


class Stub:
    """One open interface. :meth:`open` makes one; leaving a ``with`` block closes it.

    Attributes:
        URI: names the interface for the transport.
        transport: carries the calls.
        handle: of the open interface.
    """

    URI = ""

    def __init__(self, transport: Transport, handle: int) -> None:
        self.transport = transport
        self.handle = handle

    @classmethod
    def open(cls, transport: Transport, uri: str | None = None) -> Self:
        """Open the interface over a transport.

        Args:
            transport: carries the calls.
            uri: of the interface, such as :attr:`URI` (the default) and ``&_dom=cdsp``.

        Raises:
            StatusError: the other side refused.
        """
        status, handle = transport.open(uri or cls.URI)
        check_status(status, f"open of {uri or cls.URI}")
        return cls(transport, handle)

    def close(self) -> None:
        """Close the interface.

        Raises:
            StatusError: the other side does not know it any more.
        """
        check_status(self.transport.close(self.handle), f"close of {type(self).__name__}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        Stub.close(self)

    def _invoke(self, method: Method, *values: object) -> Any:
        call = Call(method, values)
        check_status(self.transport.invoke(self.handle, call), f"{type(self).__name__}.{method.name}")
        return call.results()


def check_status(status: int, what: str) -> None:
    """Raise the error for a status that is not 0."""
    if status != 0:
        meaning = f" ({_MEANINGS[status]})" if status in _MEANINGS else ""
        log = "the log of the other side may say why"
        raise StatusError(f"{what}: status {status:#x}{meaning}; {log}", status)
