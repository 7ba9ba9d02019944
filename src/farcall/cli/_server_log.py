"""Shows on stderr what a server logs."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler

from farcall.cli import _talk

_WAITING = 10_000  # lines; when the reader of stderr stops, further lines are dropped
_CLOSE_SECONDS = 0.5  # for the last lines


class _Queue(QueueHandler):
    """Hands records to another thread: a terminal or a pipe that blocks must not stop the server."""

    def __init__(self) -> None:
        self.records: queue.Queue[logging.LogRecord | None] = queue.Queue(_WAITING)
        super().__init__(self.records)

    def enqueue(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(queue.Full):
            self.records.put_nowait(record)

    def write(self) -> None:
        """Write records until None comes. The process can end while a write blocks."""
        lines = logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
        while (record := self.records.get()) is not None:
            data = f"{lines.format(record)}\n".encode(errors="backslashreplace")
            with contextlib.suppress(OSError):  # nobody reads stderr any more
                while data:
                    data = data[os.write(2, data) :]


@contextmanager
def shown() -> Iterator[None]:
    """Show the server's records while the body runs.

    With ``--quiet``, only faults, crashes, and the table that SIGUSR1 asks for. With ``--verbose``, also
    details.
    """
    logger, handler = logging.getLogger("farcall"), _Queue()
    if _talk.quiet():
        handler.addFilter(lambda record: record.levelno >= logging.ERROR or _is_table(record))
    verbose = logger.level != logging.NOTSET  # set by --verbose
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.addHandler(handler)
    logger.propagate = False  # --verbose has given the root logger a handler, too
    writer = threading.Thread(target=handler.write, name="farcall-log", daemon=True)
    writer.start()
    try:
        yield
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(queue.Full):
            handler.records.put_nowait(None)
        writer.join(_CLOSE_SECONDS)


def _is_table(record: logging.LogRecord) -> bool:
    return getattr(record, "event", None) == "sessions"
