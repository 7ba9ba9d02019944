"""The text of a pattern, parsed. ``_pattern.py`` defines what it means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from farcall.errors import UsageError


@dataclass(frozen=True)
class Operand:
    """A value in a pattern, by name (``_`` for an unnamed one)."""

    name: str
    optional: bool = False
    rest: bool = False
    constant: bool = False


@dataclass(frozen=True)
class Number:
    """A constant of one element, which has this value."""

    value: float


Setting: TypeAlias = "float | str | list[float]"  # what an attribute must be


@dataclass(frozen=True)
class Operator:
    """An operator in a pattern: any of ``kinds``, each (domain, op type), over operands.

    ``attributes`` are those that it must have. ``repeated``: a chain of one or more, in which each is the
    first operand of the next. ``optional``: its first operand may stand in its place.
    """

    kinds: frozenset[tuple[str, str]]
    operands: tuple[Part, ...]
    attributes: tuple[tuple[str, Setting], ...] = ()
    repeated: bool = False
    optional: bool = False

    @cached_property
    def plain(self) -> bool:
        """Whether all operands but the first are ``_``: they match any inputs that are given."""
        return all(one == Operand("_") for one in self.operands[1:])

    @cached_property
    def free(self) -> tuple[str, ...] | None:
        """The names of the operands, if these match any values that are given; None if one asks for more."""
        names = [one.name for one in self.operands if isinstance(one, Operand) and one == Operand(one.name)]
        named = [name for name in names if name != "_"]
        is_free = len(names) == len(self.operands) and len(set(named)) == len(named)
        return tuple(names) if is_free else None

    @cached_property
    def demanding(self) -> tuple[tuple[int, Operator | Number], ...]:
        """The operands that few values match, operators that must be there and numbers, with their places."""
        return tuple(
            (place, one)
            for place, one in enumerate(self.operands)
            if isinstance(one, Number) or (isinstance(one, Operator) and not one.optional)
        )


Part: TypeAlias = "Operator | Operand | Number"

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][\w.]*(?:::[A-Za-z_]\w*)?)"
    r"|(?P<number>-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r'|(?P<text>"[^"]*")|(?P<sign>[(),|?*=!+<>\[\]]))'
)


def parse(text: str) -> Operator:
    """The outermost operator of a pattern.

    Raises:
        UsageError: The text is not a valid pattern; the message has the place.
    """
    try:
        return _Parser(text).parse()
    except RecursionError:
        raise UsageError(f"pattern {text[:40]!r}...: it nests too deep; match a part of it") from None


def alternatives(root: Operator) -> tuple[Operator, ...]:
    """The operators that can be outermost: an optional one and what may stand in its place, in this order.

    Raises:
        UsageError: Every operator may be absent.
    """
    if not root.optional:
        return (root,)
    inner = root.operands[0] if root.operands else None
    if not isinstance(inner, Operator):
        raise UsageError("expected an operator that is not optional: without it, there is nothing to take")
    return (replace(root, optional=False), *alternatives(inner))


def parts(part: Part) -> Iterator[Part]:
    """The part and all that is inside it."""
    yield part
    if isinstance(part, Operator):
        for operand in part.operands:
            yield from parts(operand)


class _Parser:
    """Recursive descent over ``[name =] Operator``; its depth is that of the pattern's text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._at = 0

    def _split(self, text: str) -> Iterator[tuple[str, int, str]]:
        position = 0
        while text[position:].strip():
            token = _TOKEN.match(text, position)
            if token is None:
                rest = text[position:]
                raise self._error(
                    "a name or one of ( ) , | ? * ! + < > =", position + len(rest) - len(rest.lstrip())
                )
            kind = token.lastgroup or ""
            yield token.group().strip(), token.start(kind), kind
            position = token.end()

    def _error(self, expected: str, position: int) -> UsageError:
        return UsageError(f"pattern {self._text!r}: expected {expected} at character {position + 1}")

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _kind_of_token(self) -> str:
        return self._tokens[self._at][2] if self._at < len(self._tokens) else ""

    def _position(self) -> int:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else len(self._text)

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][0]

    def _take(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self._at += 1
        return True

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise self._error(f"{sign!r}", self._position())

    def parse(self) -> Operator:
        if len(self._tokens) > 1 and self._tokens[1][0] == "=":
            self._at = 2
        position = self._position()
        result = self._expression()
        if not isinstance(result, Operator):
            raise self._error("an operator, such as Relu(x),", position)
        if self._at < len(self._tokens):
            raise self._error("the end", self._position())
        return result

    def _expression(self) -> Part:
        if self._kind_of_token() == "number":
            return Number(float(self._next()))
        if self._kind_of_token() != "name":
            raise self._error("an operator or a name", self._position())
        name = self._peek()
        if "::" not in name and not name[0].isupper():
            self._at += 1
            return self._operand(name)
        return self._operator()

    def _operand(self, name: str) -> Operand:
        marks = {}
        while self._peek() in ("?", "!", "*") and self._peek():
            marks[self._next()] = True
        return Operand(name, optional="?" in marks, rest="*" in marks, constant="!" in marks)

    def _operator(self) -> Operator:
        kinds = {self._kind()}
        while self._take("|"):
            kinds.add(self._kind())
        attributes = tuple(self._attributes()) if self._take("<") else ()
        repeated = self._take("+")
        optional = self._take("?")
        self._need("(")
        position = self._position()
        operands = tuple(self._operands())
        if (repeated or optional) and not operands:
            raise self._error("an operand", position)
        if repeated and not all(isinstance(one, Operand) and one.name == "_" for one in operands[1:]):
            raise self._error("_ for every further operand of a repeated operator", position)
        return Operator(frozenset(kinds), operands, attributes, repeated, optional)

    def _kind(self) -> tuple[str, str]:
        domain, _, kind = self._peek().rpartition("::")
        if self._kind_of_token() != "name" or not kind[:1].isalpha():
            raise self._error("an operator", self._position())
        self._at += 1
        return domain, kind

    def _operands(self) -> Iterator[Part]:
        if self._take(")"):
            return
        while True:
            item = self._expression()
            yield item
            if isinstance(item, Operand) and item.rest:
                self._need(")")
                return
            if self._take(")"):
                return
            self._need(",")

    def _attributes(self) -> Iterator[tuple[str, Setting]]:
        while True:
            if self._kind_of_token() != "name":
                raise self._error("the name of an attribute", self._position())
            name = self._next()
            self._need("=")
            yield name, self._setting()
            if self._take(">"):
                return
            self._need(",")

    def _setting(self) -> Setting:
        if self._kind_of_token() == "text":
            return self._next()[1:-1]
        if not self._take("["):
            return self._number()
        items: list[float] = []
        while not self._take("]"):
            if items:
                self._need(",")
            items.append(self._number())
        return items

    def _number(self) -> float:
        if self._kind_of_token() != "number":
            raise self._error('a number, a list of numbers or a "text"', self._position())
        return float(self._next())
