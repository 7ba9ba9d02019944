"""The symbols that the inputs of a graph have."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from farcall.graph._inline import unique
from farcall.graph._view import Data
from farcall.graph.dims import Dim, identifier, is_identifier, parse, set_dims, symbol, symbols, try_dims


def name_inputs(graph: ir.Graph) -> tuple[str, ...]:
    """Make every dim of a graph input an int or a plain symbol, and return the symbols in order.

    A dim without a name becomes ``{input}_dim{axis}``, and so does one whose name is not an identifier but an
    expression. In other names, invalid characters are replaced.
    """
    tensors = [value for value in graph.inputs if isinstance(value.type, ir.TensorType | None)]
    declared = {dim.value for value in tensors for dim in value.shape or () if not isinstance(dim, int)}
    taken = {name for name in declared if name and is_identifier(name)}
    renamed: dict[str, str] = {}
    for value in graph.inputs:
        if value.shape is None:
            continue
        result: list[Dim] = []
        if not isinstance(value.type, ir.TensorType | None):
            set_dims(value, [dim if isinstance(dim, int) else None for dim in value.shape])
            continue  # what is in a sequence or an optional binds no names
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, int):
                result.append(dim)
                continue
            name = dim.value or ""
            if not is_identifier(name):
                key = name or f"{value.name}\0{axis}"
                wanted = f"{value.name}_dim{axis}" if not name or _is_expression(name) else name
                if key not in renamed:
                    renamed[key] = unique(identifier(wanted), taken)
                name = renamed[key]
            result.append(symbol(name))
        set_dims(value, result)
    return symbols(*(dim for value in graph.inputs for dim in try_dims(value) or ()))


def names_of_inputs(graph: ir.Graph, given: Mapping[ir.Value, Data]) -> tuple[str, ...]:
    """The symbols that the inputs of a body show, or that their elements are."""
    items = [item for data in given.values() for item in data.ravel().tolist()]
    return symbols(*(dim for value in graph.inputs for dim in try_dims(value) or ()), *items)


def _is_expression(name: str) -> bool:
    try:
        parse(name)
    except ValueError:
        return False
    return True
