"""Reads a function's parameter names in C++ text, for messages, keywords and defaults.

This is not a C++ parser. It finds ``name(...)`` behind a type, and returns None for a construct that it does
not understand. The names are optional, and the compiler checks that their number matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
      | (?P<raw>(?:u8|[uUL])?R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)")
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<char>'(?:[^'\\\n]|\\.)*')
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<mark>::|->|<<|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_OPEN = {"(": ")", "[": "]", "{": "}", "<": ">"}
_CLOSE = set(_OPEN.values())
_TYPE_WORDS = frozenset(
    {"auto", "bool", "char", "const", "double", "enum", "float", "int", "long", "short", "signed", "struct"}
    | {"size_t", "unsigned", "void", "volatile"}
    | {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
_ARITHMETIC = frozenset("+-*/%()&|^~") | {"<<"}
# These words come before a call, and never before a declaration.
_NO_TYPES = frozenset(
    {"return", "throw", "new", "delete", "else", "do", "co_return", "co_await", "case", "goto"}
)


OWN = "..."
"""Stands for a default that only the function's own source defines, such as a constant."""


@dataclass(frozen=True)
class Parameter:
    """A parameter's name, and its default as C++ text (None: it has none)."""

    name: str
    default: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether only the function itself knows the default."""
        return self.default == OWN


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


class Declarations:
    """The declarations in a source text, which is read once."""

    def __init__(self, source: str) -> None:
        """Split ``source`` into tokens, and note where each name stands between a type and a parenthesis."""
        self._tokens = tokens = list(_tokens(source))
        self._places: dict[str, list[int]] = {}
        for i in range(1, len(tokens) - 1):
            if tokens[i].kind == "word" and tokens[i + 1].text == "(" and _ends_type(tokens[i - 1]):
                self._places.setdefault(tokens[i].text, []).append(i)

    def names(self) -> list[str]:
        """The names that the source declares as functions, in order."""
        return list(self._places)

    def parameters(self, function: str) -> list[Parameter] | None:
        """The parameters of ``function`` as the source declares it.

        Returns:
            None if the function is not found, is overloaded, or has a parameter without a name. If there are
            several declarations, the names come from the first, and the defaults from all. A call, as in
            ``2 * f(x)``, does not count, since it has no types.
        """
        found = (_parameters(self._tokens, place) for place in self._places.get(function, ()))
        declarations = [one for one in found if one is not None]
        return _merge(declarations) if declarations else None


def _merge(declarations: list[list[Parameter]]) -> list[Parameter] | None:
    first = declarations[0]
    if any(len(one) != len(first) for one in declarations):
        return None
    columns = zip(*declarations, strict=True)
    return [
        Parameter(column[0].name, next((p.default for p in column if p.default is not None), None))
        for column in columns
    ]


def _tokens(source: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(source):
        kind = match.lastgroup or "mark"
        if match["skip"] is None:
            yield _Token("raw" if match["raw"] else kind, match[0])


def _ends_type(token: _Token) -> bool:
    """Whether a type may end here, so that the next word is the declared name."""
    return (token.kind == "word" and token.text not in _NO_TYPES) or token.text in (">", "*", "&")


def _parameters(tokens: Sequence[_Token], name: int) -> list[Parameter] | None:
    parts, end = _split(tokens, name + 2)
    if end is None or end + 1 >= len(tokens) or tokens[end + 1].text not in ("{", ";", "noexcept", "->"):
        return None
    if parts == [[]] or [[t.text for t in part] for part in parts] == [["void"]]:
        return []
    named = [_parameter(part) for part in parts]
    return [one for one in named if one] if all(named) else None


def _split(tokens: Sequence[_Token], start: int) -> tuple[list[list[_Token]], int | None]:
    """The parts between commas from ``start`` to the closing parenthesis, and its position."""
    parts: list[list[_Token]] = [[]]
    expected: list[str] = []  # the closing bracket of each open one
    for i in range(start, len(tokens)):
        text = tokens[i].text
        if text == ")" and set(expected) <= {">"}:  # an open `<` was a comparison, not a bracket
            return parts, i
        if not (text == "<" and tokens[i - 1].kind != "word"):  # a comparison
            _follow(text, expected)
        if text == "," and not expected:
            parts.append([])
        else:
            parts[-1].append(tokens[i])
    return parts, None


def _follow(text: str, expected: list[str]) -> None:
    if text in _OPEN:
        expected.append(_OPEN[text])
    elif text in _CLOSE:
        while text != ">" and expected[-1:] == [">"]:
            expected.pop()
        if expected[-1:] == [text]:
            expected.pop()


def _parameter(part: list[_Token]) -> Parameter | None:
    texts = [token.text for token in part]
    cut = texts.index("=") if "=" in texts else len(part)
    if cut < 2 or part[cut - 1].kind != "word" or part[cut - 2].text == "::" or texts[cut - 1] in _TYPE_WORDS:
        return None  # the parameter has no name, or the name could be a type
    if all(text in ("const", "volatile", "struct", "enum") for text in texts[: cut - 1]):
        return None
    return Parameter(texts[cut - 1], _default(texts[: cut - 1], part[cut + 1 :]))


def _default(type_: list[str], value: list[_Token]) -> str | None:
    """The default as text that means the same in any scope: a literal, or arithmetic on numbers."""
    texts = [token.text for token in value]
    if not texts:
        return None
    if texts == ["{", "}"]:
        return _empty(set(type_))
    if texts in (["true"], ["false"], ["nullptr"]):
        return texts[0]
    if texts in (["nullopt"], ["std", "::", "nullopt"]):
        return "nullptr"  # None
    if len(value) == 1 and value[0].kind in ("number", "string"):
        return texts[0]
    if all(token.kind == "number" or token.text in _ARITHMETIC for token in value):
        return "".join(texts) if len(texts) == 2 else f"({' '.join(texts)})"
    return OWN


def _empty(type_: set[str]) -> str:
    """The value of ``{}`` for a type."""
    if type_ & {"Optional", "optional"}:
        return "nullptr"
    if "<" in type_:
        return OWN
    if type_ & {"string", "string_view", "String"}:
        return '""'
    if type_ & {"float", "double"}:
        return "0.0"
    return "false" if "bool" in type_ else "0" if type_ & _TYPE_WORDS - {"const", "auto"} else OWN
