"""What modules, devices and files of one server have in common: its functions by name."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from farcall._core import PACKETS, TYPE_INDICES
from farcall._suggest import did_you_mean
from farcall.errors import ProtocolError, RemoteError

if TYPE_CHECKING:
    from farcall._core import Endpoint, Function

T = TypeVar("T")
_GET_GLOBAL_FUNC = PACKETS["get_global_func"]
_POINTER = TYPE_INDICES["pointer"]


class Stats(NamedTuple):
    """Counters of one session, from this side."""

    calls: int  # of functions, with those of a pipeline
    round_trips: int  # waits for an answer
    copies: int  # of tensors, in any direction
    copied_in: int  # bytes to the server
    copied_out: int  # bytes from it
    bytes_in: int  # received in all, and
    bytes_out: int  # sent in all, behind the handshake


class Remote:
    """A server's functions, each looked up once."""

    def __init__(self, endpoint: Endpoint, url: str) -> None:
        self.endpoint = endpoint
        self.url = url
        self._helpers: dict[str, Function] = {}

    def find(self, name: str) -> Function | None:
        """The function that the server exports under a name; None when there is none."""
        handle = self.pointer(_GET_GLOBAL_FUNC, f"get_function({name!r})", name)
        return self.endpoint.function(handle, name) if handle else None

    def ask(self, code: int, what: str, *values: Any) -> Any:
        """The one value with which the server answers a syscall.

        Raises:
            ProtocolError: there is none, or there are several.
        """
        answer = self.endpoint.request(code, what, values)
        if len(answer) != 1:
            raise self._astray(what, answer, "one value")
        return answer[0]

    def pointer(self, code: int, what: str, *values: Any) -> int:
        """The same where it is a handle; a null pointer (0) may come as None.

        Raises:
            ProtocolError: it is none.
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
        """One of the server's own functions, which is looked up once.

        Raises:
            RemoteError: it has none of that name.
        """
        function = self._helpers.get(name) or self.find(name)
        if function is None:
            raise RemoteError(f"{self.url} has no function `{name}`, which this needs")
        self._helpers[name] = function
        return function

    def call(self, name: str, *args: Any) -> Any:
        """Call one of the server's own functions."""
        return self.helper(name)(*args)

    def call_for(self, kind: type[T], name: str, *args: Any) -> T:
        """The same for a result of one kind.

        Raises:
            ProtocolError: the server gave another.
        """
        return self.check(kind, name, self.call(name, *args))

    def check(self, kind: type[T], name: str, result: object) -> T:
        """What the function ``name`` gave, if it is of this kind.

        Raises:
            ProtocolError: it is of another.
        """
        if not isinstance(result, kind):
            raise self._astray(name, result, kind.__name__)
        return result

    def parse(self, kind: type[T], name: str, text: object) -> T:
        """The same for what comes as JSON.

        Raises:
            ProtocolError: it is no JSON, or that of another kind.
        """
        try:
            result = json.loads(self.check(str, name, text))
        except (ValueError, RecursionError):
            result = None
        if not isinstance(result, kind):
            raise self._astray(name, text, f"JSON of a {kind.__name__}")
        return result

    def names(self, lister: str, *args: Any) -> list[str]:
        """What a function of a farcall server lists."""
        return self.parse(list, lister, self.call(lister, *args))

    def did_you_mean(self, name: str, lister: str, *args: Any) -> str:
        """For an error: which of those names is meant; empty where none is, or the server lists none."""
        with contextlib.suppress(RemoteError):
            return did_you_mean(name, map(str, self.names(lister, *args)))
        return ""
