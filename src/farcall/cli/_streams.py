"""Keeps standard output for the JSON of a command: what backends and kernels print goes to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import click

_STDOUT, _STDERR = 1, 2
_kept: list[IO[str]] = []


def only_json(context: click.Context, _: click.Parameter, wanted: bool) -> bool:
    """The callback of an option ``--json``: until the command ends, others print to standard error."""
    if wanted and not context.resilient_parsing:
        context.with_resource(_stdout_kept())
    return wanted


def for_json() -> IO[str]:
    """Where a command prints its JSON."""
    return _kept[-1] if _kept else sys.stdout


@contextmanager
def _stdout_kept() -> Iterator[None]:
    given = sys.stdout
    given.flush()
    with _descriptor_moved() if _is_real(given) else _as_given(given) as kept:
        _kept.append(kept)
        sys.stdout = sys.stderr
        try:
            yield
        finally:
            sys.stdout = given
            _kept.pop()


def _is_real(stream: IO[str]) -> bool:
    """Whether a stream writes to the process's standard output, as C code does."""
    try:
        return stream.fileno() == _STDOUT
    except (OSError, ValueError):
        return False


@contextmanager
def _as_given(stream: IO[str]) -> Iterator[IO[str]]:
    yield stream


@contextmanager
def _descriptor_moved() -> Iterator[IO[str]]:
    """Lets C code print to standard error, too."""
    import ctypes

    with os.fdopen(os.dup(_STDOUT), "w", encoding="utf-8") as kept:
        with suppress(OSError):  # there is no standard error
            os.dup2(_STDERR, _STDOUT)
        try:
            yield kept
        finally:
            ctypes.CDLL(None).fflush(None)  # what C code printed is still in its buffer
            kept.flush()
            os.dup2(kept.fileno(), _STDOUT)
