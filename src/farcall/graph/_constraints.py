"""Dims that an operator forces to be equal.

The rule for two dims that must be equal but are not provably so:

* a symbol and an int: the symbol becomes that int in the whole model;
* two symbols: they become one in the whole model, with the name that appears first in the inputs;
* products with common factors: the rest of them must be equal, unless a factor may be 0 (``_may_divide``);
* any other pair: it becomes a constraint, which the entry checks at each call.

So the dims of an input may become narrower than the file declares: ``Concat<axis=1>(x[n, 4], y[m, 4])``
accepts only inputs of equal length. The Signature shows the accepted shapes, and the error for others names
them. Dims of operands that broadcast are not equal: either may be 1 (:mod:`farcall.graph._broadcasts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir
import sympy

from farcall.errors import ModelError
from farcall.graph.dims import Dim, fold, same, settled, without_common_factors

CONSTRAINTS = "farcall.constraints"  # key in model.meta: tuple[tuple[Dim, Dim], ...]
_LARGE = 1_000_003  # a size that no bound of a model reaches
NEEDS = "farcall.needs"  # key in model.meta: constraint -> Need


class MisfitError(ModelError):
    """The operands of a node do not fit each other: it fails whenever it runs."""


@dataclass(frozen=True)
class Need:
    """Which node needs two dims to be equal, and why.

    ``text`` says what it needs where ``a == b`` would not tell, with a ``{}`` for each of ``dims``.
    """

    where: str
    text: str = ""
    dims: tuple[Dim, ...] = ()

    def told(self, a: Dim, b: Dim) -> str:
        """The sentence about the dims ``a`` and ``b``."""
        return f"{self.where}: {self.text.format(*self.dims) or f'expected {a} == {b}'}"


def constraints(model: ir.Model) -> tuple[tuple[Dim, Dim], ...]:
    """Pairs of dims, over the symbols of the inputs, that must be equal in every call of the model."""
    found: tuple[tuple[Dim, Dim], ...] = model.meta.get(CONSTRAINTS, ())
    return found


def needs(model: ir.Model) -> Mapping[tuple[Dim, Dim], Need]:
    """For each pair of :func:`constraints`, the node that needs it."""
    found: Mapping[tuple[Dim, Dim], Need] = model.meta.get(NEEDS, {})
    return found


class Equalities:
    """The known equalities between the symbols of one model; their number grows during shape inference.

    Args:
        order: The symbols of the graph's inputs, first to last: of two equal symbols, the first stays.
    """

    def __init__(self, order: Iterable[sympy.Symbol]) -> None:
        self._rank = {item: rank for rank, item in enumerate(order)}
        self._values: dict[sympy.Symbol, Dim] = {}
        self._pairs: dict[tuple[Dim, Dim], Need] = {}

    @property
    def changed(self) -> bool:
        """Whether any symbol has been replaced by an int or another symbol."""
        return bool(self._values)

    @property
    def found(self) -> int:
        """The number of symbols that have been replaced."""
        return len(self._values)

    def resolve(self, dim: Dim) -> Dim:
        """``dim`` over the remaining symbols."""
        if isinstance(dim, int) or not self._values or self._values.keys().isdisjoint(dim.free_symbols):
            return dim
        return settled(fold(dim.xreplace({key: sympy.sympify(value) for key, value in self._values.items()})))

    def equate(self, a: Dim, b: Dim, need: Need) -> Dim:
        """Make two dims equal, and return the one to use from now on (an int, if either is).

        Raises:
            MisfitError: They cannot be equal.
        """
        a, b = self.resolve(a), self.resolve(b)
        if same(a, b):
            return a if isinstance(a, int) else b
        if isinstance(a, int) and isinstance(b, int):
            if need.text:
                raise MisfitError(self._resolved(need).told(a, b))
            raise MisfitError(f"{need.where}: expected equal dims, got {a} and {b}")
        if isinstance(a, int) or (self._is_free(b) and not self._is_free(a)):
            a, b = b, a
        if self._is_free(a) and (isinstance(b, int) or self._is_free(b)):
            return self._substitute(a, b)
        left, right = without_common_factors(a, b)
        if (left, right) != (a, b) and self._may_divide(b, left, right):
            self.equate(left, right, need)
            return self.resolve(b)
        self._pairs.setdefault((a, b), need)
        return b

    def _may_divide(self, dim: Dim, left: Dim, right: Dim) -> bool:
        """Whether ``left`` and ``right`` must be equal because their products with a common factor are.

        ``dim`` is the product of ``right`` and the factor, which must not be 0. A factor that is 0 for small
        sizes only is allowed where a symbol gets its value: a model needs the value more than a call of no
        elements.
        """
        factor = sympy.sympify(dim) / sympy.sympify(right)
        if self._is_free(left) or self._is_free(right):
            return not _vanishes(factor)
        return not _may_be_zero(factor)

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

    def _resolved(self, need: Need) -> Need:
        return replace(need, dims=tuple(map(self.resolve, need.dims)))

    def constraints(self) -> Mapping[tuple[Dim, Dim], Need]:
        """The pairs that the entry must check, over the remaining symbols, and who needs them.

        Raises:
            MisfitError: A pair turned out to be two different ints.
        """
        found: dict[tuple[Dim, Dim], Need] = {}
        for (a, b), need in self._pairs.items():
            left, right = self.resolve(a), self.resolve(b)
            if same(left, right):
                continue
            if isinstance(left, int) and isinstance(right, int):
                raise MisfitError(f"the model needs {a} == {b}, which its other dims make {left} == {right}")
            found.setdefault((left, right), self._resolved(need))
        return found


def _may_be_zero(factor: sympy.Expr) -> bool:
    """Whether a call may make ``factor`` 0.

    A symbol counts as a size above 0, and a quotient or a difference does not: 3 * floor(n/2) == floor(n/2)
    holds for one element.
    """
    return bool(factor.atoms(sympy.Add, sympy.floor, sympy.Max, sympy.Min))


def _vanishes(factor: sympy.Expr) -> bool:
    """Whether ``factor`` is 0 where all symbols are large: the length of ``[n:3]``, for example."""
    return not factor.xreplace(dict.fromkeys(factor.free_symbols, sympy.Integer(_LARGE)))
