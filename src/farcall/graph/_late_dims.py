"""Symbols for dims that are known only when the model runs."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
import sympy

from farcall.graph._inline import unique
from farcall.graph._operand_rules import same_late_dim
from farcall.graph.dims import Dim, identifier, symbol


class LateDims:
    """The symbols of one model, beside those of its inputs."""

    def __init__(self, names: frozenset[sympy.Symbol]) -> None:
        self._taken = {str(item) for item in names}
        self._names: dict[tuple[ir.Value, int], str] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def of(self, value: ir.Value, axis: int) -> Dim:
        """The symbol of a dim; of two that are always equal, both have it."""
        if (value, axis) not in self._names:
            same = same_late_dim(value, axis)
            name = self._names.get(same) or unique(identifier(f"{value.name}_dim{axis}"), self._taken)
            self._names[same] = self._names[value, axis] = name
        return symbol(self._names[value, axis])

    def by_value(self) -> Mapping[ir.Value, tuple[str, ...]]:
        """The names of all dims of a value that have some."""
        found: dict[ir.Value, tuple[str, ...]] = {}
        for (value, _), name in self._names.items():
            found[value] = (*found.get(value, ()), name)
        return found
