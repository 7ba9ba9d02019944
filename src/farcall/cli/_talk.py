"""How commands talk: the options ``--quiet``, ``--verbose``, ``--color`` and ``--debug`` of every command."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

_Command = TypeVar("_Command", bound=click.Command)

_quiet = False
_color = "auto"


def _be_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    global _quiet
    _quiet = value or (_quiet and ctx.parent is not None)


def _log(ctx: click.Context, param: click.Parameter, count: int) -> None:
    """Show what the library logs: ``-v`` its steps, ``-vv`` their details."""
    if count:
        import logging

        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("farcall").setLevel(logging.DEBUG if count > 1 else logging.INFO)


def _paint(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    global _color
    if value is not None or ctx.parent is None:
        _color = value or "auto"


def set_color(value: str | None) -> None:
    """Use the colour of a file of settings, if neither an option nor the environment has one."""
    global _color
    if value is not None and _color == "auto":
        _color = value


def _options() -> list[click.Option]:
    return [
        click.Option(
            ["-q", "--quiet"], is_flag=True, expose_value=False, callback=_be_quiet, help="Print no notes."
        ),
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=_log,
            help="Log each step on stderr; -vv: with details.",
        ),
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            envvar="FARCALL_COLOR",
            expose_value=False,
            callback=_paint,
            help="Colours and lines of tables; auto: on a terminal.",
        ),
        click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error."),
    ]


def with_options(command: _Command) -> _Command:
    """Add the options that a command and its subcommands lack. A command may define its own."""
    taken = {text for param in command.params for text in param.opts}
    command.params += [option for option in _options() if not taken & set(option.opts)]
    if isinstance(command, click.Group) and type(command).get_command is click.Group.get_command:
        for child in command.commands.values():
            with_options(child)
    return command


def quiet() -> bool:
    """Whether the user wants no notes (``--quiet``)."""
    return _quiet


def note(text: str) -> None:
    """Print a note for the user on stderr, so that stdout holds only the result. Not with ``--quiet``."""
    if not quiet():
        click.echo(text, err=True)


def safe(text: str) -> str:
    """``text`` for a terminal: escapes from a server must not move its cursor or change its title."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def rich_output(stream: str = "stdout") -> bool:
    """Whether a stream shows lines and colours (``FORCE_COLOR``: see force-color.org)."""
    if _color != "auto":
        return _color == "always"
    if os.environ.get("FORCE_COLOR"):
        return True
    return getattr(sys, stream).isatty() and os.environ.get("TERM") != "dumb"


def console(*, stderr: bool = False) -> Console:
    """A console of rich for :func:`rich_output`. It removes colours where ``NO_COLOR`` asks for that."""
    from rich.console import Console

    return Console(stderr=stderr, force_terminal=True)
