"""The chain host -> phone -> DSP: devices behind a server, by the names that its owner gave them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np
import pytest

from farcall.errors import (
    ConnectError,
    DeadlineExceededError,
    RemoteError,
    UsageError,
)
from farcall.rpc import Limits, Server, Session, connect
from farcall.rpc.shared._hops import Hop, parse_hop

from ..native.small_server import named, small_server
from ..waiting import SECONDS
from .servers import INIT, works
from .tvm_processes import needs_tvm, seen_by


@pytest.fixture(scope="module")
def dsp(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL, for the owner of the phone, of a small server on an emulated Hexagon."""
    return f"pipe:{shlex.join([*small_server(named('hexagon'), tmp_path_factory), '--stdio'])}"


@pytest.fixture(scope="module")
def phone(dsp: str) -> Iterator[Server]:
    with Server(init=INIT, key="k", limits=Limits(relay="off"), devices={"dsp0": dsp}) as server:
        yield server


@pytest.fixture
def far(phone: Server) -> Iterator[Session]:
    with connect(phone.url, "k", via=["device:dsp0"], timeout=SECONDS) as session:
        yield session


def test_a_session_with_the_device(far: Session) -> None:
    x = np.arange(100_000, dtype="float32")
    there = far.tensor(x)
    far.get_function("test.twice")(there)
    np.testing.assert_array_equal(there.numpy(), 2 * x)
    assert far.get_function("test.echo")("text") == "text"


def test_the_device_may_be_named_first_or_last(phone: Server) -> None:
    with connect("device:dsp0", via=[(phone.url, "k")], timeout=SECONDS) as session:
        assert session.get_function("test.echo")(5) == 5
    with connect(phone.url, "k", via=["device:hexagon:0"], timeout=SECONDS) as session:
        assert session.get_function("test.echo")(6) == 6


def test_errors_name_the_hop(far: Session) -> None:
    with pytest.raises(TypeError, match=r"hop 2 \(device:dsp0\).*expected one float32 tensor"):
        far.get_function("test.twice")(1)


def test_a_device_that_faults_ends_one_session_and_serves_the_next(phone: Server) -> None:
    with connect(phone.url, "k", via=["device:dsp0"], timeout=SECONDS) as session:
        crash = session.get_function("test.segfault")
        with pytest.raises(RemoteError, match=r"hop 2 \(device:dsp0\)"):
            crash()
    with connect(phone.url, "k", via=["device:dsp0"], timeout=SECONDS) as session:
        assert session.get_function("test.echo")(7) == 7
    assert works(phone)


def test_a_device_that_hangs_meets_the_deadline(phone: Server) -> None:
    with connect(phone.url, "k", via=["device:dsp0"], timeout=SECONDS, call_timeout=0.5) as session:
        spin = session.get_function("test.spin")
        with pytest.raises(DeadlineExceededError):
            spin()
    assert works(phone)


def test_a_client_cannot_say_where_a_device_is(phone: Server) -> None:
    with pytest.raises(ConnectError, match=r"no device 'dsp1'; its devices: dsp0"):
        connect(phone.url, "k", via=["device:dsp1"], timeout=SECONDS)
    with pytest.raises(ConnectError, match="does not go on to pipe:"):
        connect("pipe:cat", via=[(phone.url, "k")], timeout=SECONDS)
    assert works(phone)


def test_a_device_that_cannot_be_started_is_named() -> None:
    with Server(init=INIT, key="k", devices={"dsp0": "pipe:/no/such/program"}) as server:
        with pytest.raises(RemoteError, match=r"hop 2 \(device:dsp0\).*/no/such/program"):
            connect(server.url, "k", via=["device:dsp0"], timeout=SECONDS)
        assert works(server)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ({"a b": "tcp://127.0.0.1:1"}, "expected device:NAME"),
        ({"dsp0": "nowhere"}, "it names no port"),
        ({"dsp0": "device:dsp1"}, "is a name, not where the device is"),
    ],
)
def test_an_owners_mistakes(devices: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Server(devices=devices)


def test_a_device_alone_is_no_server() -> None:
    with pytest.raises(UsageError, match=r"reached through its server; .*via=\['device:dsp0'\]"):
        connect("device:dsp0")
    with pytest.raises(UsageError, match="no handshake that could carry a token"):
        connect("device:dsp0", via=["unix:///tmp/x.sock"], token="a.b")


def test_tvms_constructor_means_the_first_device() -> None:
    values = ["tvm.contrib.hexagon.create_hexagon_session", "name", 262144, "", 268435456]
    assert parse_hop(values) == (Hop("device:hexagon:0"), 5)


@needs_tvm
def test_a_tvm_client_of_a_hexagon_session(phone: Server) -> None:
    seen = seen_by("tvm_hexagon.py", phone.port, "k")
    assert seen["text"] == "hello"
    assert seen["twice"] is True
    assert "test.missing" in seen["missing"]
