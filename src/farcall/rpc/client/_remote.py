"""A server's functions by name, which sessions, modules and devices share."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from farcall import _html
from farcall._core import PACKETS, TYPE_INDICES
from farcall._suggest import did_you_mean
from farcall.errors import ProtocolError, RemoteError

if TYPE_CHECKING:
    from farcall._core import Endpoint, Function
    from farcall.rpc.client._telemetry import Around

T = TypeVar("T")
_GET_GLOBAL_FUNC = PACKETS["get_global_func"]
_POINTER = TYPE_INDICES["pointer"]


class Stats(NamedTuple):
    """Counters of one session, on the client."""

    calls: int  # of functions, including those of pipelines
    round_trips: int  # waits for a reply
    copies: int  # of tensors, in any direction
    copied_in: int  # bytes to the server
    copied_out: int  # bytes from the server
    bytes_in: int  # all bytes received after the handshake
    bytes_out: int  # all bytes sent after the handshake

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        return _html.table("Counters of the session", (), self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """Each counter with its name, as a table shows it."""
        return [(name.replace("_", " "), f"{value:,}") for name, value in self._asdict().items()]


class Remote:
    """A server's functions, each looked up once.

    Attributes:
        around: surrounds the calls of the user's functions: see :mod:`farcall.rpc.client._telemetry`.
    """

    def __init__(self, endpoint: Endpoint, url: str, around: Around | None = None) -> None:
        self.endpoint = endpoint
        self.url = url
        self.around = around
        self._helpers: dict[str, Function | None] = {}

    def find(self, name: str) -> Function | None:
        """The function that the server exports under a name; None when there is none."""
        handle = self.pointer(_GET_GLOBAL_FUNC, f"get_function({name!r})", name)
        return self.endpoint.function(handle, name) if handle else None

    def ask(self, code: int, what: str, *values: Any) -> Any:
        """Send a syscall; returns the one value of the server's answer.

        Raises:
            ProtocolError: the answer has no value, or several.
        """
        answer = self.endpoint.request(code, what, values)
        if len(answer) != 1:
            raise self._astray(what, answer, "one value")
        return answer[0]

    def pointer(self, code: int, what: str, *values: Any) -> int:
        """Send a syscall whose answer is a handle; returns 0 for a null pointer, which may come as None.

        Raises:
            ProtocolError: the answer is not a handle.
        """
        match self.ask(code, what, *values):
            case None:
                return 0
            case (int(tag), int(handle)) if tag == _POINTER:
                return handle
            case other:
                raise self._astray(what, other, "a handle")

    def _astray(self, what: str, answer: object, expected: str) -> ProtocolError:
        return ProtocolError(f"{self.url} answered `{what}` with {answer!r:.80}, expected {expected}")

    def helper(self, name: str) -> Function:
        """One of the server's standard functions, which is looked up once.

        Raises:
            RemoteError: the server has no function of that name.
        """
        function = self.helper_or_none(name)
        if function is None:
            raise RemoteError(f"{self.url} has no function `{name}`, which this needs")
        return function

    def helper_or_none(self, name: str) -> Function | None:
        """The same for a function that a server may lack: None then."""
        if name not in self._helpers:
            self._helpers[name] = self.find(name)
        return self._helpers[name]

    def call(self, name: str, *args: Any) -> Any:
        """Call one of the server's standard functions."""
        return self.helper(name)(*args)

    def call_for(self, kind: type[T], name: str, *args: Any) -> T:
        """Call a standard function whose result is of one type.

        Raises:
            ProtocolError: the result is of another type.
        """
        return self.check(kind, name, self.call(name, *args))

    def check(self, kind: type[T], name: str, result: object) -> T:
        """Return the result of the function ``name`` if it is of this type.

        Raises:
            ProtocolError: it is of another type.
        """
        if not isinstance(result, kind):
            raise self._astray(name, result, kind.__name__)
        return result

    def parse(self, kind: type[T], name: str, text: object) -> T:
        """Decode the JSON result of the function ``name`` if it is of this type.

        Raises:
            ProtocolError: it is not JSON, or of another type.
        """
        try:
            result = json.loads(self.check(str, name, text))
        except (ValueError, RecursionError):
            result = None
        if not isinstance(result, kind):
            raise self._astray(name, text, f"JSON of a {kind.__name__}")
        return result

    def names(self, lister: str, *args: Any) -> list[str]:
        """The names that a function of a farcall server lists."""
        return self.parse(list, lister, self.call(lister, *args))

    def did_you_mean(self, name: str, lister: str, *args: Any) -> str:
        """For an error message: a hint at a similar name; empty if there is none, or no list."""
        with contextlib.suppress(RemoteError):
            return did_you_mean(name, map(str, self.names(lister, *args)))
        return ""
