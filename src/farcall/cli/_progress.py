"""Shows progress on stderr: live bars on a terminal, one line for each phase elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from farcall.cli import _show, _talk

if TYPE_CHECKING:
    from rich.progress import TaskID

    from farcall import Progress

_WORTH_SHOWING = 8 * 1024 * 1024  # bytes; a shorter transfer is over before anyone has read its line
_PHASE_WIDTH = 9  # characters of the longest phase, "partition"

Show = Callable[["Progress"], None]


@contextmanager
def shown() -> Iterator[Show | None]:
    """Show the events of long work for the body, which passes the yielded callable as ``progress=``.

    On a terminal, each phase has a bar. In a pipe, with ``TERM=dumb`` or in continuous integration (``CI``),
    each phase gets one line when it ends. All of it goes to stderr.
    With ``--quiet``, the body gets None.
    """
    if _talk.quiet():
        yield None
    elif _is_live():
        with _bars() as show:
            yield show
    else:
        yield _line


def _is_live() -> bool:
    if not _talk.rich_output("stderr") or not sys.stderr.isatty() or os.environ.get("CI"):
        return False
    return find_spec("rich") is not None


def _worth(event: Progress) -> bool:
    return event.unit != "bytes" or (event.total or 0) >= _WORTH_SHOWING


def _line(event: Progress) -> None:
    if event.finished and _worth(event):
        _talk.note(f"{event.phase:<{_PHASE_WIDTH}}  {_text(event)}")


@contextmanager
def _bars() -> Iterator[Show]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.fields[phase]}"),
        BarColumn(24),
        TextColumn("{task.description}", markup=False),
    )
    with Bars(*columns, console=_talk.console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def show(event: Progress) -> None:
            if not _worth(event):
                return
            if not event.done or event.phase not in tasks:  # a phase may come again, as for two uploads
                phase = f"{event.phase:<{_PHASE_WIDTH}}"
                tasks[event.phase] = bars.add_task("", total=None, phase=phase)
            # Without a total the bar pulses: a phase of one step has nothing to show in between.
            total = event.total if event.finished or (event.total or 0) > 1 else None
            state: dict[str, Any] = {"total": total, "completed": event.done, "description": _text(event)}
            bars.update(tasks[event.phase], **state)

        yield show


def _text(event: Progress) -> str:
    parts = [event.message]
    if event.unit == "bytes" and event.total is not None:
        parts.append(_transferred(event.done, event.total, event.seconds))
    if event.finished:
        parts.append(f"{event.seconds:.1f} s")
    return ", ".join(filter(None, parts))


def _transferred(done: int, total: int, seconds: float) -> str:
    amount = _show.size(total) if done == total else f"{_show.size(done)} of {_show.size(total)}"
    if not done or not seconds:
        return amount
    left = "" if done == total else f", {(total - done) * seconds / done:.0f} s left"
    return f"{amount}, {_show.size(int(done / seconds))}/s{left}"
