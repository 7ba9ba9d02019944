"""Tables as plain text, in one style for commands and for the views of objects."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence

GLUE = "\u00a0"
"""A space at which a cell is folded only if the table would be too wide otherwise."""
_GAP = 2  # spaces between columns


def plain_table(right: Sequence[bool], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Columns that are aligned by spaces.

    Args:
        right: for each column, whether its cells are aligned to the right.
        rows: the cells; the first row has the names of the columns.
        width: the widest line, if words are short enough; cells are folded to keep it. None: no cell is
            folded.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    if width is not None:
        room = width - _GAP * (len(widths) - 1)
        if sum(least := list(map(_longest_word, columns))) > room:
            rows = [[cell.replace(GLUE, " ") for cell in row] for row in rows]
            least = list(map(_longest_word, zip(*rows, strict=True)))
        widths = _narrowed(widths, least, room)
    lines = (line for row in rows for line in _lines(row, widths, right))
    return "\n".join(lines).replace(GLUE, " ")


def _longest_word(column: Sequence[str]) -> int:
    return max(len(word) for cell in column for word in cell.split(" "))


def _narrowed(widths: list[int], least: list[int], room: int) -> list[int]:
    """The widest columns give way first, down to their longest words."""
    while sum(widths) > room and widths != least:
        i = max(range(len(widths)), key=lambda i: widths[i] * (widths[i] > least[i]))
        widths[i] -= 1
    return widths


def _lines(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    folded = [
        [cell] if len(cell) <= width else textwrap.wrap(cell, width)
        for cell, width in zip(row, widths, strict=True)
    ]
    return [
        (" " * _GAP)
        .join(
            part.rjust(width) if is_right else part.ljust(width)
            for part, width, is_right in zip(parts, widths, right, strict=True)
        )
        .rstrip()
        for parts in itertools.zip_longest(*folded, fillvalue="")
    ]
