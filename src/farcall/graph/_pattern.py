"""Patterns: groups of operators that a backend takes together, written as expressions.

    Pattern("conv_relu", "Relu?(Conv<group=1>(x, w!, b?!))")
    Pattern("linear", "Add(MatMul(x, w!), b)")
    Pattern("silu", "Mul(x, Sigmoid(x))")
    Pattern("half", "Mul(Relu+(x), 0.5)")
    Pattern("join", "Relu|Clip(Concat(parts*))")

Operators begin with a capital letter:

* ``A|B(x)`` is either operator, ``domain::Op(x)`` one of another domain.
* ``Conv<group=1>(x, w)`` is one with this attribute. A default of ONNX counts as given.
* ``Relu?(...)`` may be absent: what it is applied to stands in its place.
* ``Add+(x, _)`` is a chain of one or more; each is the first operand of the next one. ``Add+?`` may be empty.
* ``Add``, ``Mul`` and other commutative operators match with their two operands in either order.

Names begin with a small letter, and match any value: the same name twice is the same value, ``b?`` may be
absent, ``w!`` is a constant (both: ``b?!``), ``parts*`` matches all further inputs, ``_`` matches any value
without naming it. A number matches a constant of one element with this value. An input that the pattern does
not mention must be absent.

Only the outputs of the outermost operator are used outside the match. A match is as long as it can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import NamedTuple

import onnx
import onnx_ir as ir

from farcall.errors import UsageError
from farcall.graph._pattern_text import Number, Operand, Operator, Part, Setting, alternatives, parse, parts
from farcall.graph._region import Match, is_constant

Check = Callable[[Match], "str | None"]

_COMMUTATIVE = "Add Mul Min Max Sum Mean And Or Xor Equal BitwiseAnd BitwiseOr BitwiseXor"
COMMUTATIVE = frozenset(_COMMUTATIVE.split(" "))
_TOLERANCE = 1e-5  # relative, between a pattern's number and a model's: float32 has rounded the latter


class Pattern:
    """A group of operators that a backend takes together.

    Args:
        name: The name of the matches in regions, such as ``"conv_relu"``.
        text: The expression; the module's docstring defines its syntax.
        check: Called with each match; returns the reason not to take it, or None to take it. Shapes and
            dtypes are inferred before the call; ``match.values`` maps the pattern's names to values.
        priority: A backend's patterns with higher numbers come first; equal ones keep their order.

    Raises:
        UsageError: The text is not a valid pattern.
    """

    def __init__(self, name: str, text: str, check: Check | None = None, *, priority: int = 0) -> None:
        self.name = name
        self.text = text
        self.check = check
        self.priority = priority
        root = parse(text)
        try:
            self.roots = alternatives(root)
        except UsageError as error:
            raise UsageError(f"pattern {text!r}: {error}") from None
        found = list(parts(root))
        names = [one.name for one in found if isinstance(one, Operand) and one.name != "_"]
        self._names: dict[str, ir.Value | None] = dict.fromkeys(names)
        # Whether nodes that are taken can leave a shorter match.
        self.flexible = any(isinstance(one, Operator) and (one.optional or one.repeated) for one in found)

    def __repr__(self) -> str:
        return f"Pattern({self.name!r}, {self.text!r})"

    def match(self, node: ir.Node) -> Match | None:
        """The match whose outermost operator is ``node``, or None. ``check`` is not called."""
        for root in self.roots:
            found = self.match_root(root, node) if kind_of(node) in root.kinds else None
            if found is not None:
                return found
        return None

    def match_root(
        self,
        root: Operator,
        node: ir.Node,
        taken: Container[ir.Node] = (),
        seen: set[ir.Node] | None = None,
    ) -> Match | None:
        """The match of ``root``, one of ``roots``, at ``node``.

        Args:
            root: The outermost operator.
            node: One of its kinds.
            taken: Nodes that may not be in the match.
            seen: Gets the nodes of chains that were looked at: none of them begins a longer match.
        """
        if not _has_attributes(root, node):
            return None
        if root.repeated:
            attempts = _Search(taken, seen).operator(root, node, _NOTHING)
        elif orders := _likely_orders(root, node):
            attempts = _Search(taken, seen).inputs(root, orders, _Attempt((node,), {}))
        else:
            return None
        for attempt in attempts:
            return Match(self.name, tuple(reversed(attempt.nodes)), {**self._names, **attempt.values})
        return None


class _Attempt(NamedTuple):
    """The nodes matched so far, outermost first, and the values of the names."""

    nodes: tuple[ir.Node, ...]
    values: dict[str, ir.Value | None]


_NOTHING = _Attempt((), {})
_Inputs = tuple[ir.Value | None, ...]


class _Search:
    """Finds matches by backtracking. A node inside a match has one use, so that it is met once at most."""

    def __init__(self, taken: Container[ir.Node], seen: set[ir.Node] | None) -> None:
        self._taken = taken
        self._seen = set() if seen is None else seen

    def operator(self, want: Operator, node: ir.Node, attempt: _Attempt) -> Iterator[_Attempt]:
        """The ways in which ``node``, one of the kinds that ``want`` is, and what it reads match."""
        if not want.repeated:
            orders = _likely_orders(want, node)
            yield from self.inputs(want, orders, _Attempt((*attempt.nodes, node), attempt.values))
            return
        for path in self._paths(want, node):
            orders = _likely_orders(want, path[-1])
            yield from self.inputs(want, orders, _Attempt((*attempt.nodes, *path), attempt.values))

    def inputs(self, want: Operator, orders: Iterable[_Inputs], attempt: _Attempt) -> Iterator[_Attempt]:
        """The ways in which the inputs of a node, in one of the orders, are the operands of ``want``."""
        free = want.free
        if free is not None and not attempt.values.keys().isdisjoint(free):
            free = None  # a name that stands for a value already
        for inputs in orders:
            if free is None or len(inputs) != len(free) or None in inputs:
                yield from self._operands(want.operands, inputs, attempt)
            else:  # the same, without a step for each operand
                bound = {name: value for name, value in zip(free, inputs, strict=True) if name != "_"}
                yield _Attempt(attempt.nodes, {**attempt.values, **bound})

    def _paths(self, want: Operator, node: ir.Node) -> Iterator[list[ir.Node]]:
        """The chains that end in ``node``, longer ones first: paths in a tree, from its leaves upward.

        The list is valid until the next one. There is no recursion, since chains can be long.
        """
        path, ways = [node], [iter(self._further(want, node))]
        while path:
            self._seen.add(path[-1])
            source = next(ways[-1], None)
            if source is not None:
                path.append(source)
                ways.append(iter(self._further(want, source)))
                continue
            yield path
            path.pop()
            ways.pop()

    def _further(self, want: Operator, node: ir.Node) -> list[ir.Node]:
        """The nodes by which a chain goes on before ``node``."""
        found = []
        for inputs in _orders(want, node):
            producer = inputs[0].producer() if inputs and inputs[0] is not None else None
            if producer is None or not _is_a(want, producer) or not self._inside(producer):
                continue
            is_plain = want.plain and len(inputs) == len(want.operands) and None not in inputs
            if is_plain or any(True for _ in self._operands(want.operands[1:], inputs[1:], _NOTHING)):
                found.append(producer)
        return found

    def _inside(self, node: ir.Node) -> bool:
        return is_interior(node) and node not in self._taken

    def _operands(self, wants: tuple[Part, ...], given: _Inputs, attempt: _Attempt) -> Iterator[_Attempt]:
        """The ways in which inputs match. Only operators match in several; the rest binds."""
        for place, want in enumerate(wants):
            if isinstance(want, Operand) and want.rest:
                if not want.constant or all(value is None or is_constant(value) for value in given[place:]):
                    yield attempt
                return
            value = given[place] if place < len(given) else None
            if isinstance(want, Operator):
                for found in self._producers(want, value, attempt):
                    yield from self._operands(wants[place + 1 :], given[place + 1 :], found)
                return
            bound = _bound(want, value, attempt)
            if bound is None:
                return
            attempt = bound
        if len(given) <= len(wants) or not any(given[len(wants) :]):
            yield attempt

    def _producers(self, want: Operator, value: ir.Value | None, attempt: _Attempt) -> Iterator[_Attempt]:
        """The ways in which the node that makes a value is the operator; or, if it may be absent, is not."""
        producer = value.producer() if value is not None else None
        if producer is not None and _is_a(want, producer) and self._inside(producer):
            yield from self.operator(want, producer, attempt)
        if want.optional:
            yield from self._operands(want.operands[:1], (value,), attempt)


def _may_match(want: Operator, given: _Inputs) -> bool:
    """Whether the inputs' producers and constants are of the right kind: quick, and fails for most."""
    for place, operand in want.demanding:
        value = given[place] if place < len(given) else None
        if isinstance(operand, Number):
            if value is None or value.const_value is None:
                return False
            continue
        producer = value.producer() if value is not None else None
        if producer is None or not _is_a(operand, producer):
            return False
    return True


def _likely_orders(want: Operator, node: ir.Node) -> Sequence[_Inputs]:
    orders = _orders(want, node)
    return [inputs for inputs in orders if _may_match(want, inputs)] if want.demanding else orders


def _bound(want: Operand | Number, value: ir.Value | None, attempt: _Attempt) -> _Attempt | None:
    """The attempt with the value under the name that the pattern gives it; None if it does not match."""
    if isinstance(want, Number):
        return attempt if value is not None and _is_number(value, want.value) else None
    if value is None:
        if not want.optional:
            return None
    elif want.constant and not is_constant(value):
        return None
    if want.name == "_":
        return attempt
    if want.name not in attempt.values:
        return _Attempt(attempt.nodes, {**attempt.values, want.name: value})
    return attempt if attempt.values[want.name] is value else None


def kind_of(node: ir.Node) -> tuple[str, str]:
    """The domain, empty for ONNX's own, and the operator of a node."""
    domain = node.domain
    return ("" if domain == "ai.onnx" else domain, node.op_type)


def _is_a(want: Operator, node: ir.Node) -> bool:
    return kind_of(node) in want.kinds and _has_attributes(want, node)


def _has_attributes(want: Operator, node: ir.Node) -> bool:
    return not want.attributes or all(_attribute(node, name) == value for name, value in want.attributes)


def _orders(want: Operator, node: ir.Node) -> tuple[_Inputs, ...]:
    """The inputs of a node; and reversed, if it is commutative."""
    inputs = tuple(node.inputs)
    if len(inputs) == 2 == len(want.operands) and node.op_type in COMMUTATIVE:
        return (inputs, inputs[::-1]) if node.domain in ("", "ai.onnx") else (inputs,)
    return (inputs,)


def _attribute(node: ir.Node, name: str) -> Setting | None:
    """An attribute, given or by default: numbers, texts and lists of numbers; None for all else."""
    given = node.attributes.get(name)
    value = given.value if given is not None else _default(node, name)
    if isinstance(value, (list, tuple)):
        return [float(item) for item in value] if all(isinstance(i, (int, float)) for i in value) else None
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, (int, float, str)) else None


def _default(node: ir.Node, name: str) -> object:
    graph = node.graph
    version = graph.opset_imports.get(node.domain) if isinstance(graph, ir.Graph) else None
    try:
        schema = onnx.defs.get_schema(node.op_type, version or 1, node.domain)
    except onnx.defs.SchemaError:
        return None
    about = schema.attributes.get(name)
    if about is None or not about.default_value.name:
        return None
    default: object = onnx.helper.get_attribute_value(about.default_value)
    return default


def _is_number(value: ir.Value, number: float) -> bool:
    data = value.const_value
    if data is None or data.size != 1 or (not data.dtype.is_floating_point() and not data.dtype.is_integer()):
        return False
    return math.isclose(float(data.numpy().reshape(())), number, rel_tol=_TOLERANCE)


def is_interior(node: ir.Node) -> bool:
    """Whether a node's results have one use, so that the node can be inside a match."""
    if len(node.outputs) == 1:
        value = node.outputs[0]
        return len(value.uses()) == 1 and not value.is_graph_output()
    uses = [len(value.uses()) for value in node.outputs]
    return sum(uses) == 1 and not any(value.is_graph_output() for value in node.outputs)
