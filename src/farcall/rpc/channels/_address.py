"""Addresses of servers: parses URLs, and checks which may be listened at."""

from __future__ import annotations

import functools
import ipaddress
import re
import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

from farcall._suggest import did_you_mean
from farcall.errors import UsageError
from farcall.rpc.channels._schemes import BUILTIN, Scheme, find_scheme, forms, scheme_names

_ELSEWHERE = {  # schemes of other programs, and what to use here in their place
    "ssh": "start a server there and connect to that: farcall.launch('ssh://HOST').connect(); or run one "
    "through ssh (pipe:ssh HOST farcall serve --stdio)",
    "adb": "start a server there and connect to that: farcall.launch('adb://SERIAL').connect()",
    "http": "write tcp://HOST:PORT, or ws://HOST:PORT/PATH for a server that listens for WebSocket",
    "https": "write tls://HOST:PORT, or wss://HOST:PORT/PATH for a server that listens for WebSocket",
}
_DEVICE = re.compile(r"[A-Za-z0-9_.-]{1,64}(:[0-9]{1,3})?")  # a name, or a kind and a number: hexagon:0
_DSPS = ("adsp", "mdsp", "sdsp", "cdsp", "cdsp1")  # the names that the driver knows
_UNIX_PATH_MAX = 107  # bytes of sockaddr_un.sun_path, without the NUL


@dataclass(frozen=True)
class Address:
    """A URL, taken apart.

    Attributes:
        scheme: ``"tcp"``, ``"unix"``, ``"pipe"``, ``"tls"``, ``"ws"``, ``"wss"``, ``"shm"``,
            ``"mailbox"``, ``"fastrpc"``, ``"device"``, or that of an installed package.
        host: a name, or an IPv4 or IPv6 address without brackets.
        port: 0 to 65535.
        path: of the file (unix, shm, mailbox), of the resource (ws, wss), or as a package defines it; the
            name of a server's device (device); a DSP's name or a mailbox's path (fastrpc).
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
        if self.scheme in ("device", "fastrpc"):
            return f"{self.scheme}:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{f':{self.port}' if self.host else ''}{self.path}"

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return self.kind.local or is_loopback(self.host)

    @property
    def secret(self) -> bool:
        """Whether nobody else can read the bytes: they are encrypted, or stay on this machine."""
        return self.kind.secret

    @property
    def kind(self) -> Scheme:
        """The scheme's entry in the table."""
        found = find_scheme(self.scheme)
        if found is None:
            hint = did_you_mean(self.scheme, scheme_names())
            raise UsageError(f"there is no channel {self.scheme!r}{hint}")
        return found


@functools.lru_cache(maxsize=256)  # connect() parses a URL several times, and a program has few servers
def parse_address(url: str) -> Address:
    """Parse ``url``. ``HOST:PORT`` alone means TCP.

    Raises:
        UsageError: the URL is not valid; the message shows the expected form.
    """
    if not isinstance(url, str):
        raise _nowhere(url, f"a server's URL is text, not {type(url).__name__}")
    scheme, colon, rest = url.partition(":")
    if not colon:
        raise _nowhere(url, "it names no port" if url else "it is empty")
    if scheme == "pipe":
        return _pipe(url, rest)
    if scheme == "device":
        return _device(url, rest)
    if "://" not in url and scheme not in BUILTIN:
        scheme, url = "tcp", f"tcp://{url}"
    kind = find_scheme(scheme)
    if kind is None:
        raise _no_channel(url, scheme)
    match kind.form:
        case "host" | "resource":
            return _with_host(url, scheme, kind)
        case "socket":
            return _with_socket(url, scheme, kind)
        case "file":
            return Address(scheme, path=_file_path(url, scheme, kind))
        case "dsp":
            return _dsp(url, scheme, kind)
        case _:
            return _with_path(url, scheme, kind)


def _wrong(url: str, kind: Scheme) -> UsageError:
    return UsageError(f"{url!r}: expected {kind.example}")


def _nowhere(url: object, problem: str) -> UsageError:
    others = forms(name for name in BUILTIN if name not in ("tcp", "device"))
    return UsageError(f"{url!r:.200}: {problem}; expected {BUILTIN['tcp'].example}, or a URL with {others}")


def _no_channel(url: str, scheme: str) -> UsageError:
    if scheme in _ELSEWHERE:
        return UsageError(f"{url!r:.200}: there is no channel {scheme!r}; {_ELSEWHERE[scheme]}")
    return _nowhere(url, f"there is no channel {scheme!r}{did_you_mean(scheme, scheme_names())}")


def _pipe(url: str, text: str) -> Address:
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{url!r}: {error}; quote it as for a shell") from None
    if not command or not command[0]:
        raise _wrong(url, BUILTIN["pipe"])
    return Address("pipe", command=command)


def _device(url: str, name: str) -> Address:
    if not _DEVICE.fullmatch(name):
        raise _wrong(url, BUILTIN["device"])
    return Address("device", path=name)


def _dsp(url: str, scheme: str, kind: Scheme) -> Address:
    name = url.removeprefix(f"{scheme}:")
    if name in _DSPS:
        return Address(scheme, path=name)
    return Address(scheme, path=_file_path(url, scheme, kind))


def _with_host(url: str, scheme: str, kind: Scheme) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _wrong(url, kind) from None
    port = kind.default_port if port is None else port
    has_path = kind.form == "resource"
    extra = parts.username is not None or parts.fragment or (not has_path and (parts.path or parts.query))
    if not host or port is None or extra or not host.isprintable() or " " in host:
        raise _wrong(url, kind)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "") if has_path else ""
    return Address(scheme, host=host, port=port, path=path)


def _with_path(url: str, scheme: str, kind: Scheme) -> Address:
    path = url.removeprefix(f"{scheme}://")
    if path in ("", url):
        raise _wrong(url, kind)
    return Address(scheme, path=path)


def _file_path(url: str, scheme: str, kind: Scheme) -> str:
    """Of ``unix:///PATH`` or, in short, ``unix:/PATH``."""
    path = url.removeprefix(f"{scheme}:").removeprefix("//")
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise _wrong(url, kind)
    return path


def _with_socket(url: str, scheme: str, kind: Scheme) -> Address:
    path = _file_path(url, scheme, kind)
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
    """Refuse to listen in plain text at an address that other machines can reach: they could run code here.

    Args:
        url: to listen on.
        insecure: whether the user wants that.

    Raises:
        UsageError: the URL is not valid, or names an address that is public and not encrypted.
    """
    address = parse_address(url)
    if insecure or address.local or address.secret:
        return
    raise UsageError(
        f"{url}: anyone who reaches that address could run code here, in plain text. {_safer(address)}"
        "pass --insecure on a network that you trust"
    )


def _safer(address: Address) -> str:
    """The beginning of a sentence that names safer addresses."""
    if not address.host:
        return "Listen on tls:// or unix://, or "
    secure = "wss" if address.kind.form == "resource" else "tls"
    return (
        f"Listen on {secure}://{address.host}:{address.port} with certificates (`farcall cert` makes them), "
        "or on 127.0.0.1 (and tunnel, with ssh -L), or "
    )
