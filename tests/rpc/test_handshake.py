"""The handshake codec, without a socket."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.errors import ConnectError, ProtocolError, UsageError
from farcall.rpc import Server
from farcall.rpc.shared._handshake import (
    MAGIC,
    ClientHandshake,
    Hello,
    ServerHandshake,
    client_hello,
    server_accept,
    server_refuse,
)

CAPTURED = Path(__file__).parents[1] / "data/tvm_rpc/packets.txt"


def drive(machine: ServerHandshake | ClientHandshake, data: bytes) -> bytes:
    """Feed bytes as a socket would, and return those that are left over."""
    while machine.needed and len(data) >= machine.needed:
        size = machine.needed
        machine.feed(data[:size])
        data = data[size:]
    return data


def hello(key: bytes) -> bytes:
    return struct.pack("<ii", MAGIC, len(key)) + key


def read(field: bytes) -> Hello | None:
    server = ServerHandshake()
    assert drive(server, hello(field)) == b""
    return server.hello


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), max_size=50))
def test_both_sides_agree(key: str) -> None:
    server, client = ServerHandshake(), ClientHandshake(key)
    assert drive(server, client_hello(key) + b"rest") == b"rest"
    assert server.hello == Hello(key)
    assert drive(client, server_accept(key) + b"rest") == b"rest"
    assert (client.needed, client.server_key) == (0, key)


def test_the_captured_handshake() -> None:
    lines = CAPTURED.read_text().splitlines()
    bytes_of = {name: bytes.fromhex(data) for name, data in (line.split() for line in lines[2:])}
    assert client_hello("x") == bytes_of["A_01_connect_00_c2s_handshake"]
    assert server_accept("x") == bytes_of["A_01_connect_01_s2c_handshake"]
    server = ServerHandshake()
    drive(server, bytes_of["B1timeout_02_connect_with_session_timeout_1_00_c2s_handshake"])
    assert server.hello is not None
    assert server.hello.timeout == 1.0


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for start in (b"", struct.pack("<i", MAGIC), hello(b"client:k")[:8]):
        server = ServerHandshake()
        try:
            drive(server, start + data)
        except ProtocolError:
            continue
        assert server.needed or server.hello is not None


@given(st.binary(max_size=60))
def test_any_answer_is_read_or_refused(data: bytes) -> None:
    for start in (b"", struct.pack("<i", MAGIC)):
        client = ClientHandshake("k")
        try:
            drive(client, start + data)
        except ConnectError:
            continue


@pytest.mark.parametrize(
    "data",
    [
        b"GET ",
        struct.pack("<ii", MAGIC, 0),
        struct.pack("<ii", MAGIC, -1),
        struct.pack("<ii", MAGIC, 0x7FFFFFFF),
        hello(b"client:\xff"),
        hello(b"server:k"),
        hello(b"       "),
        hello(b"client:k -timeout=ab"),
        hello(b"client:k -timeout=-1"),
        hello(b"client:k -timeout=nan"),
        hello(b"client:k -timeout="),
        hello(b"client:k -timeout=."),
        hello(b"client:k -timeout=1e"),
        hello(b"client:k -timeout=1e9"),
        hello(b"client:k -timeout=1e99999"),
        hello(b"client:k -timeout=99999999999999999999999"),
        hello(b"client:k -timeout=1.5.5"),
        hello(b"client:k -timeout=0x10"),
    ],
)
def test_what_a_server_refuses(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        drive(ServerHandshake(), data)


def test_options_that_are_not_known_are_passed_over() -> None:
    assert read(b"client:k -later=9 -timeout=10") == Hello("k", 10.0)
    assert read(b"client:k -timeout=0") == Hello("k")


@given(st.floats(1e-6, 1e9, exclude_max=True))
def test_seconds_are_read_as_they_are_written(seconds: float) -> None:
    """To the nanosecond, including numbers that Python writes as 1e-05."""
    told = read(f"client:k -timeout={seconds!r}".encode())
    assert told is not None
    assert told.timeout == pytest.approx(seconds, rel=1e-15, abs=1e-9)


@pytest.mark.parametrize(
    "field", [b"client:k  -token=a.b\t-timeout=1.5 ", b"client:k -timeout=15e-1 -token=a.b"]
)
def test_options_in_any_order(field: bytes) -> None:
    assert read(field) == Hello("k", 1.5, "a.b")


def test_a_wrong_key_is_named() -> None:
    with pytest.raises(ConnectError, match="refused the key 'k'"):
        drive(ClientHandshake("k"), server_refuse())


@pytest.mark.parametrize("key", ["a b", "a\0b", "a\nb"])
def test_keys_that_cannot_travel(key: str) -> None:
    with pytest.raises(UsageError, match="no blanks"):
        client_hello(key)
    with pytest.raises(UsageError, match="no blanks"):
        Server(key=key)
