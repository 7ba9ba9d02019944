"""Small texts for people, in logs and in the output of commands."""

from __future__ import annotations


def escaped(text: object) -> str:
    """``text`` without characters that could move a terminal's cursor, begin a line or reverse the text.

    Peers choose names, and such a character could make a line of a log pose as another.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def count(number: int, noun: str) -> str:
    """``1 call``, ``1,200 calls``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def size(nbytes: float) -> str:
    """``nbytes`` in a readable unit: ``183.4 KiB``."""
    amount = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
