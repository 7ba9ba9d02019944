"""The contract of a channel: the properties that sessions need, as rules that test any implementation."""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol

from farcall.errors import ConnectionLostError, DeadlineExceededError
from farcall.testing._rules import Contract

_KIB, _MIB = 1 << 10, 1 << 20
_PAST = 0.0  # a deadline that has passed on any clock


class ByteChannel(Protocol):
    """Moves the bytes of a session: in order, in both directions, without message boundaries.

    One thread may receive while another sends, and any thread may close. A deadline is a time of the clock
    that is passed to :func:`check_channel` (``time.monotonic`` by default); None: no deadline.
    """

    def send(self, data: bytes, deadline: float | None = None, /) -> None:
        """Send all of ``data``, which may be empty; may wait until ``deadline`` for the peer to make room.

        Raises:
            DeadlineExceededError: not sent in time; how much was sent is not known.
            ConnectionLostError: the peer is gone, or this channel is closed.
        """

    def receive(self, size: int, deadline: float | None = None, /) -> bytes:
        """At least one byte and at most ``size``; ``b""`` once the peer has finished and all was received.

        ``deadline`` is a time of the channel's clock; None waits as long as it takes.

        Raises:
            DeadlineExceededError: nothing came in time; the channel stays usable.
            ConnectionLostError: the connection broke, or this channel is closed.
        """

    def finish(self) -> None:
        """End this direction; the peer receives the sent bytes, then the end, and may go on sending."""

    def close(self) -> None:
        """End both directions, and the waits of other threads of this process. Safe to call twice."""


Pair = tuple[ByteChannel, ByteChannel]
MakePair = Callable[[], AbstractContextManager[Pair]]


class Kit:
    """Helpers of the rules: deadlines, so that a hanging channel fails, and threads that report errors."""

    def __init__(self, clock: Callable[[], float], seconds: float, bulk_bytes: int) -> None:
        self.bulk_bytes = bulk_bytes
        self._clock = clock
        self._seconds = seconds

    def soon(self) -> float:
        """A deadline that a correct channel never reaches."""
        return self._clock() + self._seconds

    def receive_exactly(self, channel: ByteChannel, size: int, piece: int = 64 * _KIB) -> bytes:
        data = bytearray()
        while len(data) < size:
            got = channel.receive(min(piece, size - len(data)), self.soon())
            assert got, f"the stream ended after {len(data)} of {size} bytes"
            data += got
        return bytes(data)

    def receive_rest(self, channel: ByteChannel, piece: int = 64 * _KIB) -> bytes:
        data = bytearray()
        while got := channel.receive(piece, self.soon()):
            assert len(got) <= piece, f"receive({piece}) gave {len(got)} bytes"
            data += got
        return bytes(data)

    @contextlib.contextmanager
    def beside(self, work: Callable[[], object]) -> Iterator[Future[None]]:
        """Run ``work`` in a thread during the block; its error is raised at the end of the block."""
        outcome: Future[None] = Future()

        def run() -> None:
            try:
                work()
                outcome.set_result(None)
            except BaseException as error:
                outcome.set_exception(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield outcome
        outcome.result(self._seconds)
        thread.join(self._seconds)


_CONTRACT: Contract[[Kit, MakePair]] = Contract("channel")
_rule = _CONTRACT.rule


def check_channel(
    make_pair: MakePair,
    *,
    rules: Iterable[str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    seconds: float = 30.0,
    bulk_bytes: int = 64 * _MIB,
) -> None:
    """Check that a channel keeps its contract (see :class:`ByteChannel`).

    Args:
        make_pair: returns a context manager that gives two channels connected with each other.
        rules: the rules to check, of :data:`CHANNEL_RULES`; all by default.
        clock: of the channels' deadlines, in seconds.
        seconds: after which an operation counts as hanging.
        bulk_bytes: size of the largest transfer.

    Raises:
        AssertionError: a rule is broken; the message names it.
    """
    _CONTRACT.check(rules, Kit(clock, seconds, bulk_bytes), make_pair)


def _noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)  # noqa: S311


def _pieces(data: bytes, seed: int) -> list[bytes]:
    """``data`` cut into pieces from single bytes to tens of kilobytes, some of them empty."""
    chance, pieces, at = random.Random(seed), [], 0  # noqa: S311
    while at < len(data):
        size = int(2 ** chance.uniform(-1, 16))
        pieces.append(data[at : at + size])
        at += size
    return pieces


# ---- the rules


@_rule("bytes arrive in order, whatever the sizes of the pieces")
def _order(kit: Kit, make_pair: MakePair) -> None:
    data = _noise(2 * _MIB, 1)
    for seed, piece in enumerate((1 * _KIB, 7, 64 * _KIB, 3 * _MIB)):
        with make_pair() as (a, b):
            share = data[: 20_000 if piece < _KIB else None]

            def send(a: ByteChannel = a, share: bytes = share, seed: int = seed) -> None:
                for part in _pieces(share, seed):
                    a.send(part, kit.soon())
                a.finish()

            with kit.beside(send):
                assert kit.receive_rest(b, piece) == share


@_rule("both peers can send requests and replies, many times")
def _requests(kit: Kit, make_pair: MakePair) -> None:
    with make_pair() as (a, b):
        for round_number in range(200):
            text = b"%d" % round_number
            for sender, receiver in ((a, b), (b, a)):
                sender.send(text, kit.soon())
                assert kit.receive_exactly(receiver, len(text)) == text


@_rule("sending zero bytes does not end the stream")
def _nothing(kit: Kit, make_pair: MakePair) -> None:
    with make_pair() as (a, b):
        a.send(b"", kit.soon())
        a.send(b"x", kit.soon())
        a.send(b"", kit.soon())
        assert b.receive(10, kit.soon()) == b"x"
        _expect_late(lambda: b.receive(10, _PAST))


@_rule("a peer that has finished sending can still receive")
def _half_close(kit: Kit, make_pair: MakePair) -> None:
    with make_pair() as (a, b):
        a.send(b"question", kit.soon())
        a.finish()
        assert kit.receive_rest(b) == b"question"
        assert b.receive(1, kit.soon()) == b"", "the end does not stay"
        b.send(b"answer", kit.soon())
        b.finish()
        assert kit.receive_rest(a) == b"answer"


@_rule("receiving past the deadline fails at once, and the channel stays usable")
def _late_receive(kit: Kit, make_pair: MakePair) -> None:
    with make_pair() as (a, b):
        _expect_late(lambda: b.receive(1, _PAST))
        a.send(b"x", kit.soon())
        assert b.receive(1, kit.soon()) == b"x"


@_rule("a send that finds no room ends at its deadline")
def _late_send(kit: Kit, make_pair: MakePair) -> None:
    with make_pair() as (a, _):
        piece = bytes(_MIB)

        def fill() -> None:
            for _ in range(1024):
                a.send(piece, _PAST)

        _expect_late(fill)


def _expect_late(work: Callable[[], object]) -> None:
    try:
        result = work()
    except DeadlineExceededError:
        return
    raise AssertionError(f"expected DeadlineExceededError, got {result!r}")


@_rule("nothing is lost when the receiver is slow")
def _backpressure(kit: Kit, make_pair: MakePair) -> None:
    data = _noise(8 * _MIB, 2)
    with make_pair() as (a, b):

        def send() -> None:
            a.send(data, kit.soon())
            a.finish()

        with kit.beside(send) as sent:
            first = kit.receive_exactly(b, 1)
            assert not sent.done() or sent.exception() is None
            assert first + kit.receive_rest(b, 5000) == data


@_rule("both sides can send a lot at the same time")
def _full_duplex(kit: Kit, make_pair: MakePair) -> None:
    up, down = _noise(8 * _MIB, 3), _noise(8 * _MIB, 4)
    with (
        make_pair() as (a, b),
        kit.beside(lambda: a.send(up, kit.soon())),
        kit.beside(lambda: b.send(down, kit.soon())),
        kit.beside(lambda: _expect(kit, a, down)),
    ):
        _expect(kit, b, up)


def _expect(kit: Kit, channel: ByteChannel, data: bytes) -> None:
    assert kit.receive_exactly(channel, len(data)) == data


@_rule("a large transfer arrives whole")
def _bulk(kit: Kit, make_pair: MakePair) -> None:
    data = _noise(_MIB, 5) * max(kit.bulk_bytes // _MIB, 1)
    with make_pair() as (a, b), kit.beside(lambda: a.send(data, kit.soon())):
        received = kit.receive_exactly(b, len(data), _MIB)
        assert hashlib.sha256(received).digest() == hashlib.sha256(data).digest()


@_rule("when a peer closes after any byte, the bytes before it arrive, then the end")
def _death(kit: Kit, make_pair: MakePair) -> None:
    data = _noise(20, 6)
    for size in range(len(data) + 1):
        with make_pair() as (a, b):
            a.send(data[:size], kit.soon())
            a.close()
            received = bytearray()
            with contextlib.suppress(ConnectionLostError):
                received += kit.receive_rest(b, 7)
            assert received == data[:size], f"{len(received)} of {size} bytes came"


@_rule("sending to a peer that has closed fails")
def _send_to_the_dead(kit: Kit, make_pair: MakePair) -> None:
    with make_pair() as (a, b):
        b.close()
        try:
            for _ in range(1024):
                a.send(bytes(64 * _KIB), kit.soon())
        except ConnectionLostError:
            return
        raise AssertionError("64 MiB went to a peer that had closed")


@_rule("closing ends the waits of other threads")
def _close_unblocks(kit: Kit, make_pair: MakePair) -> None:
    with make_pair() as (a, _):

        def receive() -> None:
            with contextlib.suppress(ConnectionLostError):
                assert a.receive(1, kit.soon()) == b""

        with kit.beside(receive):
            a.close()
    with make_pair() as (a, _):

        def send() -> None:
            try:
                a.send(bytes(64 * _MIB), kit.soon())
            except ConnectionLostError:
                return
            raise AssertionError("64 MiB went into a channel from which nobody read")

        with kit.beside(send):
            a.close()


@_rule("a closed channel refuses transfers, and can be closed again")
def _closed(kit: Kit, make_pair: MakePair) -> None:
    with make_pair() as (a, _):
        a.close()
        a.close()
        for work in (lambda: a.send(b"x", kit.soon()), lambda: a.receive(1, kit.soon())):
            try:
                work()
            except ConnectionLostError:
                continue
            raise AssertionError("a transfer on a closed channel did not fail")


CHANNEL_RULES: tuple[str, ...] = tuple(_CONTRACT.rules)
"""The names of the rules of :func:`check_channel`."""
