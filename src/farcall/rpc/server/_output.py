"""Copies the output of sessions to the server's standard error, each line labelled with its session, up to a
limit for each session. The end of each session's output is kept for its client.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from farcall._texts import escaped

_PIECE = 65_536  # bytes to read at a time
_LINE_MAX = 4096  # bytes; longer lines are split
_PAUSE_SECONDS = 0.01  # after dropping output: a session that floods must not take this process's time
_KEPT = 65_536  # bytes of a session's output, for its client
_QUOTED_LINES, _QUOTED_CHARS = 8, 160  # of a crash's error
_END_SECONDS = (
    0.2  # to read what a worker printed before it died; a process that it started may hold the pipe
)
_CLOSE_SECONDS = 0.5  # to write the last lines; the reader of standard error may have stopped
# A carriage return or an escape sequence could paint over the session's name, or pose as another session.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Tail:
    """The end of an output. Two threads use it: one reads the output, the other one answers the client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._data = b""
        self._total = 0  # bytes of the whole output

    def read(self, fd: int) -> bytes:
        """Read a piece from a pipe. When a worker finds its pipe empty, all that was in it is kept, or
        :meth:`since` waits until it is.

        Raises:
            BlockingIOError: there is none.
        """
        with self._lock:
            data = os.read(fd, _PIECE)
            self._data = (self._data + data)[-_KEPT:]
            self._total += len(data)
        return data

    def since(self, start: int) -> tuple[int, bytes]:
        """The output from a position on, and the position of the first byte that is kept."""
        with self._lock:
            first = self._total - len(self._data)
            begin = min(max(start, first), self._total)
            return begin, self._data[begin - first :]

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._data, self._total = b"", 0


@dataclass(eq=False)
class Source:
    """The output of one worker.

    Attributes:
        label: the prefix of each line.
        tail: what its client may ask for.
        ended: whether all of it has been read.
    """

    label: str
    fd: int
    left: int  # bytes until the limit
    line: bytes = b""  # the begun line
    tail: Tail = field(default_factory=Tail)
    ended: threading.Event = field(default_factory=threading.Event)

    def begin(self, label: str) -> None:
        """A session begins: what the worker printed before is none of its client's business."""
        self.label = label
        self.tail.clear()

    def last_lines(self) -> str:
        """The end of the output of a worker that has died, for an error; empty if it printed nothing."""
        self.ended.wait(_END_SECONDS)
        lines = self.tail.since(0)[1].decode(errors="replace").splitlines()[-_QUOTED_LINES:]
        quoted = "".join(f"\n    {escaped(line)[:_QUOTED_CHARS]}" for line in lines)
        return f". The last that it printed:{quoted}" if quoted else ""

    def take(self, data: bytes) -> bytes:
        """Take a piece of the worker's output (``b""`` is its end); return the bytes to write to the log."""
        kept = data[: self.left]
        *lines, rest = (self.line + kept).split(b"\n")
        full = 0 < self.left == len(kept) < len(data)
        if rest and (full or not data or len(rest) > _LINE_MAX):
            lines, rest = [*lines, rest], b""
        if full:
            lines.append(b"(it has printed as much as a session may; the rest is dropped)")
        self.line = rest
        self.left -= len(kept)
        return b"".join(map(self._labelled, lines))

    def _labelled(self, line: bytes) -> bytes:
        text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line.decode(errors="backslashreplace"))
        return f"{self.label}: {text}\n".encode()


class OutputLog:
    """Copies workers' output to a file, in a thread: when the file blocks, only workers that print wait.

    Args:
        limit: bytes of one worker; further output is dropped.
        target: descriptor of the file, borrowed.
    """

    def __init__(self, limit: int, target: int = 2) -> None:
        self._limit = limit
        self._target = target
        self._sources: dict[int, Source] = {}
        self._poll = select.epoll()
        self._closed, self._close = os.pipe2(os.O_CLOEXEC)
        self._poll.register(self._closed, select.EPOLLHUP)
        self._thread = threading.Thread(target=self._run, name="farcall-output", daemon=True)
        self._thread.start()

    @contextmanager
    def pipe(self, label: str) -> Iterator[tuple[Source, int]]:
        """A source, and the worker's end of its pipe, which is closed when the block ends.

        Raises:
            OSError: no descriptors are left.
        """
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(read, False)
            source = self._sources[read] = Source(label, read, self._limit)
            self._poll.register(read, select.EPOLLIN)  # from here on the thread owns `read`
            yield source, write
        finally:
            os.close(write)

    def close(self) -> None:
        """Write the remaining output and end the thread. The output of workers that live on is lost."""
        os.close(self._close)
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        open_ = True
        while open_:
            ready = [fd for fd, _ in self._poll.poll()]
            open_ = self._closed not in ready
            dropping = [self._copy(self._sources[fd]) for fd in ready if fd != self._closed]
            if any(dropping):
                time.sleep(_PAUSE_SECONDS)
        for source in list(self._sources.values()):
            while source.fd in self._sources and not self._copy(source):
                pass
            self._end(source)
        self._poll.close()
        os.close(self._closed)

    def _copy(self, source: Source) -> bool:
        """Copy what the worker has printed; return whether there was nothing, or the rest is dropped."""
        try:
            data = source.tail.read(source.fd)
        except BlockingIOError:
            return True
        self._write(source.take(data))
        if not data:
            self._end(source)
        return source.left == 0

    def _end(self, source: Source) -> None:
        if self._sources.pop(source.fd, None) is not None:
            self._write(source.take(b""))
            # Closing alone is not enough: a process that is being forked at this moment has a copy of the
            # descriptor, and the epoll object would go on reporting this one.
            self._poll.unregister(source.fd)
            os.close(source.fd)
            source.ended.set()

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # the reader of the file is gone
            while data:
                data = data[os.write(self._target, data) :]
