"""Layers between a socket and the bytes of a session: TLS, WebSocket, or both. Without I/O."""

from __future__ import annotations

import contextlib
import ssl
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, cast

from farcall._extras import require
from farcall.errors import CertificateError, ProtocolError

if TYPE_CHECKING:
    from websockets.client import ClientProtocol
    from websockets.http11 import Request
    from websockets.server import ServerProtocol

_PIECE = 262_144  # plain bytes at a time
_FRAME_MAX = 4 << 20  # bytes of a peer's WebSocket frame, which is buffered until it is complete


class Layer(Protocol):
    """A transformation of a stream in both directions."""

    @property
    def ready(self) -> bool:
        """Whether the layer's own handshake is done; before that, :meth:`send` must not be called."""

    @property
    def ended(self) -> bool:
        """Whether the peer has finished: :meth:`feed` will return no more bytes."""

    def feed(self, data: bytes) -> bytes:
        """Decode bytes from the socket (``b""``: its end); returns the plain bytes.

        Raises:
            ProtocolError: the peer speaks another protocol, or closed too early.
            CertificateError: one side does not accept the certificate of the other.
        """

    def send(self, data: bytes) -> None:
        """Encode plain bytes for the peer."""

    def finish(self) -> None:
        """Tell the peer that no more bytes follow."""

    def take(self) -> bytes:
        """Take the bytes to write to the socket."""


# ---- TLS


class TlsLayer:
    """TLS 1.3 over a stream. A client passes the name that the server's certificate must contain."""

    def __init__(self, context: ssl.SSLContext, server_name: str | None = None) -> None:
        self.ready = False
        self.ended = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._advance()

    @property
    def peer_name(self) -> str:
        """The name in the peer's certificate, for messages; known once :attr:`ready`."""
        certificate: dict[str, Any] = self._tls.getpeercert() or {}
        common = [
            value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"
        ]
        return (
            ", ".join(common or [value for _, value in certificate.get("subjectAltName", ())]) or "nameless"
        )

    def feed(self, data: bytes) -> bytes:
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        try:
            if not self.ready:
                self._advance()
            return self._read() if self.ready else b""
        except ssl.SSLError as error:
            raise _tls_error(error) from None

    def _advance(self) -> None:
        try:
            self._tls.do_handshake()
            self.ready = True
        except ssl.SSLWantReadError:
            pass

    def _read(self) -> bytes:
        pieces = []
        try:
            while piece := self._tls.read(_PIECE):
                pieces.append(piece)
            self.ended = True
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        return b"".join(pieces)

    def send(self, data: bytes) -> None:
        if data:
            self._tls.write(data)

    def finish(self) -> None:
        # unwrap() sends our close_notify, and raises because the peer's has not arrived; nobody waits for it.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()

    def take(self) -> bytes:
        return self._outgoing.read()


def _tls_error(error: ssl.SSLError) -> CertificateError | ProtocolError:
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = error.verify_message.rstrip(".")
        cure = (
            "it needs a new one (`farcall cert` makes one for tests)"
            if "expired" in problem
            else "name the CA that signed it (Tls(ca=...), --ca), and use a server name that it contains"
        )
        return CertificateError(f"TLS: the peer's certificate is not accepted: {problem}; {cure}")
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if "certificate required" in reason:
        return CertificateError(
            f"TLS: {reason}: the peer asks for a certificate of this side; pass Tls(ca, cert, key), or --cert"
        )
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return CertificateError(
            f"TLS: {reason}: the peer does not accept this side's certificate; "
            "pass one that the peer's CA signed"
        )
    kind = CertificateError if "certificate" in reason else ProtocolError
    return kind(f"TLS: {reason}; does the peer speak TLS 1.3, with a certificate that this side's CA signed?")


# ---- WebSocket


class WebSocketLayer:
    """Bytes in binary messages, whose boundaries have no meaning; an empty message ends a direction."""

    def __init__(self, protocol: ClientProtocol | ServerProtocol, path: str = "/") -> None:
        self.ready = False
        self.ended = False
        self._protocol = protocol
        self._path = path
        self._finished = False

    @classmethod
    def client(cls, url: str) -> WebSocketLayer:
        """The client's layer, which requests ``ws://HOST:PORT/PATH``.

        Raises:
            MissingExtraError: websockets is not installed.
        """
        require_websockets()
        from websockets.client import ClientProtocol
        from websockets.uri import parse_uri

        protocol = ClientProtocol(parse_uri(url), max_size=(None, _FRAME_MAX))
        protocol.send_request(protocol.connect())
        return cls(protocol)

    @classmethod
    def server(cls, resource: str = "/") -> WebSocketLayer:
        """The server's layer. It refuses browsers, because any web page that a user opens could connect.

        Args:
            resource: path of the served URL; a query is ignored.

        Raises:
            MissingExtraError: websockets is not installed.
        """
        require_websockets()
        from websockets.server import ServerProtocol

        return cls(ServerProtocol(origins=[None], max_size=(None, _FRAME_MAX)), resource.partition("?")[0])

    def feed(self, data: bytes) -> bytes:
        protocol = self._protocol
        if data:
            protocol.receive_data(data)
        else:
            protocol.receive_eof()
        plain = b"".join([self._event(event) for event in protocol.events_received()])
        if (error := protocol.handshake_exc or protocol.parser_exc) is not None and not self.ended:
            cure = "; is the path in the URL right?" if str(error).endswith("HTTP 404") else ""
            raise ProtocolError(f"WebSocket: {error}{cure}")
        if self.ready and protocol.close_rcvd is not None:
            self.ended = True
        return plain

    def _event(self, event: object) -> bytes:
        from websockets.frames import Frame, Opcode
        from websockets.http11 import Request, Response

        if isinstance(event, Request | Response):
            if isinstance(event, Request):
                self._answer(event)
            self.ready = self._protocol.handshake_exc is None
            return b""
        if not isinstance(event, Frame) or event.opcode not in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
            return b""  # a ping, say: the protocol has answered it
        if event.opcode is Opcode.TEXT:
            raise ProtocolError("WebSocket: the peer sent a text message; sessions use binary messages")
        self.ended = self.ended or (event.opcode is Opcode.BINARY and event.fin and not event.data)
        return bytes(event.data)

    def _answer(self, request: Request) -> None:
        protocol, asked = cast("ServerProtocol", self._protocol), request.path.partition("?")[0]
        if asked == self._path:
            protocol.send_response(protocol.accept(request))
            return
        protocol.send_response(protocol.reject(HTTPStatus.NOT_FOUND, "Nothing is served at this path.\n"))
        raise ProtocolError(
            f"WebSocket: a client asked for {asked[:80]!r}; this server listens at {self._path!r}"
        )

    def send(self, data: bytes) -> None:
        for at in range(0, len(data), _PIECE):
            self._protocol.send_binary(data[at : at + _PIECE])

    def finish(self) -> None:
        if not self._finished and self.ready:
            self._finished = True
            self._protocol.send_binary(b"")

    def take(self) -> bytes:
        return b"".join(self._protocol.data_to_send())


def require_websockets() -> None:
    """Check that websockets is installed.

    Raises:
        MissingExtraError: it is not.
    """
    require("ws", "a ws:// or wss:// URL", "websockets")


# ---- two layers


class Stack:
    """``upper`` carried by ``lower``: WebSocket over TLS."""

    def __init__(self, upper: Layer, lower: Layer) -> None:
        self._upper = upper
        self._lower = lower

    @property
    def ready(self) -> bool:
        return self._lower.ready and self._upper.ready

    @property
    def ended(self) -> bool:
        return self._upper.ended

    def feed(self, data: bytes) -> bytes:
        carried = self._lower.feed(data)
        if carried:
            plain = self._upper.feed(carried)
        elif self._lower.ended:
            plain = self._upper.feed(b"")
        else:
            plain = b""
        return plain

    def send(self, data: bytes) -> None:
        self._upper.send(data)

    def finish(self) -> None:
        self._upper.finish()

    def take(self) -> bytes:
        if self._lower.ready:
            self._lower.send(self._upper.take())
        return self._lower.take()
