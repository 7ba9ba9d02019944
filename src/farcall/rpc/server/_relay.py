"""Sessions that go on: what the arguments of kInitServer name, and the line to there.

Forwarding itself is native (native/session/relay/relay.c).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from farcall.errors import PermissionDeniedError, ProtocolError, RemoteError, UsageError
from farcall.rpc.channels import parse_address
from farcall.rpc.shared._limits import Limits

if TYPE_CHECKING:
    from farcall.rpc.channels import Connection

_TVM = "rpc.Connect"  # host, port, key, logging
_OURS = "farcall.rpc.Connect"  # url, key, options
_LOCAL = "rpc.LocalSession"  # the server that is asked
_HERE = ("tcp", "tls", "ws", "wss", "unix")  # never a pipe, which would start a command


class Hop(NamedTuple):
    """A server of a chain."""

    url: str
    key: str = ""
    token: str | None = None


def hop_values(hop: Hop) -> tuple[Any, ...]:
    """A next server as the arguments of kInitServer name it, for :func:`parse_hop`.

    An address that TVM's servers understand is given in their form, so that they may be hops, too.
    """
    address = parse_address(hop.url)
    if address.scheme == "tcp" and hop.token is None:
        return (_TVM, address.host, address.port, hop.key, False)
    options = {} if hop.token is None else {"token": hop.token}
    return (_OURS, str(address), hop.key, json.dumps(options))


def parse_hop(values: Sequence[Any]) -> tuple[Hop, int] | None:
    """Read the arguments of kInitServer: the next server, and how many of the values name it (those behind
    are for that server). None: the session is one here.

    Raises:
        ProtocolError: they name no server.
        NotImplementedError: a constructor that is not served.
    """
    match values:
        case [] | ["rpc.LocalSession"]:
            return None
        case ["rpc.Connect", str(host), int(port), str(key), bool() | int(), *_]:
            return Hop(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}", key), 5
        case ["farcall.rpc.Connect", str(url), str(key), str(options), *_]:
            return Hop(url, key, _token(options)), 4
        case ["rpc.Connect" | "farcall.rpc.Connect", *_]:
            raise ProtocolError(
                f"session constructor {values[0]!r}: expected (host, port, key, logging) or "
                f"(url, key, options), got {len(values) - 1} values that are not these"
            )
    raise NotImplementedError(
        f"session constructor {values[0]!r:.80}: there are {_LOCAL}, {_TVM} and {_OURS}"
    )


def _token(options: str) -> str | None:
    try:
        match json.loads(options):
            case {"token": str(token), **others} if not others:
                return token
            case {**others} if not others:
                return None
    except ValueError:
        pass
    raise ProtocolError(
        "session constructor 'farcall.rpc.Connect': its options are JSON, {} or {\"token\": text}"
    )


def open_hop(hop: Hop, limits: Limits) -> Connection:
    """The line to the next server, behind the handshake.

    Raises:
        PermissionDeniedError: this server does not go there.
        RemoteError, UsageError: it cannot be reached; the message names the hop.
    """
    from farcall.rpc.client._connecting import open_line

    _check(hop, limits.relay)
    try:
        return open_line(hop, time.monotonic() + limits.relay_seconds)
    except (RemoteError, UsageError) as error:
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
