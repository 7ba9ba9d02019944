"""What ONNX's inference for the whole model, or an earlier one of ours, found of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir
import sympy

from farcall.graph._onnx_types import Found, read_type
from farcall.graph._shape_rules import MISNAMED_BY_ONNX
from farcall.graph._view import PartialDims
from farcall.graph.dims import Dim, parse

if TYPE_CHECKING:
    import onnx


class Reported:
    """Types and dims by value.

    Args:
        types: Value name -> the type that ONNX's inference found; None: the values have those of an earlier
            one.
        names: The symbols of the inputs. Other names of dims count as unknown.
    """

    def __init__(self, types: Mapping[str, onnx.TypeProto] | None, names: frozenset[sympy.Symbol]) -> None:
        self._types, self._symbols = types, names
        self._read: dict[bytes, Found] = {}

    def found(self, value: ir.Value) -> Found:
        """The type and dims of a value."""
        if self._types is None:
            return _own_type(value)
        proto = self._types.get(value.name or "")
        if proto is None:
            return None, None
        key = proto.SerializeToString()  # a model has few different types: read each once
        found = self._read.get(key)
        if found is None:
            found = self._read[key] = read_type(proto)
        return found

    def take(self, value: ir.Value, found: Found) -> PartialDims | None:
        """Store a type that ONNX found, and return the dims; names that no input has count as unknown."""
        kind, dims = found
        if isinstance(kind, ir.TensorType):
            value.type = ir.TensorType(kind.dtype)  # new: setting a value's dtype changes its type in place
        elif kind is not None:
            value.type = kind
        if dims is None:
            return None
        node = value.producer()
        named = node is None or node.op_type not in MISNAMED_BY_ONNX
        return tuple(dim if isinstance(dim, int) else self._known(dim) if named else None for dim in dims)

    def _known(self, name: str | None) -> Dim | None:
        try:
            dim = parse(name or "")
        except ValueError:
            return None
        return dim if isinstance(dim, int) or dim.free_symbols <= self._symbols else None


def _own_type(value: ir.Value) -> Found:
    """The type and dims that an earlier inference wrote to a value."""
    if value.shape is None:
        return value.type, None
    return value.type, tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
