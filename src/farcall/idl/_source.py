"""A file of the interface language, and errors that show a place in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from farcall._files import unusable
from farcall._texts import escaped
from farcall.errors import IdlError

LONGEST = 1 << 20  # bytes of a file
_SHOWN = 120  # characters of a line that an error shows


@dataclass(frozen=True)
class Source:
    """The text of a file, and its name in messages."""

    name: str
    text: str


class Place(NamedTuple):
    """A range of characters in a file."""

    source: Source
    start: int
    size: int = 1

    def error(self, problem: str) -> IdlError:
        """The error for a problem here. ``problem`` names the cure, too."""
        text = self.source.text
        begin = text.rfind("\n", 0, self.start) + 1
        line = text.count("\n", 0, begin) + 1
        column = self.start - begin + 1
        whole = text[begin:].partition("\n")[0].expandtabs(1).rstrip("\r")
        shown, before = _excerpt(whole, column - 1)
        carets = "^" * max(1, min(self.size, len(shown) - before))
        message = (
            f"{escaped(self.source.name)}:{line}:{column}: {problem}\n  {shown}\n  {' ' * before}{carets}"
        )
        return IdlError(message, self.source.name, line, column)


def _excerpt(line: str, at: int) -> tuple[str, int]:
    """At most _SHOWN characters of a line around position ``at``, and the position in them."""
    start = 0 if at < _SHOWN - 10 else at - _SHOWN // 2
    shown = "".join(c if c.isprintable() else "?" for c in line[start : start + _SHOWN])
    return shown, min(at - start, len(shown))


def read_source(path: Path) -> Source:
    """Read a file.

    Raises:
        MissingFileError: the file does not exist.
        UsageError: the file cannot be read.
        IdlError: the file is too long, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST + 1)
    except OSError as error:
        problem = error.strerror or str(error)
        raise unusable(error, f"cannot read {str(path)!r}: {problem}; name an .idl file") from None
    return source_of(str(path), data)


def source_of(name: str, data: bytes) -> Source:
    """The source with these bytes.

    Raises:
        IdlError: there are too many bytes, or they are not UTF-8.
    """
    if len(data) > LONGEST:
        raise IdlError(f"{name}: longer than {LONGEST} bytes; split it, and #include its parts", name, 1, 1)
    try:
        return Source(name, data.decode())
    except UnicodeDecodeError as error:
        good = Source(name, data[: error.start].decode() + "?")
        raise Place(good, len(good.text) - 1).error(
            "this byte is not UTF-8; save the file as UTF-8"
        ) from None
