"""Expands operators: replaces nodes that no backend takes by ONNX's own definitions of their operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from farcall.errors import ModelError
from farcall.graph._annotate import Answer, describe_node
from farcall.graph._bodies import body_of
from farcall.graph._folding import fold_shapes
from farcall.graph._guards import MAX_NODES
from farcall.graph._inline import names_of, splice
from farcall.graph._shapes import infer_again

ORIGIN = "farcall.expanded_from"  # key in a node's metadata: the name of the node whose definition it is from


@dataclass(frozen=True)
class Expansion:
    """A node that no backend took as a whole, and that was replaced by its definition.

    ``nodes`` are the names of the nodes of the definition, before constants were folded. ``answers`` say why
    no backend took it. ``origin`` is the name of the node from whose own definition it is, if it is from one.
    """

    node: str
    origin: str
    operator: str
    about: str
    nodes: tuple[str, ...]
    answers: tuple[Answer, ...]


def origin(node: ir.Node) -> str:
    """The name of the node from whose definition a node is; empty for a node of the model itself."""
    return node.metadata_props.get(ORIGIN, "")


def expand(
    model: ir.Model, missing: Sequence[ir.Node], answers: Mapping[ir.Node, Sequence[Answer]]
) -> tuple[ir.Model, dict[str, Expansion]]:
    """Replace nodes by their definitions, and infer shapes and fold constants again.

    Args:
        model: A loaded model. It is not changed.
        missing: Nodes that no backend takes.
        answers: Why.

    Returns:
        A new model, and what was expanded, by the name of the node; the same model, and nothing, if no node
        has a definition.

    Raises:
        ModelError: The model would get too many nodes.
    """
    found = {node: body for node in missing if (body := _definition(node, model)) is not None}
    if not found:
        return model, {}
    size = len(model.graph) + sum(len(body.graph) for body in found.values())
    if size > MAX_NODES:
        kinds = ", ".join(sorted({node.op_type for node in found}))
        raise ModelError(
            f"{model.graph.name or 'the model'}: with operators expanded, it has {size:,} nodes; expected at "
            f"most {MAX_NODES:,}: add a backend that takes {kinds}"
        )
    result = model.clone()
    result.meta.update(model.meta)
    by_name = {node.name: node for node in result.graph}
    taken = names_of(result.graph)
    expansions: dict[str, Expansion] = {}
    for node, function in found.items():
        name = node.name or ""
        target = by_name[name]
        nodes = splice(result.graph, target, function.graph, target.inputs, taken)
        for item in nodes:
            item.metadata_props[ORIGIN] = name
        names = tuple(item.name or "" for item in nodes)
        expansions[name] = Expansion(
            name, origin(node), node.op_type, describe_node(node), names, tuple(answers.get(node, ()))
        )
    fold_shapes(result, infer_again(result))
    return result, expansions


def _definition(node: ir.Node, model: ir.Model) -> ir.Function | None:
    body = body_of(node, model.opset_imports)
    try:
        return None if body is None else ir.serde.deserialize_function(body)
    except ir.serde.SerdeError:  # ONNX writes bodies without types for sequences of unknown elements
        return None
