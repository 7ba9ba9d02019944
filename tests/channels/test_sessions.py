"""Whole sessions over every channel, with a real server behind it."""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from farcall.errors import AccessDeniedError, ConnectError, UsageError, WorkerCrashedError
from farcall.rpc import Server, Session, Tls, connect
from farcall.rpc.channels import dial
from farcall.rpc.tokens import TokenFile

from ..rpc import exports
from ..waiting import SECONDS, soon
from .places import KINDS, OF_A_FILE, Certificates

INIT = f"{exports.__name__}:register"


@pytest.fixture(scope="module")
def server(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URLs of one server, by kind."""
    folder = tmp_path_factory.mktemp("sockets")
    urls = [f"{kind}://{folder}/{kind}" if kind in OF_A_FILE else f"{kind}://127.0.0.1:0" for kind in KINDS]
    with Server(urls=urls, tls=certificates.server, key="k", init=INIT) as running:
        yield dict(zip(KINDS, running.urls, strict=True))


@pytest.fixture
def tls(certificates: Certificates) -> Tls:
    return certificates.client


@pytest.fixture(params=KINDS)
def session(request: pytest.FixtureRequest, server: dict[str, str], tls: Tls) -> Iterator[Session]:
    with connect(server[request.param], "k", tls=tls, timeout=SECONDS) as opened:
        yield opened


def test_calls_and_errors(session: Session) -> None:
    add = session.get_function("test.add")
    assert [add(i, 1) for i in range(100)] == list(range(1, 101))
    with pytest.raises(ValueError, match="no such thing"):
        session.get_function("test.fail")("ValueError", "no such thing")
    assert add(1, 1) == 2


@pytest.mark.parametrize("size", [0, 1, 100_003, 1 << 24])
def test_copies(session: Session, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype="uint8")
    assert (session.tensor(data).numpy() == data).all()


def test_a_crash_is_told_over_every_channel(session: Session) -> None:
    """The supervisor's last words reach the client, even if packets bypass the supervisor."""
    with pytest.raises(WorkerCrashedError, match=r"SIGKILL .* in `test.kill`"):
        session.get_function("test.kill")(int(signal.SIGKILL))


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_key(server: dict[str, str], tls: Tls, kind: str) -> None:
    with pytest.raises(ConnectError, match="refused the key 'wrong'"):
        connect(server[kind], "wrong", tls=tls, timeout=SECONDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_leaves_in_the_handshake(server: dict[str, str], tls: Tls, kind: str) -> None:
    for size in (0, 1, 7, 12):
        connection = dial(server[kind], soon(), tls=tls)
        connection.channel.send((struct.pack("<ii", 0xFF271, 8) + b"client:k")[:size], soon())
        connection.close()
    with connect(server[kind], "k", tls=tls, timeout=SECONDS) as opened:
        assert opened.get_function("test.add")(1, 2) == 3


def test_without_the_clients_certificate(server: dict[str, str], certificates: Certificates) -> None:
    for kind in ("tls", "wss"):
        with pytest.raises(ConnectError, match="certificate required"):
            connect(server[kind], "k", tls=Tls(ca=certificates.ca), timeout=SECONDS)


# ---- tokens


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> TokenFile:
    return TokenFile(tmp_path_factory.mktemp("tokens") / "tokens.json")


@pytest.fixture(scope="module")
def guarded(
    certificates: Certificates, tokens: TokenFile, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("sockets")
    urls = [
        f"unix://{folder}/u",
        f"shm://{folder}/s",
        f"mailbox://{folder}/m",
        "tls://127.0.0.1:0",
        "wss://127.0.0.1:0",
    ]
    with Server(urls=urls, tls=certificates.server, init=INIT, tokens=tokens.path) as running:
        yield {url.partition(":")[0]: url for url in running.urls}


@pytest.mark.parametrize("kind", ["unix", "shm", "mailbox", "tls", "wss"])
def test_a_token_travels_where_nobody_reads(
    guarded: dict[str, str], tokens: TokenFile, tls: Tls, kind: str
) -> None:
    token = tokens.create(f"for-{kind}")
    with connect(guarded[kind], token=token, tls=tls, timeout=SECONDS) as opened:
        assert opened.get_function("test.add")(1, 2) == 3
    with pytest.raises(AccessDeniedError, match="this server wants a token"):
        connect(guarded[kind], tls=tls, timeout=SECONDS)
    with pytest.raises(AccessDeniedError, match="the token is not known here"):
        connect(guarded[kind], token=token[:-1], tls=tls, timeout=SECONDS)


@pytest.mark.parametrize("kind", ["tcp", "ws"])
def test_a_client_sends_no_token_in_plain_text(server: dict[str, str], kind: str) -> None:
    with pytest.raises(UsageError, match="the token would travel in plain text; use tls://"):
        connect(server[kind], "k", token="name.secret")
    with pytest.raises(UsageError, match="a pipe has no handshake"):
        connect("pipe:cat", token="name.secret")


@pytest.mark.parametrize("kind", ["tcp", "ws"])
def test_a_server_takes_no_token_in_plain_text(server: dict[str, str], tls: Tls, kind: str) -> None:
    connection = dial(server[kind], soon(), tls=tls)
    text = b"client:k -token=name.secret"
    connection.channel.send(struct.pack("<ii", 0xFF271, len(text)) + text, soon())
    answer = b""
    while piece := connection.channel.receive(4096, soon()):
        answer += piece
    connection.close()
    assert b"AccessDeniedError: a token over %s:// can be read on the way" % kind.encode() in answer
