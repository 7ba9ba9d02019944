"""TLS and WebSocket: trusted and refused certificates, and that the bytes on the wire are encrypted."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as ws_connect
from websockets.uri import parse_uri

from farcall.errors import CertificateError, ConnectError, MissingExtraError, ProtocolError, UsageError
from farcall.rpc.channels import Accepted, Tls, dial, listen
from farcall.rpc.channels._layers import TlsLayer, WebSocketLayer

from ..waiting import SECONDS, soon
from .places import Certificates, MakePlace, Place, accept, take


def refusal(at: Place, tls: Tls) -> str:
    """The client's error when its handshake fails or its first bytes are refused; the server fails too."""
    arriving: Future[Accepted] = at.loop.start(accept(at.listener))
    with pytest.raises(ConnectError) as caught:
        connection = dial(at.listener.url, soon(), tls=tls)
        try:
            # A client of TLS 1.3 is done before the server has looked at its certificate.
            assert connection.channel.receive(1, soon()) == b""
            raise ConnectError(connection.trouble() or "no reason")
        finally:
            connection.close()
    with pytest.raises((CertificateError, OSError)):
        arriving.result(SECONDS)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["tls", "wss"])
def test_the_clients_certificate_names_it_for_the_log(place: MakePlace, kind: str) -> None:
    connection, accepted = place(kind).meet()
    address, _, name = accepted.peer.partition(", ")
    assert address.startswith("127.0.0.1:")
    assert name == "client"
    accepted.close()
    connection.close()


def test_a_server_of_another_name(place: MakePlace, certificates: Certificates) -> None:
    at = place("tls", certificates.elsewhere)
    text = refusal(at, at.tls)
    assert "the peer's certificate is not accepted: IP address mismatch" in text


def test_a_server_that_nobody_vouches_for(place: MakePlace, certificates: Certificates) -> None:
    at = place("tls")
    text = refusal(at, replace(at.tls, ca=None))
    assert "the peer's certificate is not accepted: self-signed certificate in certificate chain" in text


def test_a_client_without_a_certificate(place: MakePlace, certificates: Certificates) -> None:
    at = place("tls")
    text = refusal(at, Tls(ca=certificates.ca))
    assert (
        "certificate required: the peer asks for a certificate of this side; pass Tls(ca, cert, key)" in text
    )


def test_a_client_of_another_authority(place: MakePlace, certificates: Certificates) -> None:
    at = place("tls")
    text = refusal(at, certificates.stranger)
    assert "unknown ca: the peer does not accept this side's certificate; pass one that" in text


def test_an_old_tls_is_refused(place: MakePlace, certificates: Certificates) -> None:
    at = place("tls")
    arriving = at.loop.start(accept(at.listener))
    context = certificates.client.client_context()
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    address = ("127.0.0.1", at.listener.address.port)
    with socket.create_connection(address, timeout=SECONDS) as line, pytest.raises(ssl.SSLError):
        context.wrap_socket(line, server_hostname="127.0.0.1")
    with pytest.raises(ProtocolError, match="does the peer speak TLS 1"):
        arriving.result(SECONDS)


def test_a_plain_client_at_a_tls_server(place: MakePlace) -> None:
    at = place("tls")
    arriving = at.loop.start(accept(at.listener))
    connection = dial(f"tcp://127.0.0.1:{at.listener.address.port}", soon())
    connection.channel.send(b"\x71\xf2\x0f\x00\x07\x00\x00\x00client:", soon())
    with pytest.raises(ProtocolError, match="TLS"):
        arriving.result(SECONDS)
    connection.close()


def test_nothing_readable_is_on_the_line(place: MakePlace, certificates: Certificates) -> None:
    secret = b"token-" * 50
    layers = (
        TlsLayer(certificates.client.client_context(), "localhost"),
        TlsLayer(certificates.server.server_context()),
    )
    line, plain = b"", b""
    sent = False
    for _ in range(8):
        for layer, peer in (layers, layers[::-1]):
            if layer.ready and not sent:
                layer.send(secret)
                sent = True
            data = layer.take()
            line += data
            if data:
                plain += peer.feed(data)
    assert plain == secret
    assert len(line) > len(secret)
    assert b"token" not in line


@pytest.mark.parametrize("missing", ["ca", "cert", "key"])
def test_a_server_needs_its_files(certificates: Certificates, missing: str) -> None:
    with pytest.raises(UsageError, match="farcall cert"):
        listen("tls://127.0.0.1:0", tls=replace(certificates.server, **{missing: None}))


def test_files_that_are_none(certificates: Certificates, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    for tls in (
        replace(certificates.server, key=empty),
        replace(certificates.server, ca=empty),
        Tls.of(tmp_path / "x"),
    ):
        with pytest.raises(UsageError, match=r"\.pem"):
            listen("tls://127.0.0.1:0", tls=tls)
        with pytest.raises(UsageError, match=r"\.pem"):
            dial("tls://127.0.0.1:1", soon(), tls=tls)


@given(st.binary(max_size=300))
def test_any_bytes_to_tls_are_refused_or_awaited(data: bytes) -> None:
    layer = TlsLayer(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    try:
        assert layer.feed(data) == b""
    except ProtocolError:
        return
    assert not layer.ready


# ---- WebSocket


def test_a_browser_is_refused(place: MakePlace) -> None:
    """Any web page that a user opens could connect to local servers; browsers send the page's origin."""
    at = place("ws")
    arriving = at.loop.start(accept(at.listener))
    with pytest.raises(InvalidStatus, match="403"):
        ws_connect(at.listener.url, origin="https://evil.example", open_timeout=SECONDS)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="invalid Origin header"):
        arriving.result(SECONDS)


def test_an_independent_client(place: MakePlace) -> None:
    """Fragments, pings and message boundaries have no meaning."""
    at = place("ws")
    arriving = at.loop.start(accept(at.listener))
    with ws_connect(at.listener.url, open_timeout=SECONDS) as client:
        channel = take(arriving.result(SECONDS))
        client.send([b"frag", b"ment", b"ed "])
        assert client.ping().wait(SECONDS)
        client.send(b"whole")
        data = b""
        while len(data) < 16:
            data += channel.receive(100, soon())
        assert data == b"fragmented whole"
        channel.send(b"answer", soon())
        assert client.recv(SECONDS) == b"answer"
        channel.close()


def test_text_is_refused(place: MakePlace) -> None:
    at = place("ws")
    arriving = at.loop.start(accept(at.listener))
    with ws_connect(at.listener.url, open_timeout=SECONDS) as client:
        channel = take(arriving.result(SECONDS))
        client.send("text")
        assert channel.receive(1, soon()) == b""
        channel.close()


def test_a_tcp_server_at_a_web_address(place: MakePlace) -> None:
    at = place("tcp")

    async def answer() -> None:
        arrival = await at.listener.accept()
        loop = asyncio.get_running_loop()
        await loop.sock_recv(arrival.socket, 100)
        await loop.sock_sendall(arrival.socket, b"no HTTP at all\r\n\r\n")
        arrival.socket.close()

    answering = at.loop.start(answer())
    with pytest.raises(ConnectError, match="WebSocket"):
        dial(at.listener.url.replace("tcp:", "ws:"), soon())
    answering.result(SECONDS)


def test_without_websockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)
    for work in (lambda: dial("ws://127.0.0.1:1", soon()), lambda: listen("ws://127.0.0.1:0")):
        with pytest.raises(MissingExtraError, match=r"pip install 'farcall\[ws\]'"):
            work()


def opened() -> WebSocketLayer:
    """The server's layer after its handshake."""
    layer = WebSocketLayer.server()
    client = ClientProtocol(parse_uri("ws://127.0.0.1/"))
    client.send_request(client.connect())
    layer.feed(b"".join(client.data_to_send()))
    assert layer.ready
    layer.take()
    return layer


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_to_a_web_socket_are_bytes_or_refused(data: bytes, piece: int) -> None:
    outcomes = []
    for size in (max(len(data), 1), piece):
        layer, plain = opened(), b""
        try:
            for at in range(0, len(data), size):
                plain += layer.feed(data[at : at + size])
            outcomes.append((plain, layer.ended))
        except ProtocolError as error:
            outcomes.append((str(error), True))
    if not any(isinstance(outcome[0], str) for outcome in outcomes):
        assert outcomes[0] == outcomes[1]


def test_a_lie_about_a_frame_is_refused_at_once() -> None:
    with pytest.raises(ProtocolError, match="exceeds limit of 4194304 bytes"):
        opened().feed(b"\x82\xff" + (1 << 62).to_bytes(8, "big"))
