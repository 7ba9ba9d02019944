"""Patterns: groups of operators that a backend takes together, written as expressions.

    Pattern("conv_relu", "Relu(Conv(x, w, b?))")
    Pattern("linear", "Add(MatMul(x, w), b)")
    Pattern("silu", "Mul(x, Sigmoid(x))")
    Pattern("join", "Relu|Clip(Concat(parts*))")

A name that begins with a capital letter is an operator. ``A|B`` matches either operator, ``domain::Op`` one
of another domain. A name that begins with a small letter matches any value: the same name twice is the same
value, ``b?`` may be absent, ``parts*`` matches all further inputs, ``_`` matches any value without naming it.
An input that the pattern does not mention must be absent. ``Add``, ``Mul`` and other commutative operators
match with their two operands in either order.

Only the outputs of the outermost operator are used outside the match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from farcall.errors import UsageError
from farcall.graph._region import Match

Check = Callable[[Match], "str | None"]

_COMMUTATIVE = "Add Mul Min Max Sum Mean And Or Xor Equal BitwiseAnd BitwiseOr BitwiseXor"
COMMUTATIVE = frozenset(_COMMUTATIVE.split(" "))


@dataclass(frozen=True)
class Operand:
    """A value in a pattern, by name (``_`` for an unnamed one)."""

    name: str
    optional: bool = False
    rest: bool = False


@dataclass(frozen=True)
class Operator:
    """An operator in a pattern: any of ``kinds``, each (domain, op type), over operands."""

    kinds: frozenset[tuple[str, str]]
    operands: tuple[Operator | Operand, ...]


_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_][\w.]*(?:::[A-Za-z_]\w*)?)|(?P<sign>[(),|?*=]))")


class _Parser:
    """Recursive descent over ``[name =] Operator``; its depth is that of the pattern's text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._at = 0

    def _split(self, text: str) -> Iterator[tuple[str, int]]:
        position = 0
        while text[position:].strip():
            token = _TOKEN.match(text, position)
            if token is None:
                rest = text[position:]
                raise self._error("a name or one of ( ) , | ? *", position + len(rest) - len(rest.lstrip()))
            yield token.group().strip(), token.start("name" if token["name"] else "sign")
            position = token.end()

    def _error(self, expected: str, position: int) -> UsageError:
        return UsageError(f"pattern {self._text!r}: expected {expected} at character {position + 1}")

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _position(self) -> int:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else len(self._text)

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

    def _expression(self) -> Operator | Operand:
        name = self._peek()
        if not name[:1].isalpha() and name[:1] != "_":
            raise self._error("an operator or a name", self._position())
        self._at += 1
        if "::" not in name and not name[0].isupper():
            return Operand(name, optional=self._take("?"), rest=self._take("*"))
        kinds = {self._kind(name)}
        while self._take("|"):
            kinds.add(self._kind(self._peek()))
            self._at += 1
        self._need("(")
        return Operator(frozenset(kinds), tuple(self._operands()))

    def _kind(self, name: str) -> tuple[str, str]:
        domain, _, kind = name.rpartition("::")
        if not kind[:1].isalpha():
            raise self._error("an operator", self._position())
        return domain, kind

    def _operands(self) -> Iterator[Operator | Operand]:
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


class Pattern:
    """A group of operators that a backend takes together.

    Args:
        name: The name of the matches in regions, such as ``"conv_relu"``.
        text: The expression; the module's docstring defines its syntax.
        check: Called with each match; returns the reason not to take it, or None to take it. Shapes and
            dtypes are inferred before the call; ``match.values`` maps the pattern's names to values.

    Raises:
        UsageError: The text is not a valid pattern.
    """

    def __init__(self, name: str, text: str, check: Check | None = None) -> None:
        self.name = name
        self.text = text
        self.check = check
        self.root = _Parser(text).parse()

    def __repr__(self) -> str:
        return f"Pattern({self.name!r}, {self.text!r})"

    def match(self, node: ir.Node) -> Match | None:
        """The match whose outermost operator is ``node``, or None. ``check`` is not called."""
        for attempt in _match_operator(self.root, node, _Attempt((), {})):
            nodes = tuple(reversed(attempt.nodes))
            return Match(self.name, nodes, attempt.values)
        return None


@dataclass(frozen=True)
class _Attempt:
    """The nodes matched so far, outermost first, and the values of the names."""

    nodes: tuple[ir.Node, ...]
    values: dict[str, ir.Value | None]


_Part = Operator | Operand


def _match_operator(want: Operator, node: ir.Node, attempt: _Attempt) -> Iterator[_Attempt]:
    domain = "" if node.domain == "ai.onnx" else node.domain
    if (domain, node.op_type) not in want.kinds or node in attempt.nodes:
        return
    begun = _Attempt((*attempt.nodes, node), attempt.values)
    yield from _match_operands(want.operands, tuple(node.inputs), begun)
    if len(want.operands) == 2 and len(node.inputs) == 2 and node.op_type in COMMUTATIVE and not domain:
        yield from _match_operands(want.operands, tuple(reversed(node.inputs)), begun)


def _match_operands(
    wants: tuple[_Part, ...], given: tuple[ir.Value | None, ...], attempt: _Attempt
) -> Iterator[_Attempt]:
    if not wants:
        if all(value is None for value in given):
            yield attempt
        return
    want, value = wants[0], given[0] if given else None
    if isinstance(want, Operand) and want.rest:
        yield attempt
        return
    for found in _match_part(want, value, attempt):
        yield from _match_operands(wants[1:], given[1:], found)


def _match_part(want: _Part, value: ir.Value | None, attempt: _Attempt) -> Iterator[_Attempt]:
    if isinstance(want, Operand):
        if value is None and not want.optional:
            return
        if want.name == "_":
            yield attempt
        elif want.name not in attempt.values:
            yield _Attempt(attempt.nodes, {**attempt.values, want.name: value})
        elif attempt.values[want.name] is value:
            yield attempt
        return
    producer = value.producer() if value is not None else None
    if producer is not None and is_interior(producer):
        yield from _match_operator(want, producer, attempt)


def is_interior(node: ir.Node) -> bool:
    """Whether a node's results have one use, so that the node can be inside a match."""
    uses = [len(value.uses()) for value in node.outputs]
    return sum(uses) == 1 and not any(value.is_graph_output() for value in node.outputs)
