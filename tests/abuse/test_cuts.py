"""A peer dies at any byte of any packet: the other raises a typed error in time, and the server lives."""

from __future__ import annotations

import numpy as np
import pytest

from farcall.errors import RemoteError
from farcall.rpc import Server, connect

from ..waiting import SECONDS
from .cutter import Cutter
from .drivers import Address

WAYS = ("up", "down")


def visit(url: str) -> None:
    """A session that sends every kind of packet of a client."""
    with connect(url, key="k", timeout=SECONDS, call_timeout=SECONDS) as session:
        assert session.get_function("test.add")(20, 22) == 42
        assert session.get_function("test.echo")("text") == "text"
        far = session.tensor(np.arange(4, dtype="int32"))
        assert session.get_function("test.sum")(far) == 6
        assert far.numpy().tolist() == [0, 1, 2, 3]
        session.upload(b"content", "file")
        assert session.download("file") == b"content"
        with pytest.raises(ValueError, match="reason"):
            session.get_function("test.fail")("ValueError", "reason")


def whole(server: Server) -> list[int]:
    """The number of bytes of such a session, up and down."""
    with Cutter(Address(server.host, server.port)) as cutter:
        visit(cutter.url)
    return cutter.passed


def cut(server: Server, way: str, size: int) -> None:
    """Visit over a connection that is cut after ``size`` bytes."""
    with (
        Cutter(Address(server.host, server.port), **{way: size}) as cutter,
        pytest.raises(RemoteError) as caught,
    ):
        visit(cutter.url)
    assert not isinstance(caught.value, TimeoutError), "it waited for its deadline"


@pytest.mark.parametrize("way", WAYS)
def test_a_line_that_ends_at_some_bytes(server: Server, way: str) -> None:
    total = whole(server)[WAYS.index(way)]
    assert total > 300
    for size in range(1, total - 12, 11):  # the last packet is the farewell, which has no reply
        cut(server, way, size)
    visit(server.url)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_line_that_ends_at_every_byte(server: Server, way: str) -> None:
    for size in range(1, whole(server)[WAYS.index(way)] - 12):
        cut(server, way, size)
    visit(server.url)
