"""Replaces a node by the nodes of a graph: by a branch of an If, or by the function body of its operator.

New names begin with the name of the node that they come from (``ln1/Sqrt``), and are unique in the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

import numpy as np
import onnx_ir as ir

from farcall.errors import ModelError
from farcall.graph._onnx_types import is_default_domain
from farcall.graph._region import subgraphs


def names_of(graph: ir.Graph) -> set[str]:
    """The names of all nodes and values of a graph, and of the graphs inside it."""
    found = {value.name or "" for value in (*graph.inputs, *graph.initializers.values())}
    for node in ir.traversal.RecursiveGraphIterator(graph):
        found.add(node.name or "")
        found.update(value.name or "" for value in node.outputs)
    return found


def splice(
    graph: ir.Graph,
    node: ir.Node,
    inner: ir.Graph,
    given: Sequence[ir.Value | None],
    taken: set[str],
) -> list[ir.Node]:
    """Replace a node by the nodes of a graph.

    Args:
        graph: The graph of the model.
        node: A node of it, which is removed.
        inner: The graph, which is left empty. Its outputs are the node's.
        given: The value of each input of ``inner``; None, or one too few, for an input that is left out.
        taken: The names of the model; gets the new ones.

    Returns:
        The new nodes, in topological order. Constant nodes among them became initializers.
    """
    rename(inner, node.name or "", taken)
    for value, actual in zip_longest(list(inner.inputs), given[: len(inner.inputs)]):
        replace_uses(value, actual)
    outputs, nodes = list(inner.outputs), list(inner)
    inner.outputs.clear()
    inner.remove(nodes)
    for constant in list(inner.initializers.values()):
        del inner.initializers[constant.name or ""]
        graph.register_initializer(constant)
    graph.insert_before(node, nodes)
    nodes += _hand_over(graph, node, outputs, nodes)
    discard(graph, node)
    return [item for item in nodes if not lift_constant(graph, item)]


def _hand_over(
    graph: ir.Graph, node: ir.Node, outputs: Iterable[ir.Value], nodes: Iterable[ir.Node]
) -> list[ir.Node]:
    """Give the node's outputs to those who now compute them; returns copies of what none of them computes."""
    own = {value for item in nodes for value in item.outputs}
    copies = []
    for old, result in zip(node.outputs, outputs, strict=False):
        new = result
        if new not in own:  # an input, a constant, or an output for the second time
            copy = ir.node("Identity", [result], name=f"{node.name}/{old.name}")
            graph.insert_before(node, copy)
            copies.append(copy)
            new = copy.outputs[0]
        own.discard(new)
        name = old.name
        new.type, new.shape = old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        if name:
            old.name, new.name = None, name
    return copies


def rename(inner: ir.Graph, prefix: str, taken: set[str]) -> None:
    """Give the nodes and values of a graph names that are unique in the model; its inputs keep theirs."""
    for item in list(ir.traversal.RecursiveGraphIterator(inner)):
        item.name = unique(f"{prefix}/{item.name or item.op_type}", taken)
        for value in item.outputs:
            if value.name:
                value.name = unique(f"{prefix}/{value.name}", taken)
        for graph in subgraphs(item):
            for value in (*graph.inputs, *graph.initializers.values()):
                value.name = unique(f"{prefix}/{value.name}", taken)
    for value in list(inner.initializers.values()):
        value.name = unique(f"{prefix}/{value.name}", taken)


def unique(name: str, taken: set[str]) -> str:
    """``name``, with a number if it is taken; ``taken`` gets it."""
    number = 0
    result = name
    while result in taken:
        number += 1
        result = f"{name}_{number}"
    taken.add(result)
    return result


def replace_uses(value: ir.Value, actual: ir.Value | None) -> None:
    """Put a value, or None, in place of another one."""
    if actual is not None:
        value.replace_all_uses_with(actual, replace_graph_outputs=True)
        return
    for user, index in tuple(value.uses()):
        user.replace_input_with(index, None)


def discard(graph: ir.Graph, node: ir.Node) -> None:
    """Remove a node whose outputs nobody uses. The graphs inside it read nothing any more."""
    for inner in subgraphs(node):
        for item in ir.traversal.RecursiveGraphIterator(inner):
            for index in range(len(item.inputs)):
                item.replace_input_with(index, None)
    graph.remove(node, safe=True)


def add_constant(graph: ir.Graph, name: str, data: ir.TensorProtocol | np.ndarray) -> ir.Value:
    """Add an initializer to a graph.

    Args:
        graph: The graph.
        name: A name that no value of the graph has.
        data: Its elements.

    Returns:
        The initializer.
    """
    tensor = ir.tensor(data, name=name) if isinstance(data, np.ndarray) else data
    value = ir.Value(
        name=name,
        shape=ir.Shape(tensor.shape.numpy()),
        type=ir.TensorType(tensor.dtype),
        const_value=tensor,
    )
    graph.register_initializer(value)
    return value


_CONSTANT_DTYPES = {"value_int": ir.DataType.INT64, "value_ints": ir.DataType.INT64}
_CONSTANT_DTYPES |= {"value_float": ir.DataType.FLOAT, "value_floats": ir.DataType.FLOAT}


def lift_constant(graph: ir.Graph, node: ir.Node) -> bool:
    """Make a Constant node an initializer of the same name (onnx-ir's pass skips graph outputs).

    Returns:
        Whether it was one, and is gone. Constants of text and sparse ones stay nodes, which backends refuse.
    """
    if node.op_type != "Constant" or not is_default_domain(node.domain):
        return False
    if len(node.attributes) != 1:
        raise ModelError(
            f"node `{node.name}` (Constant) has the attributes {', '.join(node.attributes) or '(none)'}; "
            "expected one, which is its value"
        )
    (attribute,) = node.attributes.values()
    if attribute.name == "value":
        tensor = attribute.as_tensor()
    elif attribute.name in _CONSTANT_DTYPES:
        tensor = ir.tensor(attribute.value, dtype=_CONSTANT_DTYPES[attribute.name])
    else:
        return False
    (old,) = node.outputs
    name, old.name = old.name or "", None
    old.replace_all_uses_with(add_constant(graph, name, tensor), replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return True
