"""What modules, devices and files of one server have in common: its functions by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from farcall.errors import RemoteError

if TYPE_CHECKING:
    from farcall._core import Endpoint, Function

_GET_GLOBAL_FUNC = 9  # packet code


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
        (pointer,) = self.endpoint.request(_GET_GLOBAL_FUNC, f"get_function({name!r})", (name,))
        handle = pointer[1] if pointer is not None else 0  # a null pointer may come as None
        return self.endpoint.function(handle, name) if handle else None

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
