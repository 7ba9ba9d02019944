"""Opens a session: connects to the server, and begins the session on that connection."""

from __future__ import annotations

import time
from collections.abc import Sequence

from farcall.errors import UsageError
from farcall.rpc.channels import Tls, parse_address
from farcall.rpc.client._session import Session
from farcall.rpc.shared._handshake import check_key
from farcall.rpc.shared._hops import Hop
from farcall.rpc.shared._lines import check_token, open_line


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
        url: the server's URL: ``"tcp://HOST:PORT"`` (or ``"HOST:PORT"``), ``"unix:///PATH"``,
            ``"shm:///PATH"`` (shared memory on this machine), ``"mailbox:///PATH"`` (a file that the server
            maps), ``"tls://HOST:PORT"``, ``"ws://HOST:PORT/PATH"``, ``"wss://HOST:PORT/PATH"``, or
            ``"pipe:COMMAND"``, which starts a server on a child process's standard input and output.
        key: the key with which the server was started.
        via: the relays on the way, the nearest first, each a URL, (URL, key) or (URL, key, token). Each opens
            the session with the next, and forwards; farcall servers and TVM servers can both do that.
            ``"device:NAME"`` is a device that the owner of the server at ``url`` named; it comes last.
        timeout: maximum seconds until the session is open.
        call_timeout: maximum seconds for each call and copy; None: no limit. A call that takes longer ends
            the session: see :func:`farcall.deadline`.
        session_timeout: maximum duration of the session in seconds, after which the (nearest) server ends it.
        token: ``NAME.SECRET`` from `farcall token create`, if the server at ``url`` requires one.
        tls: the files for ``tls://`` and ``wss://``, on the connection from this machine.

    Returns:
        The session; use it in a ``with`` statement, or close it.

    Raises:
        UsageError: ``url`` or a number is not valid, a ``tls`` file cannot be used, or the token would travel
            in plain text.
        ConnectError: no server listens at ``url``, the key or token is wrong, or it is not an RPC server; its
            subclass ConnectTimeoutError (a ``TimeoutError``): the session did not open in time.
        MissingExtraError: the channel needs a package that is not installed.
    """
    limits = {"timeout": timeout, "call_timeout": call_timeout, "session_timeout": session_timeout}
    for name, seconds in limits.items():
        _check_seconds(name, seconds)
    if tls is not None and not isinstance(tls, Tls):
        raise UsageError(f"tls: expected Tls.of('certs/client'), say, got {type(tls).__name__}")
    deadline = time.monotonic() + timeout
    first, *others = hops = _chain(_hops(via), Hop(url, key, token))
    for hop in hops:
        parse_address(hop.url)
        check_key(hop.key)
    for i, hop in enumerate(others):  # every connection on the way to a hop carries its token
        for before in (first, *others[: i + 1]):
            check_token(parse_address(before.url), hop.token)
    connection = open_line(first, deadline, tls=tls, session_timeout=session_timeout)
    try:
        return Session(connection, max(deadline - time.monotonic(), 0.001), call_timeout, others)
    except BaseException:
        connection.close()
        raise


def _check_seconds(name: str, seconds: float | None) -> None:
    if seconds is None and name != "timeout":
        return
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
        raise UsageError(f"{name}: expected a positive number of seconds, got {seconds!r:.80}")


def _hops(via: Sequence[str | tuple[str, str] | tuple[str, str, str]]) -> list[Hop]:
    if isinstance(via, str):
        raise UsageError(f"via: expected a list of servers, got one text; write via=[{via!r}]")
    return [_hop(place, f"via[{i}]") for i, place in enumerate(via)]


def _chain(via: Sequence[Hop], last: Hop) -> list[Hop]:
    """All servers, the nearest first: devices come behind the server that owns them."""
    if _is_device(last):
        return [*via, last]
    devices = [hop for hop in via if _is_device(hop)]
    return [*(hop for hop in via if hop not in devices), last, *devices]


def _is_device(hop: Hop) -> bool:
    return parse_address(hop.url).scheme == "device"


def _hop(place: str | tuple[str, str] | tuple[str, str, str], where: str) -> Hop:
    parts = (place,) if isinstance(place, str) else place
    if not isinstance(parts, tuple) or not 1 <= len(parts) <= 3:
        raise UsageError(f"{where}: expected a URL, (URL, key) or (URL, key, token)")
    try:
        parse_address(parts[0])
    except UsageError as error:
        raise UsageError(f"{where}: {error}; a server and its key are a tuple, (URL, key)") from None
    return Hop(*parts)
