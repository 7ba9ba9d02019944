"""Sessions that go on: what the arguments of kInitServer name, and the line to there.

Forwarding itself is native (native/core/relay.c).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from farcall.errors import PermissionDeniedError, ProtocolError, RemoteError, UsageError
from farcall.rpc.channels import parse_address
from farcall.rpc.limits import Limits

if TYPE_CHECKING:
    from farcall.rpc.channels import Connection

_TVM = "rpc.Connect"  # host, port, key, logging
_OURS = "farcall.rpc.Connect"  # url, key, options
_LOCAL = "rpc.LocalSession"  # the server that is asked
_HERE = ("tcp", "tls", "ws", "wss", "unix")  # never a pipe, which would start a command


class Hop(NamedTuple):
    """The next server of a chain."""

    url: str
    key: str
    taken: int  # values that named it; those behind are for that server


def hop_values(url: str, key: str = "") -> tuple[Any, ...]:
    """A next server as the arguments of kInitServer name it, for :func:`parse_hop`.

    An address that TVM's servers understand is given in their form, so that they may be hops, too.
    """
    address = parse_address(url)
    if address.scheme == "tcp":
        return (_TVM, address.host, address.port, key, False)
    return (_OURS, str(address), key, "{}")


def parse_hop(values: Sequence[Any]) -> Hop | None:
    """Read the arguments of kInitServer: None for a session here.

    Raises:
        ProtocolError: they name no server.
        NotImplementedError: a constructor that is not served.
    """
    match values:
        case [] | ["rpc.LocalSession"]:
            return None
        case ["rpc.Connect", str(host), int(port), str(key), bool() | int(), *_]:
            return Hop(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}", key, 5)
        case ["farcall.rpc.Connect", str(url), str(key), str(), *_]:
            return Hop(url, key, 4)
        case ["rpc.Connect" | "farcall.rpc.Connect", *_]:
            raise ProtocolError(
                f"session constructor {values[0]!r}: expected (host, port, key, logging) or "
                f"(url, key, options), got {len(values) - 1} values that are not these"
            )
    raise NotImplementedError(
        f"session constructor {values[0]!r:.80}: there are {_LOCAL}, {_TVM} and {_OURS}"
    )


def open_hop(hop: Hop, limits: Limits) -> Connection:
    """The line to the next server, behind the handshake.

    Raises:
        PermissionDeniedError: this server does not go there.
        RemoteError: it cannot be reached; the message names the hop.
    """
    from farcall.rpc.connecting import open_line

    _check(hop, limits.relay)
    try:
        return open_line(hop.url, hop.key, time.monotonic() + limits.relay_seconds)
    except RemoteError as error:
        raise type(error)(f"hop 2 ({hop.url}): {error}") from None


def _check(hop: Hop, allowed: str) -> None:
    try:
        address = parse_address(hop.url)
    except UsageError as error:
        raise ProtocolError(f"the next hop: {error}") from None
    place = f"{address.host}:{address.port}" if address.host else address.path
    named = allowed == "any" or (allowed == "loopback" and address.local) or place in allowed.split()
    if address.scheme not in _HERE or not named:
        raise PermissionDeniedError(
            f"this server does not go on to {hop.url} (relay={allowed!r}); "
            'start it with relay="any", or with the HOST:PORT words of where sessions may go'
        )
