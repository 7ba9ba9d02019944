"""Small texts for people, in logs and in the output of commands."""

from __future__ import annotations

from collections.abc import Mapping


def escaped(text: object) -> str:
    """``text`` without characters that could move a terminal's cursor, begin a line or reverse the text.

    Peers choose names, and such a character could make a line of a log pose as another.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def count(number: int, noun: str) -> str:
    """``1 call``, ``1,200 calls``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def counted(counts: Mapping[str, int], most: int | None = None) -> str:
    """Things and how often each occurs, such as ``Conv x2, MaxPool``; the first ``most`` of them."""
    parts = [f"{name} x{number}" if number > 1 else name for name, number in counts.items()]
    return ", ".join(parts[:most]) + (", ..." if most is not None and len(parts) > most else "")


def size(nbytes: float) -> str:
    """``nbytes`` in a readable unit: ``183.4 KiB``."""
    amount = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def duration(seconds: float) -> str:
    """A time in a readable unit: ``1.234 ms``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"
