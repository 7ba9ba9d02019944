"""After shape inference: removes arithmetic on shapes whose result is known.

Exporters write nodes (Shape, Gather, Concat) that compute the shape operand of a Reshape. Once the dims are
known as expressions, these nodes are redundant: known numbers become constants, a Reshape gets ``0`` and
``-1`` in place of symbols, and unused nodes are removed. The model computes the same results as before.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from farcall.graph._inline import add_constant, discard
from farcall.graph._view import Data
from farcall.graph.dims import Dim, same, try_dims


def fold_shapes(model: ir.Model, data: Mapping[ir.Value, Data]) -> None:
    """Simplify a model in place.

    Args:
        model: A model with inferred shapes.
        data: The elements of computed integer tensors, as dims.
    """
    graph = model.graph
    for node in graph if data else ():
        # A shape that is an input of the model stays: its value may contradict the declared dims.
        if node.op_type == "Reshape" and node.domain in ("", "ai.onnx") and node.inputs[1] in data:
            _fix_reshape(graph, node)
    remove_unused(graph)


def _fix_reshape(graph: ir.Graph, node: ir.Node) -> None:
    """Give a Reshape with known output dims a constant shape, if 0 (copy) and one -1 can express it."""
    given, shape = node.inputs[0], node.inputs[1]
    if given is None or shape is None or shape.const_value is not None:
        return
    before, after = try_dims(given), try_dims(node.outputs[0])
    if before is None or after is None:
        return
    wanted = _operand(before, after)
    if wanted is None:
        return
    name = f"{node.outputs[0].name}_shape"
    while name in graph.initializers:
        name += "_"
    node.replace_input_with(1, add_constant(graph, name, np.array(wanted, dtype=np.int64)))
    node.attributes.pop("allowzero", None)


def _operand(before: tuple[Dim, ...], after: tuple[Dim, ...]) -> list[int] | None:
    """The shape operand, with 0 for a dim that stays and at most one -1; None if they cannot express it."""
    if any(isinstance(dim, int) and dim == 0 for dim in after):
        return None
    wanted: list[int] = []
    for axis, dim in enumerate(after):
        if isinstance(dim, int):
            wanted.append(dim)
        else:
            wanted.append(0 if axis < len(before) and same(before[axis], dim) else -1)
    return wanted if wanted.count(-1) <= 1 else None


def remove_unused(graph: ir.Graph) -> None:
    """Remove nodes and initializers that no output needs."""
    for node in reversed(graph):
        if not _is_used(node):
            discard(graph, node)
    unused = [v for v in graph.initializers.values() if not v.is_graph_output() and not v.uses()]
    for value in unused:
        if value.name is not None:
            del graph.initializers[value.name]


def _is_used(node: ir.Node) -> bool:
    for value in node.outputs:  # noqa: SIM110 - a loop takes half of the time of any()
        if value.uses() or value.is_graph_output():
            return True
    return False
