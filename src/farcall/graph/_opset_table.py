"""The tables of the rules that carry a node from one opset to the next, and the texts that they share.

A rule changes the node, which is then carried over as any other; or it returns the body of an ONNX function
as text, which replaces the node. The function's inputs are ``i0, i1, ...`` and its outputs ``o0, o1, ...``,
as those of the node, and its operators are those of the opset to which the node crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

from farcall.graph._crossing import Crossing

Rule = Callable[[Crossing], str | None]

UP: dict[tuple[str, int], Rule] = {}
DOWN: dict[tuple[str, int], Rule] = {}

REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")

_Adder = Callable[[Rule], Rule]


def up(version: int, *operators: str) -> _Adder:
    """A decorator: the rule by which operators come from the opset before to this one."""
    return _adder(UP, version, operators)


def down(version: int, *operators: str) -> _Adder:
    """A decorator: the rule by which operators go from this opset to the one before."""
    return _adder(DOWN, version, operators)


def _adder(table: dict[tuple[str, int], Rule], version: int, operators: Iterable[str]) -> _Adder:
    def add(rule: Rule) -> Rule:
        table.update({(operator, version): rule for operator in operators})
        return rule

    return add


def ints(values: Iterable[int]) -> str:
    """A list of numbers, as an attribute has them: ``[1, 2]``."""
    return "[" + ", ".join(str(int(value)) for value in values) + "]"


def int64(name: str, values: Sequence[int]) -> str:
    """A line of a body that makes a one-dimensional constant."""
    numbers = ", ".join(map(str, values))
    return f"{name} = Constant <value = int64[{len(values)}] {{{numbers}}}> ()\n"


def cast(result: str, value: str, dtype: ir.DataType) -> str:
    """A line of a body that casts a value."""
    return f"{result} = Cast <to = {dtype.value}> ({value})\n"
