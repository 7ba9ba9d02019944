"""Connects a server to the next one of a chain. Forwarding is native (native/session/relay/relay.c)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from farcall.errors import PermissionDeniedError, ProtocolError, RemoteError, UsageError
from farcall.rpc.channels import parse_address
from farcall.rpc.shared._hops import Hop
from farcall.rpc.shared._limits import Limits
from farcall.rpc.shared._lines import open_line

if TYPE_CHECKING:
    from farcall.rpc.channels import Connection


def open_hop(hop: Hop, limits: Limits) -> Connection:
    """Connect to the next server; returns the connection after the handshake.

    Raises:
        PermissionDeniedError: this server's limits do not allow that hop.
        RemoteError, UsageError: the next server cannot be reached; the message names the hop.
    """
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
    if not address.kind.may_relay or not named:
        raise PermissionDeniedError(
            f"this server does not go on to {hop.url} (relay={allowed!r}); "
            'start it with relay="any", or with the HOST:PORT words of where sessions may go'
        )
