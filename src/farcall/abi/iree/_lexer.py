"""Reads and writes fields, of which IREE's signatures of 2020 consist, both raw and SIP.

A signature is a run of fields without separators. An integer field is a tag (``_`` or a small letter) and a
decimal number of 32 bits: ``d-1``. A span is a capital letter, a count of bytes and that many bytes, of which
the first is ``!``: ``B4!d10``; its payload may be a run of fields again.

IREE's reader of that time skipped some broken fields, and never returned from others. Here any bytes either
are fields, or raise an error with the position of the first byte that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from farcall.errors import SignatureError

LONGEST = 1 << 20  # bytes of one signature: 10,000 arguments have 200 KB
REMEMBERED = 1 << 14  # bytes of one that is not read twice; longer ones would fill the memory

_INT32 = range(-(1 << 31), 1 << 31)
_FIELD = re.compile(r"([_a-z])(-?[0-9]++)|([A-Z])([0-9]++)!")
_DIGITS = 10  # of the largest int32
_EXCERPT = 16  # bytes of a signature that an error shows


# Tag, where the field starts, and the value of an integer field (the last is 0), or start and end of the
# payload of a span. A plain tuple: a signature has hundreds, and a class would double the time to read it.
Field: TypeAlias = tuple[str, int, int, int]


class Source(NamedTuple):
    """The bytes to read, as one character each, and their name in errors (``raw signature``)."""

    data: str
    what: str

    def error(self, at: int, problem: str) -> SignatureError:
        """The error for a problem, which shows its position in the bytes."""
        excerpt = self.data[at : at + _EXCERPT].encode("latin-1").decode("utf-8", "backslashreplace")
        more = "..." if at + _EXCERPT < len(self.data) else ""
        return SignatureError(f"{self.what}, byte {at} (at {excerpt + more!r}): {problem}")

    def text(self, start: int, end: int) -> str:
        """The payload of a span, decoded from UTF-8."""
        text = self.data[start:end]
        try:
            return text if text.isascii() else text.encode("latin-1").decode()
        except UnicodeDecodeError:
            raise self.error(start, "the text is not UTF-8") from None


def source(text: str | bytes, what: str) -> Source:
    """The source of a text, encoded in UTF-8.

    Raises:
        SignatureError: the text is longer than any signature, or is not valid UTF-8.
    """
    try:
        data = text if isinstance(text, bytes) else text.encode()
    except UnicodeEncodeError as error:
        raise SignatureError(f"{what}: not UTF-8 ({error.reason} at character {error.start})") from None
    if len(data) > LONGEST:
        raise SignatureError(f"{what}: {len(data)} bytes; at most {LONGEST} are read")
    return Source(data.decode("latin-1"), what)


def fields(source: Source, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """Yield the fields of ``data[start:end]``, in order. Positions refer to the whole source.

    Raises:
        SignatureError: the bytes at a position are not a field. The fields before it were yielded.
    """
    data, at = source.data, start
    end = len(data) if end is None else end
    match = _FIELD.match
    while at < end:
        found = match(data, at, end)
        if found is None:
            raise _problem(source, at, end)
        tag, digits, span_tag, size_digits = found.groups()
        start = found.end()
        if tag is not None:
            yield tag, at, int(digits) if len(digits) < _DIGITS else _integer(source, at, digits), 0
            at = start
            continue
        size = int(size_digits) if len(size_digits) < _DIGITS else _integer(source, at, size_digits)
        stop = start + size - 1
        if size == 0 or stop > end:
            raise _wrong_length(source, at, size, end - start + 1)
        yield span_tag, at, start, stop
        at = stop


def _integer(source: Source, at: int, digits: str) -> int:
    """Check the length of a number before converting it, since it may be huge."""
    digits_only = digits.lstrip("-").lstrip("0")
    value = int(digits_only or "0") if len(digits_only) <= _DIGITS else 1 << 32
    if (value := -value if digits.startswith("-") else value) not in _INT32:
        raise source.error(at, "the number does not fit into 32 bits")
    return value


def _wrong_length(source: Source, at: int, size: int, left: int) -> SignatureError:
    if size == 0:
        return source.error(at, "the length of a span counts its `!`: at least 1")
    return source.error(at, f"the span declares {size} bytes, {left} are left")


def _problem(source: Source, at: int, end: int) -> SignatureError:
    """The reason why no field starts at a position."""
    tag, rest = source.data[at : at + 1], source.data[at + 1 : end]
    if not re.match(r"[_a-zA-Z]", tag):
        return source.error(at, "expected a tag (`_`, a-z or A-Z)")
    if not re.match(r"-?[0-9]", rest):
        return source.error(at, f"expected a number after the tag `{tag}`")
    if rest.startswith("-"):
        return source.error(at, "the length of a span is negative")
    return source.error(at, "expected `!` after the length of a span")


def halves(source: Source, noun: str) -> tuple[Field, Field]:
    """The spans ``I`` (arguments) and ``R`` (results), in any order; the first of each counts.

    Fields with other tags are for other readers. This function reads them, too, so that none may be broken.

    Raises:
        SignatureError: a span is missing (errors call it a ``noun``), or the bytes are not fields.
    """
    found: dict[str, Field] = {}
    for field in fields(source):
        found.setdefault(field[0], field)
    for tag, name in (("I", "Inputs"), ("R", "Results")):
        if tag not in found:
            raise SignatureError(
                f"{source.what}: {name} {noun} not found: there is no field `{tag}` in its "
                f"{len(source.data)} bytes"
            )
    return found["I"], found["R"]


def integer(tag: str, value: int) -> bytes:
    """An integer field.

    Raises:
        SignatureError: the number has more than 32 bits.
    """
    if value not in _INT32:
        raise SignatureError(f"{value} does not fit into the 32 bits of an integer field `{tag}`")
    return b"%s%d" % (tag.encode(), value)


def span(tag: str, payload: bytes) -> bytes:
    """A span field."""
    return b"%s%d!%s" % (tag.encode(), len(payload) + 1, payload)


def text_span(tag: str, text: str) -> bytes:
    """A span whose payload is a text, in UTF-8.

    Raises:
        SignatureError: the text has lone surrogates.
    """
    try:
        return span(tag, text.encode())
    except UnicodeEncodeError as error:
        raise SignatureError(f"UTF-8 cannot encode the key {text!r}: {error.reason}") from None
