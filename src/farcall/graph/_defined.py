"""What the definition of an operator tells of a node's outputs: it is inferred as a model of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import onnx_ir as ir

from farcall.graph._constraints import CONSTRAINTS
from farcall.graph._control import Infer
from farcall.graph._inline import lift_constant
from farcall.graph._view import MAX_DATA, PartialDims
from farcall.graph.dims import Dim, same, symbols, try_dims

if TYPE_CHECKING:
    import onnx

_IR_VERSION = 10  # of ONNX; the versions of the operators are those of the definition

Defined: TypeAlias = "tuple[ir.TypeProtocol | None, PartialDims | None]"
Equal: TypeAlias = "tuple[Dim, Dim]"


def defined(node: ir.Node, body: onnx.FunctionProto, infer: Infer) -> tuple[list[Defined], list[Equal]]:
    """What a definition tells.

    Args:
        node: A node. Symbols of the dims of its inputs mean the same in the results.
        body: Its definition.
        infer: Infers the shapes of a model in place.

    Returns:
        The type and the dims of each output, and the dims of the node's inputs that must be equal.

    Raises:
        ModelError: Operands do not fit together.
    """
    function: ir.Function = ir.serde.deserialize_function(body)
    graph = function.graph
    for item in list(graph):
        lift_constant(graph, item)
    for number, item in enumerate(graph):
        item.name = f"{node.name}/{item.name or f'{item.op_type}_{number}'}"
    given = _give_inputs(graph, node)
    graph.name = f"definition of {node.op_type} `{node.name}`"
    model = ir.Model(graph, ir_version=_IR_VERSION)
    infer(model, {})
    found: list[Defined] = [(value.type, _dims(value)) for value in graph.outputs]
    return [*found, *[(None, None)] * (len(node.outputs) - len(found))], [*_equal(model, given)]


def _equal(model: ir.Model, given: Mapping[ir.Value, ir.Value]) -> Iterator[Equal]:
    """The dims of the inputs that the definition needs to be equal: it has narrowed them, or checks them."""
    pairs: list[Equal] = list(model.meta[CONSTRAINTS])
    known: set[str] = set()
    for value, actual in given.items():
        before, after = try_dims(actual) or (), try_dims(value) or ()
        known.update(symbols(*before))
        pairs += zip(before, after, strict=False)
    return (pair for pair in pairs if not same(*pair) and known.issuperset(symbols(*pair)))


def _give_inputs(graph: ir.Graph, node: ir.Node) -> dict[ir.Value, ir.Value]:
    """Give the inputs of the definition the types of the node's, and the data of small constants.

    Returns:
        The inputs that it still has, and those of the node.
    """
    given = {}
    for index, value in enumerate(list(graph.inputs)):
        actual = node.inputs[index] if index < len(node.inputs) else None
        if actual is None:
            for user, place in tuple(value.uses()):
                user.replace_input_with(place, None)
            graph.inputs.remove(value)
            continue
        value.type, value.shape = actual.type, actual.shape
        given[value] = actual
        if actual.const_value is not None and actual.const_value.size <= MAX_DATA:
            value.const_value = actual.const_value
            graph.inputs.remove(value)
            graph.register_initializer(value)
    return given


def _dims(value: ir.Value) -> PartialDims | None:
    if value.shape is None:
        return None
    return try_dims(value) or tuple(dim if isinstance(dim, int) else None for dim in value.shape)
