"""Encodes and decodes the servers of a chain in the arguments of kInitServer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from farcall.errors import ProtocolError
from farcall.rpc.channels import parse_address

_TVM = "rpc.Connect"  # host, port, key, logging
_OURS = "farcall.rpc.Connect"  # url, key, options
_LOCAL = "rpc.LocalSession"  # the server that reads this
_HEXAGON = "tvm.contrib.hexagon.create_hexagon_session"  # name, stack, simulator's arguments, receive buffer


class Hop(NamedTuple):
    """A server of a chain."""

    url: str
    key: str = ""
    token: str | None = None


def hop_values(hop: Hop) -> tuple[Any, ...]:
    """The arguments of kInitServer that name a next server; :func:`parse_hop` reads them.

    An address that TVM's servers understand is written in their form, so that they can be relays, too.
    """
    address = parse_address(hop.url)
    if address.scheme == "tcp" and hop.token is None:
        return (_TVM, address.host, address.port, hop.key, False)
    options = {} if hop.token is None else {"token": hop.token}
    return (_OURS, str(address), hop.key, json.dumps(options))


def parse_hop(values: Sequence[Any]) -> tuple[Hop, int] | None:
    """Read the arguments of kInitServer: the next server, and how many of the values name it (the others are
    for that server). None: the session ends at this server.

    Raises:
        ProtocolError: the arguments name no server.
        NotImplementedError: the constructor is unknown.
    """
    match values:
        case [] | ["rpc.LocalSession"]:
            return None
        case ["rpc.Connect", str(host), int(port), str(key), bool() | int(), *_]:
            return Hop(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}", key), 5
        case ["farcall.rpc.Connect", str(url), str(key), str(options), *_]:
            return Hop(url, key, _token(options)), 4
        case ["tvm.contrib.hexagon.create_hexagon_session", str(), int(), str(), int(), *_]:
            return Hop("device:hexagon:0"), 5  # the sizes are TVM's needs; channels of farcall have none
        case ["rpc.Connect" | "farcall.rpc.Connect", *_]:
            raise ProtocolError(
                f"session constructor {values[0]!r}: expected (host, port, key, logging) or "
                f"(url, key, options), got {len(values) - 1} values that are not these"
            )
    raise NotImplementedError(
        f"session constructor {values[0]!r:.80}: there are {_LOCAL}, {_TVM}, {_OURS} and {_HEXAGON}"
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
