"""Connects to a server: opens a channel and does the handshake on it."""

from __future__ import annotations

from farcall._logs import Log
from farcall.errors import (
    ConnectError,
    ConnectionLostError,
    ConnectTimeoutError,
    DeadlineExceededError,
    UsageError,
)
from farcall.rpc.channels import Address, Connection, Tls, dial, parse_address
from farcall.rpc.shared._handshake import ClientHandshake, client_hello
from farcall.rpc.shared._hops import Hop

_CURE = "is `farcall serve` running there?"


def open_line(
    hop: Hop, deadline: float, *, tls: Tls | None = None, session_timeout: float | None = None
) -> Connection:
    """Connect to a server and do the handshake, so that packets may begin.

    Raises:
        UsageError, ConnectError, MissingExtraError: as :func:`farcall.connect`.
    """
    check_token(parse_address(hop.url), hop.token)
    connection = dial(hop.url, deadline, tls=tls)
    try:
        if connection.shakes_hands:
            hello = client_hello(hop.key, hop.token, session_timeout)
            _shake_hands(connection, hello, ClientHandshake(hop.key), deadline)
    except BaseException:
        connection.close()
        raise
    Log("rpc.channels").debug("connected to %s", connection.address)
    return connection


def check_token(address: Address, token: str | None) -> None:
    if token is None:
        return
    if not isinstance(token, str):
        raise UsageError(f"token: expected text, NAME.SECRET, got {type(token).__name__}")
    if not address.secret:
        raise UsageError(
            f"{address}: the token would travel in plain text; use tls:// or wss://, "
            "or on one machine unix:// or shm://"
        )
    if address.scheme in ("pipe", "device"):
        raise UsageError(
            f"{address}: a {address.scheme} has no handshake that could carry a token; leave it out"
        )


def _shake_hands(connection: Connection, hello: bytes, handshake: ClientHandshake, deadline: float) -> None:
    url = connection.address
    try:
        connection.channel.send(hello, deadline)
        while handshake.needed:
            handshake.feed(_receive(connection, handshake.needed, deadline))
    except ConnectError as error:
        trouble = connection.trouble() or error
        raise kind_of(trouble)(f"{url}: {trouble}") from None
    except DeadlineExceededError:
        text = "it accepts connections, but did not answer in time"
        raise ConnectTimeoutError(f"{url}: {text}; {_CURE}") from None
    except ConnectionLostError as error:
        cause = connection.trouble()
        raise kind_of(cause)(f"{url}: {cause or f'{error} in the handshake; {_CURE}'}") from None


def kind_of(reason: Exception | None) -> type[ConnectError]:
    """The class of the error that says why no session could be opened."""
    return type(reason) if isinstance(reason, ConnectError) else ConnectError


def _receive(connection: Connection, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.channel.receive(size - len(data), deadline)
        if not piece:
            raise ConnectError(
                "it closed the connection in the handshake: no RPC server, or full, or one for tls:// or ws://"
            )
        data += piece
    return data
