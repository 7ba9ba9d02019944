"""Plain sockets: TCP over IPv4 and IPv6, and Unix sockets. Other channels build on these."""

from __future__ import annotations

import contextlib
import errno
import socket
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from farcall.errors import ConnectError, ConnectTimeoutError, UsageError

if TYPE_CHECKING:
    from farcall.rpc.channels._address import Address

CURE = "is `farcall serve` running there?"
_BACKLOG = 512
_KEEPALIVE = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
}  # detects a dead peer in 20 s


def tune(connection: socket.socket) -> None:
    """Set the options of a TCP connection: send small packets without delay, and detect dead machines."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# ---- the client


def remaining(deadline: float) -> float:
    """Seconds until a time of ``time.monotonic()``, for a socket's timeout; never 0, which does not block."""
    return max(deadline - time.monotonic(), 0.001)


def open_socket(address: Address, deadline: float) -> socket.socket:
    """A connected, blocking socket; tries every address of the host.

    Raises:
        ConnectError: no server listens there.
    """
    try:
        candidates = _candidates(address)
    except OSError as error:
        raise ConnectError(f"{address}: {error.strerror or error}; is the host's name right?") from None
    failure: OSError = OSError("it has no address")
    for family, name in candidates:
        try:
            return _connected(family, name, deadline)
        except OSError as error:
            failure = error
    if isinstance(failure, TimeoutError):
        raise ConnectTimeoutError(f"{address}: no connection in time; {CURE}")
    raise ConnectError(f"{address}: {failure.strerror or failure}; {CURE}")


def _candidates(address: Address) -> list[tuple[int, object]]:
    if not address.host:
        return [(socket.AF_UNIX, address.path)]
    # Not every /etc/hosts lists both addresses of localhost.
    hosts = ["127.0.0.1", "::1"] if address.host == "localhost" else [address.host]
    return [
        (family, name)
        for host in hosts
        for family, _, _, _, name in socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)
    ]


def _connected(family: int, name: object, deadline: float) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(remaining(deadline))
        connection.connect(name)  # type: ignore[arg-type]  # a path or an address, by the family
        connection.settimeout(None)
        tune(connection)
    except BaseException:
        connection.close()
        raise
    return connection


# ---- the server


def open_listener(address: Address) -> socket.socket:
    """A listening socket. Replaces a Unix socket that a dead server left; only this user can access its file.

    Raises:
        UsageError: the address cannot be used.
    """
    if not address.host:
        return _listen_at_path(address)
    if not 0 <= address.port <= 65535:
        raise UsageError(f"cannot listen on port {address.port}: a port is a number from 0 (any) to 65535")
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, name = found[0]
        return socket.create_server(name[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise UsageError(f"cannot listen on {address}: {error}; choose another port, or 0 for any") from None


def _listen_at_path(address: Address) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_dead(address)
        listener.bind(address.path)
        Path(address.path).chmod(0o600)  # nobody can connect before it listens
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {address}: {error.strerror}; choose another path") from None
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_dead(address: Address) -> None:
    """Remove the file of a socket on which nobody listens any more."""
    path = Path(address.path)
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UsageError(
                f"cannot listen on {address}: the path is taken, and is no socket; choose another"
            )
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(address.path)
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                path.unlink()
                return
    raise UsageError(f"cannot listen on {address}: another server does; stop it, or choose another path")


def close_listener(listener: socket.socket) -> None:
    """Close a listening socket, and remove the file of a Unix socket."""
    if listener.fileno() < 0:
        return
    path = listener.getsockname() if listener.family == socket.AF_UNIX else None
    if isinstance(path, str) and path:  # bytes: an abstract name, without a file
        with contextlib.suppress(OSError):
            Path(path).unlink()
    listener.close()
