"""Opening a session: a line to the server, the handshake on it, and the session behind it."""

from __future__ import annotations

import time

from farcall.errors import ConnectError, ConnectionLostError, DeadlineExceededError
from farcall.rpc.channels import Connection, dial
from farcall.rpc.handshake import ClientHandshake, client_hello
from farcall.rpc.session import Session

_CURE = "is `farcall serve` running there?"


def connect(url: str, key: str = "", *, timeout: float = 10.0, call_timeout: float | None = None) -> Session:
    """Open a session with a farcall server, or a TVM RPC server.

    Args:
        url: where it listens: ``"tcp://HOST:PORT"`` (or ``"HOST:PORT"``), ``"unix:///PATH"``.
        key: what the server was started with.
        timeout: seconds until the session must stand.
        call_timeout: seconds for each call and copy; None waits as long as it takes. A call that takes longer
            ends the session, since its answer would be taken for the next one's.

    Returns:
        The session; use it in a ``with`` statement, or close it.

    Raises:
        UsageError: ``url`` is none.
        ConnectError: nobody listens there, the key is wrong, or it is no RPC server.
    """
    deadline = time.monotonic() + timeout
    connection = dial(url, deadline)
    try:
        if connection.shakes_hands:
            _shake_hands(connection, key, deadline)
        return Session(connection, max(deadline - time.monotonic(), 0.001), call_timeout)
    except BaseException:
        connection.close()
        raise


def _shake_hands(connection: Connection, key: str, deadline: float) -> None:
    handshake, url = ClientHandshake(key), connection.address
    try:
        connection.channel.send(client_hello(key), deadline)
        while handshake.needed:
            handshake.feed(_receive(connection, handshake.needed, deadline))
    except ConnectError as error:
        raise ConnectError(f"{url}: {error}") from None
    except DeadlineExceededError:
        raise ConnectError(f"{url}: it accepts connections, but did not answer in time; {_CURE}") from None
    except ConnectionLostError as error:
        raise ConnectError(f"{url}: {error} in the handshake; {_CURE}") from None


def _receive(connection: Connection, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.channel.receive(size - len(data), deadline)
        if not piece:
            raise ConnectError(
                "it closed the connection in the handshake; no RPC server, or one that is full"
            )
        data += piece
    return data
