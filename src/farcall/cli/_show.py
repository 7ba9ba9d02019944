"""The output of commands: tables for people, one JSON object for programs, notes on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from farcall._table import plain_table
from farcall._texts import duration, size
from farcall.cli import _streams, _talk
from farcall.cli._talk import note

__all__ = ["as_json", "as_json_line", "duration", "note", "size", "table"]


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on stdout. A ``>`` at the end of a column's name aligns the column to the right.

    A pipe gets the same cells as plain text, one line a row: a pipe has no width, and cells that are folded
    would break ``grep``.
    """
    right = [name.endswith(">") for name in columns]
    cells = [
        [name.rstrip(">") for name in columns],
        *([_talk.safe(str(cell)) for cell in row] for row in rows),
    ]
    if not _talk.rich_output() or not _rich_table(title, right, cells):
        click.echo(f"{title}\n{plain_table(right, cells)}")


def _rich_table(title: str, right: Sequence[bool], cells: Sequence[Sequence[str]]) -> bool:
    """Print a table by rich; False: rich is not installed."""
    try:
        from rich import box
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    grid = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_right in zip(cells[0], right, strict=True):
        grid.add_column(Text(name), justify="right" if is_right else "left", overflow="fold")
    for row in cells[1:]:
        grid.add_row(*map(Text, row))  # no markup: `float32[n, 10]` is text
    _talk.console().print(grid)
    return True


def as_json(name: str, value: Mapping[str, Any], version: int = 1) -> None:
    """Print one JSON object on stdout. It says which schema of docs/schemas it follows.

    Args:
        name: of the command, such as ``"token list"``.
        value: the object.
        version: of the schema. A new field keeps it; a field that goes or changes its meaning raises it.
    """
    text = json.dumps({"schema": schema(name, version), **value}, indent=2)
    click.echo(text, file=_streams.for_json())


def as_json_line(name: str, value: Mapping[str, Any], version: int = 1) -> None:
    """Print one JSON object in one line of a stream on stdout."""
    click.echo(json.dumps({"schema": schema(name, version), **value}), file=_streams.for_json())


def schema(name: str, version: int = 1) -> str:
    """The name of a command's schema: ``farcall.token-list/1``."""
    return f"farcall.{name.replace(' ', '-')}/{version}"
