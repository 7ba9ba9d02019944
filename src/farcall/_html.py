"""Tables for notebooks: plain HTML in the colours of the page, without scripts. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

MOST_ROWS = 100
_TABLE = "border-collapse:collapse;margin:.4em 0"
_LEFT = "text-align:left;vertical-align:top;padding:.2em 1em .2em 0"
_MONO = "font-family:var(--jp-code-font-family,monospace)"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """A small table, of at most 100 rows.

    Args:
        title: the line above it.
        columns: the names of the columns; empty: no head, and the first cell of each row names the row.
        rows: the cells.
        note: a line below it.
    """
    rows = iter(rows)
    shown = "".join(map(_row if columns else _named_row, islice(rows, MOST_ROWS)))
    more = sum(1 for _ in rows)
    notes = [f"... and {more} more"] * bool(more) + [note] * bool(note)
    return (
        '<div class="farcall">'
        f"<div><strong>{escape(title)}</strong></div>"
        f'<table style="{_TABLE}">{_head(columns)}<tbody>{shown}</tbody></table>'
        + "".join(f'<div style="opacity:.7">{escape(text)}</div>' for text in notes)
        + "</div>"
    )


def parameters(title: str, rows: Iterable[tuple[str, str, str]], result: str) -> str:
    """The table of a function: each parameter (name, type and default), and the result."""
    all_rows = [*rows, ("→ result", result, "")]
    shown = 3 if any(default for _, _, default in all_rows) else 2
    return table(title, ("argument", "type", "default")[:shown], [row[:shown] for row in all_rows])


def pre(text: str) -> str:
    """Text in lines, as it is."""
    return f'<pre style="line-height:1.2">{escape(text)}</pre>'


def _head(columns: Sequence[str]) -> str:
    cells = "".join(f'<th style="{_LEFT}">{escape(name)}</th>' for name in columns)
    return f"<thead><tr>{cells}</tr></thead>" if columns else ""


def _row(cells: Sequence[object]) -> str:
    return "<tr>" + "".join(map(_cell, cells)) + "</tr>"


def _named_row(cells: Sequence[object]) -> str:
    name, *others = cells
    return f'<tr><th style="{_LEFT}">{escape(str(name))}</th>' + "".join(map(_cell, others)) + "</tr>"


def _cell(value: object) -> str:
    return f'<td style="{_LEFT};{_MONO}">{escape(str(value))}</td>'
