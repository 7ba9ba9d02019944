"""Definitions of operators on narrow floats by the same operators on float32, where the data decides sizes.

Kernels that allocate their outputs compute with types that C has. For narrow floats, nodes around them cast:
their results are exact, or rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.graph._region import subgraphs
from farcall.graph.dims import late

if TYPE_CHECKING:
    import onnx

_D = ir.DataType
_NARROW = frozenset(
    {_D.FLOAT16, _D.BFLOAT16, _D.FLOAT8E4M3FN, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2, _D.FLOAT8E5M2FNUZ}
)


def widened(node: ir.Node, opsets: Mapping[str, int]) -> onnx.FunctionProto | None:
    """The definition of such a node; None if it is another.

    Args:
        node: A node whose operands have types. Nodes of control flow have none: their graphs may read values
            that no function sees, and each node in them is asked for.
        opsets: Domain -> version, of the model.
    """
    narrow = any(map(_is_narrow, (*node.inputs, *node.outputs)))
    if subgraphs(node) or not narrow or not any(map(late, node.outputs)):
        return None
    from onnx import helper

    inner = ir.serde.serialize_node(node)
    inner.name = ""
    read, before = _wide("i", node.inputs)
    made, after = _wide("o", node.outputs)
    inner.input[:], inner.output[:] = read, made
    for attribute in inner.attribute:
        _widen(attribute)
    nodes = [helper.make_node("Cast", [name], [wide], to=int(_D.FLOAT)) for name, wide, _ in before]
    nodes.append(inner)
    nodes += [helper.make_node("Cast", [wide], [name], to=int(dtype)) for name, wide, dtype in after]
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    inputs = [f"i{index}" for index in range(len(node.inputs))]
    outputs = [f"o{index}" for index in range(len(node.outputs))]
    return helper.make_function(node.domain, node.op_type, inputs, outputs, nodes, imports)


def _is_narrow(value: ir.Value | None) -> bool:
    return value is not None and value.dtype in _NARROW


def _wide(
    letter: str, values: Sequence[ir.Value | None]
) -> tuple[list[str], list[tuple[str, str, ir.DataType]]]:
    """The names of a node's values, and for each narrow one its name, that of its twin, and its dtype."""
    names, twins = [], []
    for index, value in enumerate(values):
        name = f"{letter}{index}" if value is not None and value.name else ""
        if name and value is not None and value.dtype is not None and _is_narrow(value):
            twins.append((name, f"{name}_wide", value.dtype))
            name = f"{name}_wide"
        names.append(name)
    return names, twins


def _widen(attribute: onnx.AttributeProto) -> None:
    """Make a tensor of narrow floats one of float32."""
    if _D(attribute.t.data_type) in _NARROW:
        tensor = ir.serde.deserialize_tensor(attribute.t)
        wide = ir.tensor(tensor.numpy().astype("float32"), name=tensor.name)
        attribute.t.CopyFrom(ir.serde.serialize_tensor(wide))
