"""Fields: any bytes give fields, or an error with the position at which they are not valid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farcall.abi.iree import _lexer as lexer
from farcall.errors import SignatureError

from .vectors import Row, rows


def read(text: str | bytes) -> list[tuple[str, object]]:
    source = lexer.source(text, "text")
    return [(tag, source.text(value, end) if end else value) for tag, _, value, end in lexer.fields(source)]


@pytest.mark.parametrize("row", rows("tokens"), ids=lambda row: repr(row["s"]))
def test_vectors(row: Row) -> None:
    expected = [(tag, text if kind == "Span" else value) for kind, tag, value, text in row["tokens"]]
    last = row["tokens"][-1][0]
    if last == "End":
        assert read(row["s"]) == expected[:-1]
        return
    assert last == "Error"
    source = lexer.source(row["s"], "text")
    fields = lexer.fields(source)
    for (kind, tag, value, _), field in zip(row["tokens"][:-1], fields, strict=False):
        assert (kind, tag, value) == ("Integer", field[0], field[2])
    with pytest.raises(SignatureError, match="byte"):
        list(lexer.fields(source))


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("a", 0, "expected a number after the tag `a`"),
        ("_5_+12", 2, "expected a number after the tag `_`"),
        ("a-", 0, "expected a number after the tag `a`"),
        ("_1 ", 2, "expected a tag"),
        ("Z-3abc", 0, "the length of a span is negative"),
        ("Z4abc", 0, "expected `!` after the length of a span"),
        ("Z0!", 0, "at least 1"),
        ("Z5!abc", 0, "declares 5 bytes, 4 are left"),
        ("a2147483648", 0, "does not fit into 32 bits"),
        ("a-2147483649", 0, "does not fit into 32 bits"),
        ("a" + "9" * 5000, 0, "does not fit into 32 bits"),
        ("Z" + "9" * 5000 + "!", 0, "does not fit into 32 bits"),
    ],
)
def test_broken_fields_are_told_with_position_and_excerpt(text: str, at: int, problem: str) -> None:
    with pytest.raises(SignatureError) as error:
        read(text)
    assert str(error.value).startswith(f"text, byte {at} (at '{text[at : at + 16]}")
    assert problem in str(error.value)


def test_numbers_may_have_zeros_before_them() -> None:
    assert read("_007I01!a-0b" + "0" * 5000 + "1") == [("_", 7), ("I", ""), ("a", 0), ("b", 1)]
    assert read("a2147483647b-2147483648") == [("a", 2**31 - 1), ("b", -(2**31))]


def test_lengths_are_bytes() -> None:
    assert read("K3!é") == [("K", "é")]
    with pytest.raises(SignatureError, match="not UTF-8"):
        read(b"K2!\xff")
    with pytest.raises(SignatureError, match="not UTF-8"):
        read("K2!\ud800")


def test_a_signature_has_a_largest_size() -> None:
    with pytest.raises(SignatureError, match="at most 1048576 are read"):
        lexer.source("a" * (lexer.LONGEST + 1), "text")


@given(st.binary(max_size=40) | st.text("_azAZ019-!", max_size=40).map(str.encode))
def test_any_bytes_are_fields_or_an_error(data: bytes) -> None:
    source = lexer.source(data, "bytes")
    try:
        found = list(lexer.fields(source))
    except SignatureError:
        return
    ends = [end or at for _, at, _, end in found]
    assert ends == sorted(ends)
    again = b"".join(
        lexer.span(tag, data[value:end]) if end else lexer.integer(tag, value) for tag, _, value, end in found
    )
    assert read_back(again) == read_back(data)


def read_back(data: bytes) -> list[tuple[str, object]]:
    source = lexer.source(data, "bytes")
    return [(tag, source.data[value:end] if end else value) for tag, _, value, end in lexer.fields(source)]
