"""Operands that broadcast to each other only in some calls, because a symbolic dim of one may be 1.

Backends may rely on it that a dim which is not the int 1 is never broadcast. So each such operand gets an
Expand of its own, to the dims that all operands have together; Expand alone compares sizes in each call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from farcall.graph._inline import add_constant, unique
from farcall.graph._microsoft_calls import DOMAIN
from farcall.graph._onnx_types import is_default_domain
from farcall.graph._qdq import copied, with_one_scale
from farcall.graph._shape_rules import BROADCAST, right_operand
from farcall.graph._view import Dims
from farcall.graph.dims import Dim, broadcast, same

_STRETCHED = "farcall.stretched"  # key in an Expand's meta


@dataclass(frozen=True)
class Stretched:
    """The operands that do not fit each other if an inserted Expand fails."""

    reader: str  # the node and its operator
    own: str
    other: str


def stretched(node: ir.Node) -> Stretched | None:
    """For what an Expand was inserted; None if it is a node of the model."""
    found: Stretched | None = node.meta.get(_STRETCHED)
    return found


_PRODUCTS = frozenset({"MatMul", "MatMulInteger", "QLinearMatMul"})
_BROADCAST = frozenset(BROADCAST.split())
_QUANTIZED = frozenset({"QLinearAdd", "QLinearMul"})


def spell_out(
    nodes: Sequence[ir.Node], graph: ir.Graph, shapes: Mapping[ir.Value, Dims], taken: set[str]
) -> set[ir.Node]:
    """Insert an Expand before each operand that may have to be broadcast.

    Args:
        nodes: Nodes of a model.
        graph: Their graph, which is changed in place.
        shapes: The dims of values.
        taken: The names in the model; gets the new ones.

    Returns:
        The nodes whose operands were changed.
    """
    found: set[ir.Node] = set()
    replaced: dict[ir.Node | None, None] = {}
    for node in nodes:
        for index, others in _unequal(node, shapes):
            replaced[with_one_scale(node.inputs[index])] = None
            _expand(graph, node, index, others, taken)
            found.add(node)
    for maker in replaced:
        if maker is not None and not maker.outputs[0].uses() and not maker.outputs[0].is_graph_output():
            graph.remove(maker, safe=True)
    return found


def _unequal(
    node: ir.Node, shapes: Mapping[ir.Value, Dims]
) -> list[tuple[int, list[tuple[ir.Value, list[bool]]]]]:
    """The inputs that need an Expand, each with the values whose dims it takes, and which of their axes."""
    if node.domain == DOMAIN and node.op_type in _QUANTIZED:
        operands, kept = [0, 3], 0
    elif not is_default_domain(node.domain):
        return []
    elif node.op_type in _PRODUCTS:
        operands, kept = [0, right_operand(node)], 2
    elif node.op_type in _BROADCAST:
        operands, kept = list(range(len(node.inputs))), 0
    else:
        return []
    values = [node.inputs[index] for index in operands]
    known = [shapes.get(value) if value is not None else None for value in values]
    result = []
    for place, index in enumerate(operands):
        own = known[place]
        if own is None:
            continue
        takes = []
        for value, other in zip(values, known, strict=True):
            if value is None or other is None or value is values[place]:
                continue
            axes = [_may_grow(own, axis - len(other), other[axis], kept) for axis in range(len(other))]
            if any(axes):
                takes.append((value, axes))
        if takes:
            result.append((index, takes))
    return result


def _may_grow(own: Sequence[Dim], axis: int, other: Dim, kept: int) -> bool:
    """Whether the dim ``axis`` (from the end) of an operand may have to become that of another one."""
    if axis < -len(own) or axis >= -kept or own[axis] == 1 or other == 1:
        return False
    together = broadcast(own[axis], other)
    return together is not None and not same(together, own[axis])


def _expand(
    graph: ir.Graph, node: ir.Node, index: int, others: list[tuple[ir.Value, list[bool]]], taken: set[str]
) -> None:
    """Expand an operand. One that is dequantized by one scale is expanded before, so that patterns match."""
    prefix = f"{node.name}/input{index}"
    given = node.inputs[index]
    name = (given.name if given is not None else "") or ""
    maker = with_one_scale(given)
    if maker is not None:
        given = maker.inputs[0]
    for value, axes in others:
        other = with_one_scale(value)
        source = value if other is None else other.inputs[0]
        shape = ir.node("Shape", [source], name=unique(f"{prefix}/shape", taken))
        nodes, target = [shape], shape.outputs[0]
        if not all(axes):  # 1 along the others
            some = add_constant(graph, unique(f"{prefix}/axes", taken), np.array(axes, np.int64))
            ones = add_constant(graph, unique(f"{prefix}/others", taken), 1 - np.array(axes, np.int64))
            nodes.append(ir.node("Mul", [target, some], name=unique(f"{prefix}/sizes", taken)))
            nodes.append(ir.node("Add", [nodes[-1].outputs[0], ones], name=unique(f"{prefix}/target", taken)))
            target = nodes[-1].outputs[0]
        nodes.append(ir.node("Expand", [given, target], name=unique(f"{prefix}/expand", taken)))
        about = Stretched(f"{node.op_type} `{node.name}`", name, value.name or "")
        nodes[-1].meta[_STRETCHED] = about
        given = nodes[-1].outputs[0]
        _insert(graph, node, nodes, taken)
    if maker is not None:
        copy = copied(maker, [given, *maker.inputs[1:]], unique(f"{prefix}/dequantize", taken))
        given = copy.outputs[0]
        _insert(graph, node, [copy], taken)
    node.replace_input_with(index, given)


def _insert(graph: ir.Graph, node: ir.Node, nodes: Sequence[ir.Node], taken: set[str]) -> None:
    for item in nodes:
        item.outputs[0].name = unique(f"{item.name}_output", taken)
    graph.insert_before(node, nodes)
