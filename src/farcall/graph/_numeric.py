"""The values of expressions over symbols, by numbers alone.

sympy's own substitution builds each expression anew, by all rules of Max and Min: for the memory of a region,
that takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy

_OPERATORS: Mapping[Any, Callable[[Sequence[Fraction]], Fraction | int]] = {
    sympy.Add: sum,
    sympy.Mul: math.prod,
    sympy.Max: max,
    sympy.Min: min,
    sympy.floor: lambda values: math.floor(values[0]),
    sympy.ceiling: lambda values: math.ceil(values[0]),
    sympy.Mod: lambda values: values[0] % values[1],
    sympy.Pow: lambda values: values[0] ** int(values[1]),
}


def value_of(expression: sympy.Expr, sizes: Mapping[str, int]) -> Fraction:
    """The value for ``sizes`` (symbol name -> int).

    Raises:
        KeyError: A symbol has no size.
    """
    return _value(expression, sizes, {})


def _value(part: sympy.Expr, sizes: Mapping[str, int], known: dict[sympy.Expr, Fraction]) -> Fraction:
    """``known`` has the values of parts that stand in the expression more than once."""
    if part not in known:
        if part.is_Symbol:
            found = Fraction(sizes[part.name])
        elif part.is_Rational:
            found = Fraction(int(part.p), int(part.q))
        else:
            found = Fraction(_OPERATORS[part.func]([_value(item, sizes, known) for item in part.args]))
        known[part] = found
    return known[part]
