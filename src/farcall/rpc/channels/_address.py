"""Addresses of servers: what a URL names."""

from __future__ import annotations

import functools
import ipaddress
import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

from farcall._suggest import did_you_mean
from farcall.errors import UsageError

_EXAMPLES = {
    "tcp": "tcp://HOST:PORT, such as tcp://127.0.0.1:9090",
    "unix": "unix:///PATH, such as unix:///run/farcall.sock",
    "pipe": "pipe:COMMAND, such as pipe:farcall serve --stdio",
    "tls": "tls://HOST:PORT, such as tls://board.local:9090",
    "ws": "ws://HOST:PORT/PATH, such as ws://127.0.0.1:8080/ws",
    "wss": "wss://HOST:PORT/PATH, such as wss://board.local:8443/ws",
    "shm": "shm:///PATH, such as shm:///run/farcall.shm",
}
_OTHERS = "unix://, shm://, pipe:, tls://, ws:// or wss://"
_WITH_HOST = {"tcp": None, "tls": None, "ws": 80, "wss": 443}  # the port that stands for none
_UNIX_PATH_MAX = 107  # bytes of sockaddr_un.sun_path, without the NUL


@dataclass(frozen=True)
class Address:
    """A URL, taken apart.

    Attributes:
        scheme: ``"tcp"``, ``"unix"``, ``"pipe"``, ``"tls"``, ``"ws"``, ``"wss"`` or ``"shm"``.
        host: a name, or an IPv4 or IPv6 address without brackets.
        port: 0 to 65535.
        path: of the socket's file (unix, shm), or of the resource (ws, wss).
        command: of the child process (pipe), as a list of arguments.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    command: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.scheme == "pipe":
            return f"pipe:{shlex.join(self.command)}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{f':{self.port}' if self.host else ''}{self.path}"

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return not self.host or is_loopback(self.host)

    @property
    def secret(self) -> bool:
        """Whether nobody on the way can read what goes there: it is encrypted, or stays in this machine."""
        return self.scheme not in ("tcp", "ws")


@functools.lru_cache(maxsize=256)  # one connect asks more than once, and a program has few servers
def parse_address(url: str) -> Address:
    """Take a URL apart. ``HOST:PORT`` alone is that of TCP.

    Raises:
        UsageError: it names no server; the message has the form that was expected.
    """
    if not isinstance(url, str):
        raise _nowhere(url, f"a server's URL is text, not {type(url).__name__}")
    scheme, colon, rest = url.partition(":")
    if not colon:
        raise _nowhere(url, "it names no port" if url else "it is empty")
    if scheme == "pipe":
        return _pipe(url, rest)
    if "://" not in url and scheme not in _EXAMPLES:
        scheme, url = "tcp", f"tcp://{url}"
    if scheme not in _EXAMPLES:
        raise _nowhere(url, f"there is no channel {scheme!r}{did_you_mean(scheme, _EXAMPLES)}")
    return _with_host(url, scheme) if scheme in _WITH_HOST else _with_path(url, scheme)


def _wrong(url: str, scheme: str) -> UsageError:
    return UsageError(f"{url!r}: expected {_EXAMPLES[scheme]}")


def _nowhere(url: object, problem: str) -> UsageError:
    return UsageError(f"{url!r:.200}: {problem}; expected {_EXAMPLES['tcp']}, or a URL with {_OTHERS}")


def _pipe(url: str, text: str) -> Address:
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{url!r}: {error}; quote it as for a shell") from None
    if not command or not command[0]:
        raise _wrong(url, "pipe")
    return Address("pipe", command=command)


def _with_host(url: str, scheme: str) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _wrong(url, scheme) from None
    port = _WITH_HOST[scheme] if port is None else port
    is_web = scheme.startswith("ws")
    extra = parts.username is not None or parts.fragment or (not is_web and (parts.path or parts.query))
    if not host or port is None or extra or not host.isprintable() or " " in host:
        raise _wrong(url, scheme)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "") if is_web else ""
    return Address(scheme, host=host, port=port, path=path)


def _with_path(url: str, scheme: str) -> Address:
    path = url.removeprefix(f"{scheme}://")
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise _wrong(url, scheme)
    if (size := len(path.encode(errors="surrogateescape"))) > _UNIX_PATH_MAX:
        raise UsageError(
            f"{url!r}: a socket's path has at most {_UNIX_PATH_MAX} bytes, this one has {size}; "
            "choose a shorter folder"
        )
    return Address(scheme, path=path)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(url: str, *, insecure: bool) -> None:
    """Refuse to listen where others could run code here in plain text.

    Args:
        url: to listen on.
        insecure: whether the user has said that this is wanted.

    Raises:
        UsageError: it is none, or public and not encrypted.
    """
    address = parse_address(url)
    if insecure or address.local or address.secret:
        return
    secure = "tls" if address.scheme == "tcp" else "wss"
    raise UsageError(
        f"{url}: anyone who reaches that address could run code here, in plain text. Listen on "
        f"{secure}://{address.host}:{address.port} with certificates (`farcall cert` makes them), or on "
        "127.0.0.1 (and tunnel, with ssh -L), or pass --insecure on a network that you trust"
    )
