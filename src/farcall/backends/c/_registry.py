"""The table of operators. The module of each family registers its operators by decorators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.backends.c._kernel import Step
from farcall.backends.c._node import Check, constant, int_attr
from farcall.graph.dims import Dim, dims, late

if TYPE_CHECKING:
    from farcall.backends.c._epilogue import Epilogue

Operands = Sequence[tuple[ir.Value, tuple[Dim, ...]]]
Expression = Callable[..., str]
Emit = Callable[[ir.Node], Iterable[Step]]
Finish = Callable[[ir.Node, "Epilogue"], Iterable[Step]]
Finishes = Callable[[ir.Node, "Epilogue"], bool]
When = Callable[[ir.Node], bool]


@dataclass(frozen=True)
class Elementwise:
    """One output element is an expression of one element of each operand.

    ``expression(node, *elements)`` is the C expression. ``operands`` are values with the dims by which they
    broadcast.
    """

    check: Check
    expression: Expression
    operands: Callable[[ir.Node], Operands]


@dataclass(frozen=True)
class View:
    """The output has the elements of input 0, in the same order.

    ``verify`` makes the steps that check operands which are known only at run time.
    """

    check: Check
    verify: Emit


@dataclass(frozen=True)
class Loops:
    """Any other operator: ``emit`` makes the kernels.

    ``allocates``: by :meth:`Kernel.allocate`, so that the dims of outputs need not be known before.
    ``finish``: makes kernels that compute an epilogue, too, if ``finishes`` says that they can.
    """

    check: Check
    emit: Emit
    allocates: bool = False
    finish: Finish | None = None
    finishes: Finishes = lambda node, epilogue: False


Operator = Elementwise | View | Loops

OPERATORS: dict[str, Operator] = {}  # of another domain than ONNX's, with the domain: `domain::Name`
TRAINING: dict[str, Loops] = {}  # those that the attribute training_mode makes another operator
ALLOCATING: dict[str, tuple[Loops, When]] = {}  # kernels that allocate, and for which nodes
VARIANTS: dict[str, tuple[Loops, When]] = {}  # other kernels, and for which nodes


def all_inputs(node: ir.Node) -> Operands:
    """Every given input with its own dims."""
    return [(value, dims(value)) for value in node.inputs if value is not None and value.name]


def elementwise(
    *names: str, check: Check, operands: Callable[[ir.Node], Operands] = all_inputs
) -> Callable[[Expression], Expression]:
    """Register ``expression(node, *elements)`` for the operators ``names``."""

    def register(expression: Expression) -> Expression:
        for name in names:
            OPERATORS[name] = Elementwise(check, expression, operands)
        return expression

    return register


def loops(*names: str, check: Check, training: bool = False) -> Callable[[Emit], Emit]:
    """Register ``emit(node)`` for the operators ``names``, or for their training mode."""
    table = TRAINING if training else OPERATORS

    def register(emit: Emit) -> Emit:
        for name in names:
            table[name] = Loops(check, emit)
        return emit

    return register


def finishing(name: str, when: Finishes) -> Callable[[Finish], Finish]:
    """Register ``finish(node, epilogue)`` for the operator ``name``, which :func:`loops` has registered.

    ``when`` says whether the kernel of a node can compute an epilogue.
    """

    def register(finish: Finish) -> Finish:
        entry = OPERATORS[name]
        assert isinstance(entry, Loops)  # noqa: S101 - registered by `loops`
        OPERATORS[name] = replace(entry, finish=finish, finishes=when)
        return finish

    return register


def variant(*names: str, check: Check, when: When) -> Callable[[Emit], Emit]:
    """Register ``emit(node)`` for those nodes of the operators ``names`` for which ``when`` holds."""

    def register(emit: Emit) -> Emit:
        for name in names:
            VARIANTS[name] = Loops(check, emit), when
        return emit

    return register


def always(node: ir.Node) -> bool:
    """For operators all of whose kernels allocate."""
    return True


def is_late(node: ir.Node) -> bool:
    """Whether the dims of an output are known only when the node has run."""
    return any(map(late, node.outputs))


def computed(*operands: int) -> When:
    """Whether one of these operands, or an output's shape, is known only at run time."""

    def when(node: ir.Node) -> bool:
        given = [node.inputs[index] for index in operands if index < len(node.inputs)]
        return is_late(node) or any(one is not None and one.name and constant(one) is None for one in given)

    return when


def allocating(*names: str, check: Check, when: When = is_late) -> Callable[[Emit], Emit]:
    """Register ``emit(node)``, whose kernels allocate the outputs, for the operators ``names``.

    ``when`` tells for which nodes; the others have the entry of :func:`loops` or :func:`view`.
    """

    def register(emit: Emit) -> Emit:
        for name in names:
            ALLOCATING[name] = Loops(check, emit, allocates=True), when
        return emit

    return register


def view(*names: str, check: Check) -> Callable[[Emit], Emit]:
    """Register ``verify(node)`` for the operators ``names``, which only change dims."""

    def register(verify: Emit) -> Emit:
        for name in names:
            OPERATORS[name] = View(check, verify)
        return verify

    return register


def operator(node: ir.Node) -> Operator | None:
    """The entry of ``node``, if there is one."""
    if node.domain not in ("", "ai.onnx"):
        return OPERATORS.get(f"{node.domain}::{node.op_type}")
    if in_training(node):
        return TRAINING.get(node.op_type)
    for table in (ALLOCATING, VARIANTS):
        entry = table.get(node.op_type)
        if entry is not None and entry[1](node):
            return entry[0]
    return OPERATORS.get(node.op_type)


def in_training(node: ir.Node) -> bool:
    """Whether an attribute makes another operator of the node, which updates what it has learned."""
    return node.op_type in TRAINING and bool(int_attr(node, "training_mode", 0))
