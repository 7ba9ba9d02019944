"""The contract detects faulty channels: each rule fails for a channel with the fault that it is about."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pytest

from farcall._core import Channel
from farcall.errors import ConnectionLostError, DeadlineExceededError
from farcall.testing import CHANNEL_RULES, check_channel

from .places import socket_pair


class Faulty:
    """A channel that is sound; the faults derive from it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def send(self, data: bytes, deadline: float | None = None) -> None:
        self.channel.send(data, deadline)

    def receive(self, size: int, deadline: float | None = None) -> bytes:
        return self.channel.receive(size, deadline)

    def finish(self) -> None:
        self.channel.finish()

    def close(self) -> None:
        self.channel.close()


class Swapping(Faulty):
    def send(self, data: bytes, deadline: float | None = None) -> None:
        super().send(data[1:] + data[:1] if len(data) > 1000 else data, deadline)


class Losing(Faulty):
    def send(self, data: bytes, deadline: float | None = None) -> None:
        super().send(data[: 4 << 20], deadline)


class Answerless(Faulty):
    """Gives the end after the first piece."""

    def receive(self, size: int, deadline: float | None = None) -> bytes:
        data = super().receive(size, deadline)
        self.channel.finish()
        return data


class EmptyIsEnd(Faulty):
    def send(self, data: bytes, deadline: float | None = None) -> None:
        super().send(data, deadline)
        if not data:
            self.finish()


class FinishCloses(Faulty):
    def finish(self) -> None:
        self.channel.close()


class Generous(Faulty):
    """Waits a little beyond the deadline, then reports the end of the stream."""

    def receive(self, size: int, deadline: float | None = None) -> bytes:
        try:
            return super().receive(size, deadline)
        except DeadlineExceededError:
            return b""


class Boundless(Faulty):
    """Accepts any number of bytes at once, and discards them."""

    def send(self, data: bytes, deadline: float | None = None) -> None:
        with contextlib.suppress(DeadlineExceededError, ConnectionLostError):
            super().send(data, deadline)


class Rounding(Faulty):
    """Drops the bytes after the last multiple of four."""

    def send(self, data: bytes, deadline: float | None = None) -> None:
        super().send(data[: len(data) & ~3], deadline)


class Sticky(Faulty):
    """Its close does nothing."""

    def close(self) -> None:
        pass


FAULTS = {
    "bytes arrive in order, whatever the sizes of the pieces": Swapping,
    "both peers can send requests and replies, many times": Answerless,
    "sending zero bytes does not end the stream": EmptyIsEnd,
    "a peer that has finished sending can still receive": FinishCloses,
    "receiving past the deadline fails at once, and the channel stays usable": Generous,
    "a send that finds no room ends at its deadline": Boundless,
    "nothing is lost when the receiver is slow": Losing,
    "both sides can send a lot at the same time": Losing,
    "a large transfer arrives whole": Losing,
    "when a peer closes after any byte, the bytes before it arrive, then the end": Rounding,
    "sending to a peer that has closed fails": Boundless,
    "closing ends the waits of other threads": Sticky,
    "a closed channel refuses transfers, and can be closed again": Sticky,
}


@contextlib.contextmanager
def faulty_pair(fault: type[Faulty]) -> Iterator[tuple[Faulty, Faulty]]:
    with socket_pair() as (a, b):
        yield fault(a), fault(b)


@pytest.mark.parametrize("rule", CHANNEL_RULES)
def test_a_fault_is_found(rule: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(rule)):
        check_channel(lambda: faulty_pair(FAULTS[rule]), rules=[rule], seconds=0.5, bulk_bytes=8 << 20)


def test_a_wrapper_without_a_fault_passes() -> None:
    check_channel(lambda: faulty_pair(Faulty), bulk_bytes=8 << 20)


def test_every_rule_has_its_fault() -> None:
    assert set(FAULTS) == set(CHANNEL_RULES)
