"""Connects a server to the next one of a chain. Forwarding is native (native/session/relay/relay.c)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from farcall.errors import PermissionDeniedError, ProtocolError, RemoteError, UsageError
from farcall.rpc.channels import parse_address
from farcall.rpc.shared._hops import Hop
from farcall.rpc.shared._limits import Limits
from farcall.rpc.shared._lines import open_line

Devices = Mapping[str, str]
"""The devices of a server by the names that its owner gave them: name -> URL."""

if TYPE_CHECKING:
    from farcall.rpc.channels import Connection


def open_hop(hop: Hop, limits: Limits, devices: Devices) -> Connection:
    """Connect to the next server; returns the connection after the handshake.

    Args:
        hop: the next server, or a device of this one.
        limits: of the session.
        devices: this server's devices: name -> URL.

    Raises:
        PermissionDeniedError: this server's limits do not allow that hop, or it has no such device.
        RemoteError, UsageError: the next server cannot be reached; the message names the hop.
    """
    place = _device(hop, devices) or _server(hop, limits.relay)
    try:
        return open_line(place, time.monotonic() + limits.relay_seconds)
    except (RemoteError, UsageError) as error:
        raise type(error)(f"hop 2 ({hop.url}): {error}") from None


def check_devices(devices: Devices) -> Devices:
    """Refuse names that no client could write, and URLs that are not valid.

    Raises:
        UsageError: as it says.
    """
    for name, url in devices.items():
        try:
            parse_address(f"device:{name}")
            address = parse_address(url)
        except UsageError as error:
            raise UsageError(f"device {name!r}: {error}") from None
        if address.scheme == "device":
            raise UsageError(f"device {name!r}: {url} is a name, not where the device is")
    return dict(devices)


def _device(hop: Hop, devices: Devices) -> Hop | None:
    """Where the owner's device is; None if the hop is none. ``hexagon:0`` is the first of the devices."""
    kind, _, name = hop.url.partition(":")
    if kind != "device":
        return None
    _, colon, number = name.rpartition(":")
    places = list(devices.values()) if colon else []
    url = devices.get(name) or (
        places[int(number)] if number.isdigit() and int(number) < len(places) else None
    )
    if url is None:
        raise no_device(name, devices)
    return Hop(url)


def no_device(name: str, devices: Devices) -> PermissionDeniedError:
    """The error for a device that the owner did not name."""
    known = f"its devices: {', '.join(devices)}" if devices else "it has none"
    return PermissionDeniedError(
        f"this server has no device {name!r:.80}; {known} (its owner names them: --device NAME=URL)"
    )


def _server(hop: Hop, allowed: str) -> Hop:
    """The hop itself, if the server's limits allow it."""
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
    return hop
