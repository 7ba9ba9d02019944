"""Text in pictures: its width, its length, and its escaping."""

from __future__ import annotations

import re
from functools import lru_cache
from xml.sax.saxutils import escape

# Widths of characters relative to the font's size. They are those of DejaVu Sans, which is the widest of the
# fonts that the style names, so that a text fits with each of them.
_NARROW = dict.fromkeys("ijl|'", 0.28) | dict.fromkeys(".,:;! I[]()/ tfr-", 0.41)
_WIDE = (
    dict.fromkeys("mwMW@%", 0.98)
    | dict.fromkeys("ABCDEFGHKNOPQRUVXYZ&", 0.77)
    | {"\u00d7": 0.84, "\u2026": 1.0}
)
_OTHER = 0.64
_BOLD = 1.12

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@lru_cache(maxsize=4096)
def width(text: str, size: float, *, bold: bool = False) -> float:
    """An upper bound of the width of a text, in pixels.

    Args:
        text: one line.
        size: of the font, in pixels.
        bold: whether the font is bold.
    """
    units = sum(_WIDE.get(char) or _NARROW.get(char) or (_OTHER if char < "\u0250" else 1.1) for char in text)
    return units * size * (_BOLD if bold else 1.0)


def shorten(text: str, length: int) -> str:
    """One line of at most ``length`` characters; an ellipsis replaces the middle of a longer one."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    return f"{line[: length // 2]}\u2026{line[len(line) - (length - length // 2 - 1) :]}"


def xml(text: str) -> str:
    """Text as XML content or as a quoted attribute; characters that XML 1.0 does not allow become U+FFFD."""
    return escape(_NOT_XML.sub("\ufffd", text), {'"': "&quot;"})
