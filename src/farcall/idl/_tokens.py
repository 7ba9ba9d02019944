"""Splits the text of an interface file into tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from farcall.idl._source import Place, Source

Kind: TypeAlias = Literal["name", "number", "text", "character", "include", "mark", "end"]

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f]+ | //[^\n]* | /\*(?s:.)*?\*/)
    | (?P<directive>\#[^\n]*)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>0[xX][0-9A-Fa-f]+ | (?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<text>"(?:[^"\\\n]|\\[^\n])*")
    | (?P<character>'(?:[^'\\\n]|\\[^\n])')
    | (?P<mark>[{}()\[\];:,<>=-])""",
    re.VERBOSE,
)
_INCLUDE = re.compile(r'#[ \t]*include[ \t]+(?:"([^"\n]*)"|<([^>\n]*)>)[ \t]*(?://.*|/\*.*\*/[ \t]*)?\r?$')
_IGNORED = re.compile(r"#[ \t]*pragma\b")
_GUARD = re.compile(r"#[ \t]*(?:ifndef|define|endif)\b")
_TOKENS_MAX = 200_000
_NAME_MAX = 100  # characters; C promises 63 significant ones, and generated names join two


@dataclass(frozen=True, slots=True)
class Token:
    """One token; the last one of a file has kind ``"end"``."""

    kind: Kind
    text: str
    place: Place


def tokens(source: Source) -> list[Token]:
    """The tokens of a file, without comments.

    Raises:
        IdlError: a character belongs to no token, or a directive is not supported.
    """
    text, found, at = source.text, list[Token](), 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _stray(Place(source, at), text[at : at + 2])
        kind, place = match.lastgroup, Place(source, at, match.end() - at)
        if kind == "directive":
            found += _directive(place, match.group())
        elif kind != "space":
            found.append(Token(kind, match.group(), place))  # type: ignore[arg-type] # the groups of _TOKEN
        if kind == "name" and place.size > _NAME_MAX:
            raise place.error(f"a name has at most {_NAME_MAX} characters, this one {place.size}; shorten it")
        if len(found) > _TOKENS_MAX:
            raise place.error(f"the file has more than {_TOKENS_MAX} tokens; split it")
        at = match.end()
    return [*found, Token("end", "end of file", Place(source, len(text)))]


def _stray(place: Place, text: str) -> Exception:
    if text == "/*":
        return place.error("this comment has no end; write */ behind it")
    if text[0] in "\"'":
        return place.error(f"this {text[0]} has no partner on its line; write the closing {text[0]}")
    return place.error(f"{text[0]!r} is not part of the language; remove it")


def _directive(place: Place, text: str) -> list[Token]:
    """The token of an #include; none for a #pragma, which has no meaning here."""
    if match := _INCLUDE.match(text):
        return [Token("include", match.group(1) or match.group(2) or "", place)]
    if _IGNORED.match(text) or _is_guard(text):
        return []
    word = re.sub(r"[^a-z]", "", text.partition(" ")[0]) or "this"
    raise place.error(
        f"the directive {word!r} is not supported: there is no preprocessor here. Write constants as "
        '`const long NAME = 1;`, and include files as `#include "file.idl"`'
    )


def _is_guard(text: str) -> bool:
    """Whether a directive belongs to an include guard. Each file is read once, so that guards do nothing."""
    words = text.lstrip("# \t").split("//")[0].split("/*")[0].split()
    return bool(_GUARD.match(text)) and len(words) <= 2
