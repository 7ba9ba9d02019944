"""Dims that an operator forces to be equal.

The rule, where two dims must be equal and are not seen to be:

* a symbol and an int: the symbol is that int, in the whole model;
* two symbols: they are one, in the whole model; the one that appears first in the inputs gives the name;
* anything else: the pair becomes a constraint, which is checked when the model is entered.

So an input's declared dims may get narrower than the file says: ``x[n, 4] + y[m, 4]`` takes inputs of equal
length only, although ONNX would broadcast a length of 1. A dim that may be 1 at one call and not at the next
has no fixed code; the signature shows what is taken, and other shapes are refused with a clear message.
"""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from farcall.errors import ModelError
from farcall.graph.dims import Dim, fold, same


class Equalities:
    """What is known about the symbols of one model; grows while shapes are inferred.

    Args:
        order: The symbols of the graph's inputs, first to last: of two equal ones, the first stays.
    """

    def __init__(self, order: Iterable[sympy.Symbol]) -> None:
        self._rank = {item: rank for rank, item in enumerate(order)}
        self._values: dict[sympy.Symbol, Dim] = {}
        self._pairs: dict[tuple[Dim, Dim], None] = {}

    @property
    def changed(self) -> bool:
        """Whether any symbol has been given a value."""
        return bool(self._values)

    @property
    def found(self) -> int:
        """How many symbols have been given a value."""
        return len(self._values)

    def resolve(self, dim: Dim) -> Dim:
        """``dim`` over the symbols that are left."""
        if isinstance(dim, int) or not self._values or self._values.keys().isdisjoint(dim.free_symbols):
            return dim
        return fold(dim.xreplace({key: sympy.sympify(value) for key, value in self._values.items()}))

    def equate(self, a: Dim, b: Dim, where: str) -> Dim:
        """Make two dims equal, and return the one to go on with (an int, if either is).

        Raises:
            ModelError: They cannot be equal; ``where`` is the node that needs it.
        """
        a, b = self.resolve(a), self.resolve(b)
        if same(a, b):
            return a if isinstance(a, int) else b
        if isinstance(a, int) and isinstance(b, int):
            raise ModelError(f"{where}: expected equal dims, got {a} and {b}")
        if isinstance(a, int) or (self._is_free(b) and not self._is_free(a)):
            a, b = b, a
        if self._is_free(a) and (isinstance(b, int) or self._is_free(b)):
            return self._substitute(a, b)
        self._pairs[a, b] = None
        return b

    def _is_free(self, dim: Dim) -> bool:
        return isinstance(dim, sympy.Symbol) and dim in self._rank

    def _substitute(self, item: sympy.Symbol, value: Dim) -> Dim:
        if not isinstance(value, int) and self._rank[value] > self._rank[item]:
            item, value = value, item
        replacement = {item: sympy.sympify(value)}
        for key, old in self._values.items():
            self._values[key] = old if isinstance(old, int) else fold(old.xreplace(replacement))
        self._values[item] = value
        return value

    def constraints(self) -> tuple[tuple[Dim, Dim], ...]:
        """The pairs that are to be checked at entry, over the symbols that are left.

        Raises:
            ModelError: A pair turned out to be two different ints.
        """
        found: dict[tuple[Dim, Dim], None] = {}
        for a, b in self._pairs:
            left, right = self.resolve(a), self.resolve(b)
            if same(left, right):
                continue
            if isinstance(left, int) and isinstance(right, int):
                raise ModelError(f"the model needs {a} == {b}, which its other dims make {left} == {right}")
            found[left, right] = None
        return tuple(found)
