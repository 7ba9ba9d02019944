"""Runs code of others in child processes, which may crash or hang: the caller gets what became of it."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import IO, TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
R = TypeVar("R")

_LOOK = 0.5  # seconds between looks at the child: processes that it started may hold its pipes open
_END = 5.0  # seconds that a child which closed its pipe gets to end
_SHOWN = 200  # characters of the last line that the child wrote


class EndedError(Exception):
    """A child process ended without an answer, or gave none in time. The text says which.

    Attributes:
        late: whether it was the time.
    """

    def __init__(self, text: str, *, late: bool = False) -> None:
        super().__init__(text)
        self.late = late


def in_child(
    work: Callable[[T], R], items: Sequence[T], seconds: float
) -> Iterator[tuple[T, R | EndedError]]:
    """Call a function for each item, in a child process that is forked from this one.

    The child has all that the caller has, so the function may be a closure. What it returns must be
    picklable. Behind an item that ends the child, a new one is forked for the others.

    Args:
        work: the function.
        items: its arguments.
        seconds: how long it may take for an item. The child and the processes that it started end then.

    Yields:
        Each item, with what the function returned, or with how the child ended.
    """
    done = 0
    while done < len(items):
        child = _Child(work, items[done:])
        try:
            for item in items[done:]:
                done += 1
                try:
                    answer: R = child.answer(seconds)
                except EndedError as error:
                    yield item, error
                    break
                yield item, answer
        finally:
            child.end()


class _Child:
    """A forked process, in a group of its own."""

    def __init__(self, work: Callable[[Any], object], items: Sequence[object]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe(duplex=False)
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - end() closes it
        self._process = context.Process(target=_run, args=(work, items, theirs, self._words))
        with warnings.catch_warnings(action="ignore"):  # Python warns of threads, such as a progress bar's
            self._process.start()
        self._pid = self._process.pid or 0
        theirs.close()
        with suppress(OSError):  # the child has done so itself
            os.setpgid(self._pid, self._pid)

    def answer(self, seconds: float) -> Any:
        """The next thing that the child sends.

        Raises:
            EndedError: it sends nothing.
        """
        end = time.monotonic() + seconds
        while not self._pipe.poll():
            if not self._process.is_alive() and not self._pipe.poll():
                raise EndedError(self._told(_ending(self._process.exitcode or 0)))
            if time.monotonic() > end:
                raise EndedError(self._told(f"no answer in {seconds:g} s"), late=True)
            wait([self._pipe, self._process.sentinel], _LOOK)
        try:
            return self._pipe.recv()
        except EOFError:
            self._process.join(_END)
            raise EndedError(self._told(_ending(self._process.exitcode or 0))) from None

    def end(self) -> None:
        """End the child, and what it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        self._process.join()
        self._process.close()
        self._pipe.close()
        self._words.close()

    def _told(self, what: str) -> str:
        """What happened, with the last line that the child wrote."""
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        return f"{what}: {lines[-1].strip()[:_SHOWN]}" if lines else what


def _run(work: Callable[[Any], object], items: Sequence[object], pipe: Connection, words: IO[bytes]) -> None:
    """What the child does."""
    with suppress(OSError):
        os.setpgid(0, 0)
    faulthandler.disable()  # the last line that the code wrote says more
    os.dup2(words.fileno(), 2)
    for item in items:
        pipe.send(work(item))


def _ending(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"the process ended with exit status {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"the process crashed ({name}, {signal.strsignal(-code)})"
