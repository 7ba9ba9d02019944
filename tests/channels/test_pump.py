"""Pumps: no peer blocks the others, and none remains after its session has ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from farcall.rpc.channels import _pump
from farcall.rpc.channels._pump import Pump

from ..waiting import SECONDS

PIECES = 64
PLENTY = 8 << 20  # bytes; more than the buffers of a socket pair hold


class Plain:
    """A layer that changes nothing. Feeding it may take time on the clock of the loop."""

    def __init__(self, seconds_a_byte: float = 0.0) -> None:
        self.ready = True
        self.ended = False
        self.fed: list[int] = []
        self.clock = 0.0
        self._cost = seconds_a_byte
        self._out = bytearray()

    def feed(self, data: bytes) -> bytes:
        self.fed.append(len(data))
        self.clock += self._cost * len(data)
        self.ended = not data or len(self.fed) == PIECES
        return b""

    def send(self, data: bytes) -> None:
        self._out += data

    def finish(self) -> None:
        pass

    def take(self) -> bytes:
        data, self._out = bytes(self._out), bytearray()
        return data


class Line(NamedTuple):
    """The peer, the two sockets of a pump, and the session's end."""

    peer: socket.socket
    outer: socket.socket
    inner: socket.socket
    session: socket.socket


@pytest.fixture
def line() -> Iterator[Line]:
    (peer, outer), (inner, session) = socket.socketpair(), socket.socketpair()
    with peer, outer, inner, session:
        yield Line(peer, outer, inner, session)


async def pump_through(pump: Pump, layer: Plain) -> None:
    loop = asyncio.get_running_loop()
    real = loop.time
    loop.time = lambda: real() + layer.clock  # type: ignore[method-assign]
    await asyncio.wait_for(pump.run(), SECONDS + 10)


@pytest.mark.parametrize(("milliseconds_a_kib", "last"), [(0.0, _pump._PIECE), (20.0, 512)])
def test_bytes_that_take_long_are_taken_a_few_at_a_time(
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
    milliseconds_a_kib: float,
    last: int,
) -> None:
    asked: list[int] = []

    async def receive(loop: asyncio.AbstractEventLoop, connection: socket.socket, size: int) -> bytes:
        if connection is line.inner:
            return b""
        asked.append(size)
        return bytes(size)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_recv", receive)
    layer = Plain(milliseconds_a_kib / 1000 / 1024)
    asyncio.run(pump_through(Pump(layer, line.outer, line.inner), layer))
    assert asked == layer.fed
    assert (asked[0], asked[-1]) == (4096, last)


def test_others_have_their_turn_while_a_peer_sends_and_sends(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []

    async def receive(loop: asyncio.AbstractEventLoop, connection: socket.socket, size: int) -> bytes:
        return b"" if connection is line.inner else bytes(size)  # it never has to wait

    async def other(layer: Plain) -> None:
        while not layer.ended:
            turns.append(len(layer.fed))
            await asyncio.sleep(0)

    async def both(layer: Plain) -> None:
        await asyncio.gather(pump_through(Pump(layer, line.outer, line.inner), layer), other(layer))

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_recv", receive)
    asyncio.run(both(Plain()))
    assert len(set(turns)) > PIECES // 2


def test_a_peer_that_does_not_read_is_left_when_its_session_has_ended(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pump, "_LINGER_SECONDS", 0.05)

    async def main() -> None:
        running = asyncio.create_task(Pump(Plain(), line.outer, line.inner).run())
        with pytest.raises(TimeoutError):  # more than the peer takes
            await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(line.session, bytes(PLENTY)), 0.2)
        line.session.close()
        await asyncio.wait_for(running, SECONDS)

    line.session.setblocking(False)
    asyncio.run(main())
    assert (line.outer.fileno(), line.inner.fileno()) == (-1, -1)


def test_a_peer_that_reads_has_everything_though_the_session_has_ended(
    line: Line,
) -> None:

    async def read() -> int:
        loop, total = asyncio.get_running_loop(), 0
        while data := await loop.sock_recv(line.peer, 65536):
            total += len(data)
        return total

    async def write() -> None:
        await asyncio.get_running_loop().sock_sendall(line.session, bytes(PLENTY))
        line.session.close()

    async def main() -> int:
        total, _, _ = await asyncio.gather(read(), write(), Pump(Plain(), line.outer, line.inner).run())
        return total

    for end in (line.peer, line.session):
        end.setblocking(False)
    assert asyncio.run(main()) == PLENTY
