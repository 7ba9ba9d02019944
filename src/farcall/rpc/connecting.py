"""Opening a session: a line to the server, the handshake on it, and the session behind it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from farcall.errors import ConnectError, ConnectionLostError, DeadlineExceededError, UsageError
from farcall.rpc.channels import Address, Connection, Tls, dial, parse_address
from farcall.rpc.handshake import ClientHandshake, client_hello
from farcall.rpc.relay import Hop
from farcall.rpc.session import Session

_CURE = "is `farcall serve` running there?"


def connect(
    url: str,
    key: str = "",
    *,
    via: Sequence[str | tuple[str, str] | tuple[str, str, str]] = (),
    timeout: float = 10.0,
    call_timeout: float | None = None,
    session_timeout: float | None = None,
    token: str | None = None,
    tls: Tls | None = None,
) -> Session:
    """Open a session with a farcall server, or a TVM RPC server.

    Args:
        url: where it listens: ``"tcp://HOST:PORT"`` (or ``"HOST:PORT"``), ``"unix:///PATH"``,
            ``"shm:///PATH"`` (shared memory on this machine), ``"tls://HOST:PORT"``, ``"ws://HOST:PORT/PATH"``,
            ``"wss://HOST:PORT/PATH"``, or ``"pipe:COMMAND"``, which starts a server on a child process's
            standard input and output.
        key: what the server was started with.
        via: servers on the way, the nearest first, each a URL, (URL, key) or (URL, key, token). Each opens
            the session with the next, and forwards; farcall servers and TVM servers can both do that.
        timeout: seconds until the session must stand.
        call_timeout: seconds for each call and copy; None waits as long as it takes. A call that takes longer
            ends the session, since its answer would be taken for the next one's.
        session_timeout: seconds after which the (nearest) server ends the session, if not before.
        token: ``NAME.SECRET`` from `farcall token create`, where the server at ``url`` wants one.
        tls: the files for ``tls://`` and ``wss://``, on the line from here.

    Returns:
        The session; use it in a ``with`` statement, or close it.

    Raises:
        UsageError: ``url`` or a number is none, a ``tls`` file cannot be used, or the token would travel in
            plain text.
        ConnectError: nobody listens there, the key or token is wrong, or it is no RPC server.
        MissingExtraError: the channel needs a package that is not installed.
    """
    deadline = time.monotonic() + timeout
    if not 0 < timeout < 1e9:
        raise UsageError(f"timeout: expected a positive number of seconds, got {timeout}")
    if session_timeout is not None and not 0 < session_timeout < 1e9:
        raise UsageError(f"session_timeout: expected a positive number of seconds, got {session_timeout}")
    first, *others = [*map(_hop, via), Hop(url, key, token)]
    for i, hop in enumerate(others):  # what is for one server is said to all before it
        for before in (first, *others[:i]):
            _check_token(parse_address(before.url), hop.token)
    connection = open_line(first, deadline, tls=tls, session_timeout=session_timeout)
    try:
        return Session(connection, max(deadline - time.monotonic(), 0.001), call_timeout, others)
    except BaseException:
        connection.close()
        raise


def _hop(place: str | tuple[str, str] | tuple[str, str, str]) -> Hop:
    return Hop(place) if isinstance(place, str) else Hop(*place)


def open_line(
    hop: Hop, deadline: float, *, tls: Tls | None = None, session_timeout: float | None = None
) -> Connection:
    """A line to a server on which the handshake is done, so that packets may begin.

    Raises:
        UsageError, ConnectError, MissingExtraError: as :func:`connect`.
    """
    _check_token(parse_address(hop.url), hop.token)
    connection = dial(hop.url, deadline, tls=tls)
    try:
        if connection.shakes_hands:
            hello = client_hello(hop.key, hop.token, session_timeout)
            _shake_hands(connection, hello, ClientHandshake(hop.key), deadline)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_token(address: Address, token: str | None) -> None:
    if token is None:
        return
    if not address.secret:
        raise UsageError(
            f"{address}: the token would travel in plain text; use tls:// or wss://, "
            "or on one machine unix:// or shm://"
        )
    if address.scheme == "pipe":
        raise UsageError(f"{address}: a pipe has no handshake that could carry a token; leave it out")


def _shake_hands(connection: Connection, hello: bytes, handshake: ClientHandshake, deadline: float) -> None:
    url = connection.address
    try:
        connection.channel.send(hello, deadline)
        while handshake.needed:
            handshake.feed(_receive(connection, handshake.needed, deadline))
    except ConnectError as error:
        raise ConnectError(f"{url}: {connection.trouble() or error}") from None
    except DeadlineExceededError:
        raise ConnectError(f"{url}: it accepts connections, but did not answer in time; {_CURE}") from None
    except ConnectionLostError as error:
        reason = connection.trouble() or f"{error} in the handshake"
        raise ConnectError(f"{url}: {reason}; {_CURE}") from None


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
