"""URLs: what each means, that they print as they were, and that any text is an address or a UsageError."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.errors import UsageError
from farcall.rpc.channels import Address, check_exposure, parse_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("tcp://board.local:9090", Address("tcp", "board.local", 9090)),
        ("board.local:9090", Address("tcp", "board.local", 9090)),
        ("127.0.0.1:0", Address("tcp", "127.0.0.1", 0)),
        ("tcp://[::1]:9090", Address("tcp", "::1", 9090)),
        ("tls://h:1", Address("tls", "h", 1)),
        ("ws://h", Address("ws", "h", 80, "/")),
        ("wss://h/ws?a=b", Address("wss", "h", 443, "/ws?a=b")),
        ("unix:///run/f.sock", Address("unix", path="/run/f.sock")),
        ("shm:///run/a b", Address("shm", path="/run/a b")),
        ("mailbox:///run/box", Address("mailbox", path="/run/box")),
        ("mailbox:/run/box", Address("mailbox", path="/run/box")),
        ("pipe:ssh board 'a b'", Address("pipe", command=("ssh", "board", "a b"))),
    ],
)
def test_a_url(url: str, address: Address) -> None:
    assert parse_address(url) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "tcp://HOST:PORT"),
        ("board.local", "tcp://HOST:PORT"),
        ("http://h:1", "tcp://HOST:PORT"),
        ("https://h", "write tls://HOST:PORT, or wss://HOST:PORT/PATH"),
        ("ssh://me@board", r"farcall.launch\('ssh://HOST'\).*pipe:ssh HOST farcall serve --stdio"),
        ("tcp://h", "tcp://HOST:PORT"),
        ("tcp://h:99999", "tcp://HOST:PORT"),
        ("tcp://u@h:1", "tcp://HOST:PORT"),
        ("tls://h:1/x", "tls://HOST:PORT"),
        ("unix:relative", "unix:///PATH"),
        ("unix://", "unix:///PATH"),
        ("shm:///folder/", "shm:///PATH"),
        ("mailbox://", "mailbox:///PATH"),
        ("mailbox:box", "mailbox:///PATH"),
        ("pipe:", "pipe:COMMAND"),
        ("pipe:'open", "quote it as for a shell"),
        ("unix:///" + "x" * 200, "at most 107 bytes, this one has 201"),
    ],
)
def test_no_url(url: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        parse_address(url)


schemes = st.sampled_from(["tcp", "unix", "pipe", "tls", "ws", "wss", "shm", "mailbox", "x", ""])


@given(
    st.one_of(
        st.text(max_size=60),
        st.builds("{}:{}{}".format, schemes, st.sampled_from(["", "//", "///"]), st.text(max_size=30)),
    )
)
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = parse_address(text)
    except UsageError:
        return
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "url",
    [
        "tcp://127.0.0.1:0",
        "tcp://localhost:0",
        "ws://[::1]:0/",
        "unix:///s",
        "shm:///s",
        "mailbox:///s",
        "tls://0.0.0.0:0",
        "wss://h/",
    ],
)
def test_what_may_be_served(url: str) -> None:
    check_exposure(url, insecure=False)


@pytest.mark.parametrize(
    ("url", "cure"), [("tcp://0.0.0.0:1", "tls://0.0.0.0:1"), ("ws://board/", "wss://board:80")]
)
def test_what_may_not(url: str, cure: str) -> None:
    with pytest.raises(UsageError, match=f"run code here, in plain text. Listen on {cure}"):
        check_exposure(url, insecure=False)
    check_exposure(url, insecure=True)
