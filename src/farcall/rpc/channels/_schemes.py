"""The schemes of URLs: one table with the properties of each channel.

A package adds a channel by an entry point in the group ``farcall.channels``, which names a :class:`Scheme`::

    [project.entry-points."farcall.channels"]
    vsock = "acme_vsock:SCHEME"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from farcall._plugins import installed
from farcall.errors import UsageError

if TYPE_CHECKING:
    from farcall.rpc.channels._address import Address
    from farcall.rpc.channels._connection import Connection
    from farcall.rpc.channels._listener import Listener
    from farcall.rpc.channels._tls import Tls

Form = Literal["host", "resource", "socket", "file", "path", "command", "name", "dsp"]


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """One kind of channel. By default farcall assumes that other machines can reach it and read its bytes.

    Attributes:
        example: the form of its URLs and an example, for messages.
        form: what follows the scheme. ``"host"``: ``//HOST:PORT``; ``"resource"``: ``//HOST:PORT/PATH``;
            ``"socket"``: ``///PATH`` of a Unix socket's file; ``"file"``: ``///PATH`` of another file;
            ``"path"``: ``//`` and any text, which becomes :attr:`Address.path`; ``"command"``: a command line
            without ``//``, for ``pipe`` alone; ``"name"``: a name without ``//``, for ``device`` alone;
            ``"dsp"``: a DSP's name or the path of a file without ``//``, for ``fastrpc`` alone.
        dial: connects a client, as :func:`farcall.rpc.channels.dial`.
        listen: begins to listen, as :func:`farcall.rpc.channels.listen`; UsageError if this kind cannot.
        default_port: of a URL that names no port; None: the URL must name one.
        secret: whether nobody else can read the bytes: they are encrypted, or stay on this machine. Other
            channels carry no tokens, and serve other machines only if the user says ``insecure``.
        local: whether only processes of this machine can reach it, whatever the URL says.
        may_relay: whether a server may relay to such an address when a client asks for it.
    """

    example: str
    form: Form
    dial: Callable[[Address, float, Tls], Connection]
    listen: Callable[[Address, Tls], Listener]
    default_port: int | None = None
    secret: bool = False
    local: bool = False
    may_relay: bool = False


def find_scheme(name: str) -> Scheme | None:
    """The scheme of that name, of farcall or of an installed package; None when there is none.

    Raises:
        UsageError: the package's entry point is not a :class:`Scheme`.
    """
    return BUILTIN.get(name) or _installed_scheme(name)


def scheme_names() -> list[str]:
    """The names of all schemes, farcall's first."""
    return [*BUILTIN, *sorted(installed("channel").keys() - BUILTIN.keys())]


def forms(names: Iterable[str]) -> str:
    """``"unix://, shm:// or pipe:"``."""
    bare = ("command", "name", "dsp")
    *others, last = (f"{name}:" if BUILTIN[name].form in bare else f"{name}://" for name in names)
    return f"{', '.join(others)} or {last}"


@cache
def _installed_scheme(name: str) -> Scheme | None:
    point = installed("channel").get(name)
    if point is None:
        return None
    try:
        scheme = point.load()
    except Exception as error:
        raise UsageError(
            f"channel `{name}` ({point.value}) cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(scheme, Scheme):
        raise UsageError(
            f"channel `{name}` ({point.value}): expected a farcall.rpc.channels.Scheme, "
            f"got {type(scheme).__name__}"
        )
    return scheme


# ---- the channels of farcall; each is imported when it is used


def _dial_plain(address: Address, deadline: float, tls: Tls) -> Connection:
    from farcall.rpc.channels._plain import dial_plain

    return dial_plain(address, deadline)


def _listen_plain(address: Address, tls: Tls) -> Listener:
    from farcall.rpc.channels._plain import listen_plain

    return listen_plain(address)


def _dial_shared(address: Address, deadline: float, tls: Tls) -> Connection:
    from farcall.rpc.channels._shm import dial_shared

    return dial_shared(address, deadline)


def _listen_shared(address: Address, tls: Tls) -> Listener:
    from farcall.rpc.channels._shm import listen_shared

    return listen_shared(address)


def _dial_mailbox(address: Address, deadline: float, tls: Tls) -> Connection:
    from farcall.rpc.channels._mailbox import dial_mailbox

    return dial_mailbox(address, deadline)


def _listen_mailbox(address: Address, tls: Tls) -> Listener:
    from farcall.rpc.channels._mailbox import listen_mailbox

    return listen_mailbox(address)


def _dial_fastrpc(address: Address, deadline: float, tls: Tls) -> Connection:
    from farcall.rpc.channels._fastrpc import dial_fastrpc

    return dial_fastrpc(address, deadline)


def _listen_fastrpc(address: Address, tls: Tls) -> Listener:
    raise UsageError(f"{address}: a DSP is not listened at; its bridge serves it (docs/fastrpc.md)")


def _dial_pipe(address: Address, deadline: float, tls: Tls) -> Connection:
    from farcall.rpc.channels._pipe import dial_pipe

    return dial_pipe(address)


def _listen_pipe(address: Address, tls: Tls) -> Listener:
    raise UsageError(f"{address}: a pipe is not listened at; its client starts the server")


def _dial_device(address: Address, deadline: float, tls: Tls) -> Connection:
    raise UsageError(
        f"{address}: a device is reached through its server; connect to that, with via=[{str(address)!r}]"
    )


def _listen_device(address: Address, tls: Tls) -> Listener:
    raise UsageError(f"{address}: a device is not listened at; its server names it, with --device NAME=URL")


def _dial_layered(address: Address, deadline: float, tls: Tls) -> Connection:
    from farcall.rpc.channels._layered import dial_layered

    return dial_layered(address, deadline, tls)


def _listen_layered(address: Address, tls: Tls) -> Listener:
    from farcall.rpc.channels._layered import layered_listener

    return layered_listener(address, tls)


BUILTIN: Mapping[str, Scheme] = {
    "tcp": Scheme(
        example="tcp://HOST:PORT, such as tcp://127.0.0.1:9090",
        form="host",
        dial=_dial_plain,
        listen=_listen_plain,
        may_relay=True,
    ),
    "unix": Scheme(
        example="unix:///PATH, such as unix:///run/farcall.sock",
        form="socket",
        dial=_dial_plain,
        listen=_listen_plain,
        secret=True,
        local=True,
        may_relay=True,
    ),
    "shm": Scheme(
        example="shm:///PATH, such as shm:///run/farcall.shm",
        form="socket",
        dial=_dial_shared,
        listen=_listen_shared,
        secret=True,
        local=True,
    ),
    "mailbox": Scheme(
        example="mailbox:///PATH, such as mailbox:///dev/shm/farcall",
        form="file",
        dial=_dial_mailbox,
        listen=_listen_mailbox,
        secret=True,
        local=True,  # may_relay stays False: a client could make the server open any of its files
    ),
    "fastrpc": Scheme(
        example="fastrpc:DSP or fastrpc:/PATH, such as fastrpc:cdsp",
        form="dsp",
        dial=_dial_fastrpc,
        listen=_listen_fastrpc,
        secret=True,
        local=True,  # may_relay stays False: devices of a server have names
    ),
    "pipe": Scheme(
        example="pipe:COMMAND, such as pipe:farcall serve --stdio",
        form="command",
        dial=_dial_pipe,
        listen=_listen_pipe,
        secret=True,
        local=True,  # may_relay stays False: a client could make the server run a command
    ),
    "device": Scheme(
        example="device:NAME, such as device:dsp0",
        form="name",
        dial=_dial_device,
        listen=_listen_device,
        secret=True,
        local=True,
        may_relay=True,
    ),
    "tls": Scheme(
        example="tls://HOST:PORT, such as tls://board.local:9090",
        form="host",
        dial=_dial_layered,
        listen=_listen_layered,
        secret=True,
        may_relay=True,
    ),
    "ws": Scheme(
        example="ws://HOST:PORT/PATH, such as ws://127.0.0.1:8080/ws",
        form="resource",
        dial=_dial_layered,
        listen=_listen_layered,
        default_port=80,
        may_relay=True,
    ),
    "wss": Scheme(
        example="wss://HOST:PORT/PATH, such as wss://board.local:8443/ws",
        form="resource",
        dial=_dial_layered,
        listen=_listen_layered,
        default_port=443,
        secret=True,
        may_relay=True,
    ),
}
