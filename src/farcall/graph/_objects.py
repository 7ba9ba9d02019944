"""Values that are no tensors of numbers: tensors of strings, sequences and optionals.

They cross borders as objects, and only backends whose package computes where the artifact is loaded take
nodes that read or make them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

import msgspec
import onnx_ir as ir

from farcall.abi import Leaf, ListSpec, Repeated, TensorSpec
from farcall.errors import ModelError
from farcall.graph._region import reads
from farcall.graph.dims import Dim, dims, dtype_name, is_object, text

Type: TypeAlias = "ir.TypeProtocol | None"


def own_dims(value: ir.Value) -> tuple[Dim, ...]:
    """The dims of a tensor, which bind symbols; none of a sequence or an optional."""
    return dims(value) if isinstance(value.type, ir.TensorType) else ()


OBJECTS = "farcall.objects"  # key in graph.meta: whether any value of the graph is no tensor of numbers


def has_objects(graph: ir.Graph, nodes: Sequence[ir.Node]) -> bool:
    """Whether any value of a graph of these nodes is no tensor of numbers."""
    made = (value for node in nodes for value in node.outputs)
    return any(map(is_object, chain(graph.inputs, graph.initializers.values(), made)))


def objects(node: ir.Node) -> list[ir.Value]:
    """The values that a node reads or makes and that are no tensors of numbers."""
    graph = node.graph
    if graph is not None and graph.meta.get(OBJECTS) is False:  # as in most models
        return []
    return [value for value in (*reads(node), *node.outputs) if is_object(value)]


def leaf_of(value: ir.Value) -> Leaf:
    """The leaf of a Signature for a value that crosses a border.

    Raises:
        ModelError: its type or its shape is not known.
    """
    name = value.name or ""
    if isinstance(value.type, ir.TensorType):
        return _tensor(name, value.type.dtype, text(dims(value)))
    return _leaf(name, value.type, value)


def _tensor(name: str, dtype: ir.DataType, shape: tuple[int | str, ...] | None) -> TensorSpec:
    try:
        return TensorSpec(name, dtype_name(dtype), shape)
    except ValueError as error:
        raise ModelError(
            f"`{name}` has dtype {dtype_name(dtype)}, which cannot cross a border: {error}"
        ) from None


def _leaf(name: str, kind: Type, value: ir.Value) -> Leaf:
    """The leaf of a type inside of the type of a value."""
    if isinstance(kind, ir.TensorType):
        is_alone = isinstance(value.type, ir.OptionalType) and value.type.elem_type is kind
        return _tensor(name, kind.dtype, _shape(value) if is_alone else None)
    if isinstance(kind, ir.SequenceType):
        return ListSpec(name, (_leaf("", kind.elem_type, value),), Repeated("list"))
    if isinstance(kind, ir.OptionalType):
        return msgspec.structs.replace(_leaf(name, kind.elem_type, value), optional=True)
    raise ModelError(f"`{value.name}`: expected a tensor, a sequence or an optional, got {value.type}")


def _shape(value: ir.Value) -> tuple[int | str, ...] | None:
    """What is known of the tensor of an optional: its sizes bind no symbols.

    Of the tensors of a sequence nothing is said: each has its own shape, whatever the model declares.
    """
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else "?" for dim in value.shape)
