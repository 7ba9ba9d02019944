"""A mailbox of which somebody else writes words and changes the size. An input is steps: a byte and numbers.

======  ==========================================================
byte    step
======  ==========================================================
0, 1    u8 which word of the header, u32 its new value
2, 3    u8 which word of the lanes, u32 its new value
4, 5    u16 bytes are sent: 4 by the client, 5 by the server
6, 7    u16 bytes are received: 6 by the client, 7 by the server
8       u16: the file has this many times 64 bytes from now on
======  ==========================================================
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from farcall._core import Channel, Mailbox
from farcall.errors import ConnectionLostError, DeadlineExceededError
from farcall.rpc import connect  # noqa: F401  (errors get their classes)

from . import harness

HEADER, LANES, KINDS = 24, 64, 9  # words of the header, of "offered" and the lanes; kinds of steps
SECONDS = 30.0
MOMENT = 0.0003  # longer than a channel spins


def steps(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Kind, number and value of each step; an incomplete last one is dropped."""
    at = 0
    while at < len(data):
        kind = data[at] % KINDS
        form = "<BI" if kind < 4 else "<H"
        if at + 1 + struct.calcsize(form) > len(data):
            return
        number, *value = struct.unpack_from(form, data, at + 1)
        yield kind, number, *(value or [0])
        at += 1 + struct.calcsize(form)


class Place:
    """A mailbox's file, and its server, which lives through all inputs."""

    def __init__(self, folder: str) -> None:
        self.path = str(Path(folder) / "box")
        self.server = Mailbox(self.path, serving=True)

    def begin(self) -> tuple[Channel, Channel]:
        """The channels of a session: the client's and the server's."""
        with contextlib.suppress(DeadlineExceededError):
            self.server.meet(0.0)  # makes the file whole, and offers a session
        until = time.monotonic() + SECONDS
        return Mailbox(self.path).meet(until), self.server.meet(until)

    def poke(self, offset: int, value: int) -> None:
        """Write a word, if the file has it."""
        if offset + 4 <= Path(self.path).stat().st_size:
            with open(self.path, "r+b", buffering=0) as file:  # noqa: PTH123
                os.pwrite(file.fileno(), struct.pack("<I", value), offset)


@functools.cache
def _place() -> Place:
    return Place(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))  # noqa: S108


def one_input(data: bytes) -> None:
    """Each step gives bytes or an error of the connection, and the server's next session works."""
    place = _place()
    ends = place.begin()
    for kind, number, value in steps(data):
        end = ends[kind % 2]
        with contextlib.suppress(ConnectionLostError, DeadlineExceededError):
            if kind < 2:
                place.poke(4 * (number % HEADER), value)
            elif kind < 4:
                place.poke(64 + 4 * (number % LANES), value)
            elif kind < 6:
                end.send(bytes(number), time.monotonic() + MOMENT)
            elif kind < 8:
                assert 0 <= len(end.receive(number + 1, time.monotonic() + MOMENT)) <= number + 1
            else:
                os.truncate(place.path, 64 * number)
    for end in ends:
        end.close()
    os.truncate(place.path, 0)  # the server makes it whole again
    ours, theirs = place.begin()
    ours.send(b"x")
    assert theirs.receive(2, time.monotonic() + SECONDS) == b"x"
    ours.close()
    theirs.close()


if __name__ == "__main__":
    harness.main("mailbox", one_input)
