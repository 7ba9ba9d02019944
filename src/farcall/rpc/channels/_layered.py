"""Connections over TLS and WebSocket: a socket, its layers, and a pump."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from farcall._core import Channel
from farcall.errors import CertificateError, ConnectError, ConnectTimeoutError, ProtocolError
from farcall.rpc.channels._connection import Accepted, Connection
from farcall.rpc.channels._layers import Layer, Stack, TlsLayer, WebSocketLayer
from farcall.rpc.channels._listener import Arrival, Listener, Opener
from farcall.rpc.channels._pump import Pump, PumpTasks, PumpThread, shake, shake_async
from farcall.rpc.channels._sockets import open_socket
from farcall.rpc.channels._tls import Tls

if TYPE_CHECKING:
    from farcall.rpc.channels._address import Address


def dial_layered(address: Address, deadline: float, tls: Tls) -> Connection:
    """Connect over TLS, WebSocket or both, as the address says.

    Raises:
        ConnectError: no server listens there, or one peer does not trust the other.
        UsageError: a file of ``tls`` cannot be used.
        MissingExtraError: for WebSocket, websockets is not installed.
    """
    layer = _client_layer(address, tls)
    where = f" in the handshake of {address.scheme}; does a server listen there for {address.scheme}://?"
    outer = open_socket(address, deadline)
    try:
        early = shake(layer, outer, deadline)
    except (ProtocolError, CertificateError) as error:
        outer.close()
        kind = CertificateError if isinstance(error, CertificateError) else ConnectError
        raise kind(f"{address}: {error}") from None
    except TimeoutError:
        outer.close()
        raise ConnectTimeoutError(f"{address}: no answer in time{where}") from None
    except OSError as error:
        outer.close()
        raise ConnectError(f"{address}: {error.strerror or error}{where}") from None
    ours, theirs = socket.socketpair()
    pump = PumpThread(Pump(layer, outer, theirs, early))
    return Connection(address, Channel(ours.detach()), on_close=pump.close, trouble=pump.trouble)


def _client_layer(address: Address, tls: Tls) -> Layer:
    secure = TlsLayer(tls.client_context(), address.host) if address.secret else None
    web = WebSocketLayer.client(str(address)) if _has_resource(address) else None
    return _combined(web, secure)


def _has_resource(address: Address) -> bool:
    """Whether the URL names a resource, as only those of WebSocket do."""
    return address.kind.form == "resource"


def _combined(web: Layer | None, secure: Layer | None) -> Layer:
    if web is not None and secure is not None:
        return Stack(web, secure)
    layer = web or secure
    assert layer is not None  # noqa: S101
    return layer


def layered_listener(address: Address, tls: Tls) -> Listener:
    """Listen for clients that speak TLS, WebSocket or both.

    Raises:
        UsageError: the address or a file of ``tls`` cannot be used.
        MissingExtraError: for WebSocket, websockets is not installed.
    """
    web = _has_resource(address)
    context = tls.server_context() if address.secret else None

    def new_layers() -> tuple[Layer, TlsLayer | None]:
        secure = TlsLayer(context) if context is not None else None
        return _combined(WebSocketLayer.server(address.path) if web else None, secure), secure

    new_layers()  # a missing package fails here, before any client connects
    pumps = PumpTasks()
    return Listener(address, _opener(new_layers, pumps), pumps.close)


def _opener(new_layers: Callable[[], tuple[Layer, TlsLayer | None]], pumps: PumpTasks) -> Opener:
    async def open_layered(address: Address, arrival: Arrival) -> Accepted:
        layer, secure = new_layers()
        early = await shake_async(layer, arrival.socket)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        pumps.start(Pump(layer, arrival.socket, theirs, early))
        who = f", {secure.peer_name}" if secure is not None else ""
        return Accepted(address, ours, arrival.peer + who)

    return open_layered
