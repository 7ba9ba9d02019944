"""The build of the site writes the page of the commands from click's commands, so that it is never stale."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc

import click
from sphinx.application import Sphinx

from farcall.cli import cli
from farcall.cli._settings import SETTINGS

COMMANDS = "<!-- the commands -->"
TABLE = "<!-- the settings -->"
SHOWN_AS_IT_IS = "\b"  # click's mark of a paragraph whose lines must not be joined


def described(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """The sections of a command and of the commands below it, in Markdown."""
    yield f"{'#' * level} {context.command_path}"
    yield from prose(command.help or command.short_help or "")
    yield f"```text\n{command.get_usage(context)}\n```"
    yield from map(described_parameter, listed(command, context))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below and not below.hidden:
                yield from described(below, click.Context(below, context, info_name=name), level + 1)


def prose(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", cleandoc(text)):
        first, _, rest = paragraph.partition("\n")
        if first == SHOWN_AS_IT_IS:
            yield f"```text\n{rest}\n```"
        else:
            yield escaped(paragraph)


def listed(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """The options with their descriptions, as ``--help`` has them. Those of all commands stand once."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and record[1] and (context.parent is None or record not in of_every_command(context)):
            yield record


def of_every_command(context: click.Context) -> list[tuple[str, str] | None]:
    """The options that all commands have. They stand once, below `farcall`."""
    root = context.find_root()
    return [parameter.get_help_record(root) for parameter in root.command.get_params(root)]


def described_parameter(record: tuple[str, str]) -> str:
    return f"`{record[0]}`\n: {escaped(record[1])}"


def escaped(text: str) -> str:
    """Markdown for plain text, in which only code in back quotes is marked."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[\\])", r"\\\1", part) for part in parts)


def table_of_settings() -> Iterator[str]:
    yield "| setting | variable | meaning |\n|---|---|---|\n"
    for setting in SETTINGS:
        option = f"`--{setting.name}`" if setting.commands or setting.choices else f"`{setting.name}`"
        yield f"| {option} | `{setting.variable}` | {escaped(setting.help).replace('|', chr(92) + '|')} |\n"


def write(app: Sphinx, page: str, source: list[str]) -> None:
    if COMMANDS in source[0]:
        text = "\n\n".join(described(cli, click.Context(cli, info_name="farcall"), 2))
        source[0] = source[0].replace(COMMANDS, text)
    source[0] = source[0].replace(TABLE, "".join(table_of_settings()))


def setup(app: Sphinx) -> None:
    app.connect("source-read", write)
