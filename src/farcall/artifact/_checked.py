"""Generates C expressions that evaluate dims and detect overflow.

The caller chooses the sizes of a call: a huge one must cause an error, not a wrapped number and a buffer that
is too small. So the entry computes each size with functions that set a flag on overflow
(``entry.h``), and tests the flag once.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy

from farcall.errors import ModelError
from farcall.graph.dims import Dim


class CheckedText:
    """Turns dims into C over ``symbols`` (name -> C expression), with the overflow flag ``bad``."""

    def __init__(self, symbols: Mapping[str, str], bad: str = "&bad") -> None:
        self._symbols = symbols
        self._bad = bad

    def __call__(self, dim: Dim) -> str:
        """The C expression of ``dim``, of type ``int64_t``.

        Raises:
            ModelError: a symbol of ``dim`` is in no input's shape, so its size cannot be known.
        """
        return integer(dim) if isinstance(dim, int) else self._text(dim)

    def _text(self, e: sympy.Expr) -> str:
        if e.is_Integer:
            return integer(int(e))
        if e.is_Symbol:
            return self._symbol(e.name)
        if isinstance(e, sympy.floor):
            return self._divide(e.args[0])
        if isinstance(e, sympy.ceiling):
            return f"(-{self._divide(-e.args[0])})"
        if isinstance(e, (sympy.Min, sympy.Max)):
            return self._fold("fc_min(" if isinstance(e, sympy.Min) else "fc_max(", e.args)
        if isinstance(e, sympy.Mod):
            return f"fc_mod({self._bad}, {self._text(e.args[0])}, {self._text(e.args[1])})"
        if e.is_Add:
            return self._add(e)
        if e.is_Pow and e.exp.is_Integer and e.exp > 0:
            return self._fold(f"fc_mul({self._bad}, ", [e.base] * int(e.exp))
        if e.is_Mul and sympy.fraction(e)[1] == 1:
            return self._fold(f"fc_mul({self._bad}, ", e.args)
        if e.is_Mul:  # divides exactly: otherwise it would be inside a floor
            return self._divide(e)
        raise ModelError(f"the size {e} cannot be computed when the model is called")

    def _add(self, e: sympy.Expr) -> str:
        if sympy.fraction(sympy.together(e))[1] != 1:
            return self._divide(e)
        return self._fold(f"fc_add({self._bad}, ", e.args)

    def _divide(self, e: sympy.Expr) -> str:
        above, below = sympy.fraction(sympy.together(e))
        if below == 1:
            return self._text(above)
        return f"fc_floordiv({self._bad}, {self._text(above)}, {self._text(below)})"

    def _fold(self, call: str, operands: tuple[sympy.Expr, ...] | list[sympy.Expr]) -> str:
        text = self._text(operands[0])
        for operand in operands[1:]:
            text = f"{call}{text}, {self._text(operand)})"
        return text

    def _symbol(self, name: str) -> str:
        if name not in self._symbols:
            raise ModelError(
                f"the size `{name}` is in no input's shape, so a result's size is known only while the model "
                "runs; farcall needs it before: make it a fixed size, or a dim of an input"
            )
        return self._symbols[name]


def integer(value: int) -> str:
    """``value`` as a C literal of type ``int64_t``.

    Raises:
        ModelError: ``value`` does not fit.
    """
    if not -(2**63) < value < 2**63:
        raise ModelError(f"a size of {value} does not fit into 64 bits")
    return f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"
