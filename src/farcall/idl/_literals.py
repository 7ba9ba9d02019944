"""Values of constants."""

from __future__ import annotations

import re

from farcall.idl._tokens import Token
from farcall.idl._types import Enum, Scalar, Text

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", "'": "'", '"': '"'}
_DIGITS_MAX = 40


def literal(
    token: Token, named: int | float | str | None, kind: Scalar | Enum | Text, *, negative: bool
) -> int | float | str:
    """The value of a token, or the value ``named`` of the constant that it names, as a ``kind``.

    Raises:
        IdlError: the value does not fit the type.
    """
    value = named if named is not None else _plain(token)
    if negative:
        if isinstance(value, str):
            raise token.place.error("a text has no negative; remove the `-`")
        value = -value
    if isinstance(kind, Text) != isinstance(value, str):
        raise token.place.error(f"expected {'a text in quotes' if isinstance(kind, Text) else 'a number'}")
    if isinstance(kind, Text):
        return value
    assert not isinstance(value, str)  # noqa: S101
    return _fitting(token, value, kind)


def _fitting(token: Token, value: int | float, kind: Scalar | Enum) -> int | float:
    if kind.code in "fd":
        largest = 3.4028234663852886e38 if kind.code == "f" else 1.7976931348623157e308
        if not abs(value) <= largest:
            raise token.place.error(
                f"the number does not fit into a {kind.name}; write double, or a smaller one"
            )
        return float(value)
    bits = 8 * kind.size
    low, high = (0, (1 << bits) - 1) if kind.code.isupper() else (-(1 << bits - 1), (1 << bits - 1) - 1)
    if kind.name == "boolean":
        high = 1
    if isinstance(value, float) or not low <= value <= high:
        raise token.place.error(f"a constant of type {kind.name} is a whole number from {low} to {high}")
    return value


def _plain(token: Token) -> int | float | str:
    match token.kind:
        case "number":
            return _number(token)
        case "character":
            return ord(_unescaped(token)[0])
        case "text":
            return _unescaped(token)
        case "name" if token.text in ("TRUE", "FALSE"):
            return int(token.text == "TRUE")
        case _:
            raise token.place.error(
                "expected a value: a number, TRUE, FALSE, 'c', \"text\" or a constant's name"
            )


def _number(token: Token) -> int | float:
    text = token.text
    if len(text) > _DIGITS_MAX:
        raise token.place.error(f"a number has at most {_DIGITS_MAX} digits")
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if text.isdigit():
        if text[0] == "0" and text.strip("0"):
            raise token.place.error("a leading 0 would mean octal in C; write 0x..., or remove the 0")
        return int(text)
    value = float(text)
    if value in (float("inf"),):
        raise token.place.error("the number is too large for a double")
    return value


def _unescaped(token: Token) -> str:
    """The text between the quotes. ASCII only: what a `char` holds elsewhere depends on the machine."""

    def one(match: re.Match[str]) -> str:
        if match.group(1) not in _ESCAPES:
            raise token.place.error(f"unknown escape \\{match.group(1)}; known are {' '.join(_ESCAPES)}")
        return _ESCAPES[match.group(1)]

    text = re.sub(r"\\(.)", one, token.text[1:-1], flags=re.DOTALL)
    if not text.isascii():
        raise token.place.error("texts of constants are ASCII; other characters can be passed at run time")
    return text
