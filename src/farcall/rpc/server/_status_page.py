"""The status page: the worker notes what it runs; the supervisor can read that after the worker has died."""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from farcall._core import PAGE

# Offsets: FC_PAGE_* of native/session/server/serve.h, which describes each field.
PAGE_BYTES = PAGE["size"]
_SENDING, _CALLING, _LISTENS, _BEGUN = PAGE["sending"], PAGE["calling"], PAGE["listens"], PAGE["begun"]
_WORKING = PAGE["working"]
_NAME_SIZE, _NAME, _NAME_MAX = PAGE["name_size"], PAGE["name"], PAGE["name_max"]
_WORDS_SIZE, _WORDS, _WORDS_MAX = PAGE["words_size"], PAGE["words"], PAGE["words_max"]
_RECEIVED, _SENT, _CALLS = PAGE["received"], PAGE["sent"], PAGE["calls"]
_DUE, _GIVEN = PAGE["due"], PAGE["given"]


class StatusPage:
    """One page of memory that worker and supervisor share.

    The endpoint sets the first byte while it sends: if the worker dies then, half a packet is on the
    connection, and the supervisor must not send another. The dispatcher notes the function that it calls.
    """

    def __init__(self, fd: int) -> None:
        self.memory = mmap.mmap(fd, PAGE_BYTES)

    @property
    def sending(self) -> bool:
        """Whether the worker has sent a part of a reply."""
        return self.memory[_SENDING] != 0

    @property
    def listens(self) -> bool:
        """Whether the worker is ready for its client."""
        return self.memory[_LISTENS] != 0

    @listens.setter
    def listens(self, value: bool) -> None:
        self.memory[_LISTENS] = value

    @property
    def begun(self) -> bool:
        """Whether the client has begun the session."""
        return self.memory[_BEGUN] != 0

    @property
    def calling(self) -> str | None:
        """The name of the running function; None: no call runs."""
        if not self.memory[_CALLING]:
            return None
        size = min(int.from_bytes(self.memory[_NAME_SIZE : _NAME_SIZE + 2], "little"), _NAME_MAX)
        return self.memory[_NAME : _NAME + size].decode(errors="replace")

    @property
    def broken(self) -> str | None:
        """How the client broke the protocol, which ended its session; None: it did not."""
        size = min(int.from_bytes(self.memory[_WORDS_SIZE:_WORDS], "little"), _WORDS_MAX)
        return self.memory[_WORDS : _WORDS + size].decode(errors="replace") or None

    @broken.setter
    def broken(self, words: str) -> None:
        data = words.encode()[:_WORDS_MAX]
        self.memory[_WORDS : _WORDS + len(data)] = data
        self.memory[_WORDS_SIZE:_WORDS] = len(data).to_bytes(2, "little")

    @property
    def received(self) -> int:
        """Bytes received from the client."""
        return self._counter(_RECEIVED)

    @property
    def sent(self) -> int:
        """Bytes sent to the client."""
        return self._counter(_SENT)

    @property
    def calls(self) -> int:
        """Calls that have begun."""
        return self._counter(_CALLS)

    @property
    def activity(self) -> tuple[int, int, int]:
        """The counters, which change whenever the session does something."""
        return self.received, self.sent, self.calls

    @property
    def at_rest(self) -> bool:
        """Whether no request is carried out, and no reply is partly sent."""
        return not self.memory[_WORKING] and not self.sending

    @property
    def busy(self) -> bool:
        """Whether a call runs, or another request, such as an allocation, does not wait for the client."""
        return self.calling is not None or (self.memory[_WORKING] != 0 and not self.sending)

    @property
    def overdue(self) -> float | None:
        """If the running call's deadline has passed: the seconds that the client gave it. Else None."""
        due = self._counter(_DUE)
        return self._counter(_GIVEN) / 1e9 if 0 < due <= time.monotonic_ns() else None

    def _counter(self, at: int) -> int:
        return int.from_bytes(self.memory[at : at + 8], sys.byteorder)

    def close(self) -> None:
        """Unmap the page."""
        self.memory.close()


@contextmanager
def page_file() -> Iterator[int]:
    """The descriptor of a new page; two processes that map it share the page.

    The file is sealed: a worker runs code that a client sent, and if that shortened the file, the supervisor
    would get SIGBUS.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("farcall-page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, PAGE_BYTES)
        if hasattr(os, "memfd_create"):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        yield fd
    finally:
        os.close(fd)
