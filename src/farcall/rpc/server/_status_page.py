"""What a worker is doing, in memory that its supervisor can read when the worker is gone."""

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

# Offsets: FC_PAGE_* of native/session/server/serve.h, which says what each field is.
PAGE_BYTES = PAGE["size"]
_SENDING, _CALLING, _LISTENS, _BEGUN = PAGE["sending"], PAGE["calling"], PAGE["listens"], PAGE["begun"]
_NAME_SIZE, _NAME, _NAME_MAX = PAGE["name_size"], PAGE["name"], PAGE["name_max"]
_WORDS_SIZE, _WORDS, _WORDS_MAX = PAGE["words_size"], PAGE["words"], PAGE["words_max"]
_RECEIVED, _SENT, _CALLS = PAGE["received"], PAGE["sent"], PAGE["calls"]
_DUE, _GIVEN = PAGE["due"], PAGE["given"]


class StatusPage:
    """One page of memory that worker and supervisor share: what the worker is doing.

    The endpoint sets the first byte while it sends: had the worker died there, half a packet would be on the
    line, and the supervisor could add nothing that a client understands. The dispatcher notes the function
    that it calls.
    """

    def __init__(self, fd: int) -> None:
        self.memory = mmap.mmap(fd, PAGE_BYTES)

    @property
    def sending(self) -> bool:
        """Whether a reply is on its way in part."""
        return self.memory[_SENDING] != 0

    @property
    def listens(self) -> bool:
        """Whether the worker is ready for what its client says."""
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
        """The function that runs."""
        if not self.memory[_CALLING]:
            return None
        size = min(int.from_bytes(self.memory[_NAME_SIZE : _NAME_SIZE + 2], "little"), _NAME_MAX)
        return self.memory[_NAME : _NAME + size].decode(errors="replace")

    @property
    def broken(self) -> str | None:
        """How the client broke the protocol, which ended its session."""
        size = min(int.from_bytes(self.memory[_WORDS_SIZE:_WORDS], "little"), _WORDS_MAX)
        return self.memory[_WORDS : _WORDS + size].decode(errors="replace") or None

    @broken.setter
    def broken(self, words: str) -> None:
        data = words.encode()[:_WORDS_MAX]
        self.memory[_WORDS : _WORDS + len(data)] = data
        self.memory[_WORDS_SIZE:_WORDS] = len(data).to_bytes(2, "little")

    @property
    def received(self) -> int:
        """Bytes that came from the client."""
        return self._counter(_RECEIVED)

    @property
    def sent(self) -> int:
        """Bytes that went to it."""
        return self._counter(_SENT)

    @property
    def calls(self) -> int:
        """Calls that have begun."""
        return self._counter(_CALLS)

    @property
    def activity(self) -> tuple[int, int, int]:
        """What changes whenever the session does something."""
        return self.received, self.sent, self.calls

    @property
    def at_rest(self) -> bool:
        """Whether no call runs, and no reply is on its way in part."""
        return self.calling is None and not self.sending

    @property
    def overdue(self) -> float | None:
        """How many seconds its client gave the call that runs, when they are over; else None."""
        due = self._counter(_DUE)
        return self._counter(_GIVEN) / 1e9 if 0 < due <= time.monotonic_ns() else None

    def _counter(self, at: int) -> int:
        return int.from_bytes(self.memory[at : at + 8], sys.byteorder)

    def close(self) -> None:
        """Unmap it."""
        self.memory.close()


@contextmanager
def page_file() -> Iterator[int]:
    """The descriptor of a new page; two processes that map it share the page.

    A worker runs code that a client sent. It must not make the file shorter: whoever looks at a page that is
    not there gets SIGBUS.
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
