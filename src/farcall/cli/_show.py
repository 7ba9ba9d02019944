"""The output of commands: tables for people, one JSON object for programs, notes on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on stdout. A ``>`` at the end of a column's name aligns the column to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        grid.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left")
    for row in rows:
        grid.add_row(*(Text(str(cell)) for cell in row))  # no markup: `float32[n, 10]` is text
    console = Console()
    # A pipe has no width. Cells that are folded at 80 columns would break `grep`.
    (console if console.is_terminal else Console(width=200)).print(grid)


def as_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    click.echo(json.dumps(value, indent=2))


def note(text: str) -> None:
    """Print a note for the user on stderr, so that stdout holds only the result."""
    click.echo(text, err=True)


def size(nbytes: int) -> str:
    """``nbytes`` in a readable unit: ``183.4 KiB``."""
    amount = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
