"""``farcall call``: calls one function of a server, or of a library on this machine."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from farcall.cli import _complete, _show, _talk, _values
from farcall.cli._access import Access, access_options
from farcall.cli._printed import output_option, output_shown
from farcall.cli._settings import setting
from farcall.errors import FarcallError, UsageError

_NUMBER = re.compile(r"-(\d|\.\d|inf|Infinity|NaN)", re.IGNORECASE)


@click.command("call", context_settings={"ignore_unknown_options": True})
@click.argument("place", metavar="URL|LIBRARY", shell_complete=_complete.places)
@click.argument("function", shell_complete=_complete.functions)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@access_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the result: a tensor as .npy, any other value as JSON.",
)
@output_option
@setting("json")
def command(
    place: str,
    function: str,
    args: tuple[str, ...],
    access: Access,
    output: Path | None,
    show_output: bool,
    json_: bool,
) -> None:
    """Call FUNCTION of the server at URL, or of a LIBRARY on this machine, and print its result.

    An argument is JSON (3, 0.5, true, null, [1, 2], "3"), or @FILE.npy for a tensor. Other text is a string.

    \b
    farcall call tcp://board:9090 board.temperature
    farcall call tcp://board:9090 add 3 -4 --json
    farcall call ./kernels.so scale @x.npy 0.5 -o y.npy
    """
    values = [_read(text) for text in args]
    with ExitStack() as stack:
        called = _find(place, function, access, show_output, stack)
        start = time.perf_counter()
        result = _result(called, function, values)
        seconds = time.perf_counter() - start
        if output is not None:
            _values.save(output, result)
        if json_:
            facts = {"on": place, "function": function, "seconds": seconds, "result": _values.plain(result)}
            _show.as_json("call", facts)
        elif output is None:
            text = _values.shown(result)
            click.echo(_talk.safe(text) if sys.stdout.isatty() else text)
        _show.note(f"{function} on {place}: {seconds * 1e3:.3f} ms")


def _read(text: str) -> Any:
    if text.startswith("-") and not _NUMBER.match(text):
        raise click.UsageError(
            f"no such option: {text}; a text that begins with `-` is written as '\"{text}\"'"
        )
    return _values.read(text)


def _find(
    place: str, function: str, access: Access, show_output: bool, stack: ExitStack
) -> Callable[..., Any]:
    """The function, of a file or of a session.

    Raises:
        UsageError: the place has no such function.
    """
    import farcall as fc

    try:
        if Path(place).is_file():
            local: Callable[..., Any] = fc.load_module(place)[function]
            return local
        session = stack.enter_context(access.connect(place))
        stack.enter_context(output_shown(session, show_output))
        return session.get_function(function)
    except AttributeError as error:
        raise UsageError(str(error)) from None


def _result(called: Callable[..., Any], function: str, values: list[Any]) -> Any:
    try:
        return called(*values)
    except (FarcallError, TypeError, ValueError, OSError):
        raise
    except Exception as error:  # of the function: its kind may be any of Python's
        text = _talk.safe(str(error))
        raise click.ClickException(f"`{function}` raised {type(error).__name__}: {text}") from error
