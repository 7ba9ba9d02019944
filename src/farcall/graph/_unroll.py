"""Loops of a few known steps that carry sequences: each step becomes nodes of the graph around the Loop.

The steps may put tensors of different shapes into a sequence, as torch's ``tensor_split`` does, and no tensor
holds these. Once the steps are nodes, all tensors of the sequence are known.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from farcall.graph._inline import add_constant, discard, splice, unique
from farcall.graph._view import NotKnownError, constant_data

_MOST_STEPS = 64
_MOST_NODES = 4096  # that a Loop becomes


def unrolled(graph: ir.Graph, node: ir.Node, taken: set[str]) -> list[ir.Node] | None:
    """Replace a Loop by the nodes of its steps.

    Args:
        graph: The graph of the model.
        node: A Loop of it.
        taken: The names of the model; gets the new ones.

    Returns:
        The new nodes, in topological order; None, and nothing is changed, if the number of steps is not known
        none, or large, a step may end the Loop, or the Loop has results of all steps.
    """
    body = node.attributes["body"].as_graph()
    steps = _steps(node, body)
    carried = list(node.inputs[2:])
    if steps is None or steps * _size(body) > _MOST_NODES or len(body.outputs) != len(carried) + 1:
        return None
    calls: list[tuple[ir.Node, ir.Graph]] = []
    values: Sequence[ir.Value] = ()
    for _ in range(steps):
        step = ir.Node(
            "", "Loop", values or carried, num_outputs=len(carried), name=unique(f"{node.name}/step", taken)
        )
        for made, old in zip(step.outputs, node.outputs, strict=True):
            made.name, made.type = unique(f"{step.name}/{old.name}", taken), old.type
        calls.append((step, body.clone(allow_outer_scope_values=True)))
        values = step.outputs
    graph.insert_before(node, [step for step, _ in calls])
    for old, new in zip(list(node.outputs), values, strict=True):
        name, new.shape = old.name, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        old.name, new.name = None, name
    discard(graph, node)
    return _spliced(graph, calls, taken)


def _spliced(graph: ir.Graph, calls: list[tuple[ir.Node, ir.Graph]], taken: set[str]) -> list[ir.Node]:
    found: list[ir.Node] = []
    for number, (step, inner) in enumerate(calls):
        del inner.outputs[0]
        known = [
            add_constant(graph, unique(f"{step.name}/{what}", taken), ir.tensor(value, dtype=dtype))
            for what, value, dtype in (("i", number, ir.DataType.INT64), ("go", True, ir.DataType.BOOL))
        ]
        found += splice(graph, step, inner, [*known, *step.inputs], taken)
    return found


def _steps(node: ir.Node, body: ir.Graph) -> int | None:
    """The number of steps that a Loop always takes; None if that is not known, or more than a few."""
    count, go = node.inputs[0], node.inputs[1]
    if (
        count is None
        or not (go is None or _is_true(go, None))
        or not _is_true(body.outputs[0], body.inputs[1])
    ):
        return None
    try:
        (steps,) = constant_data(count).ravel().tolist()
    except NotKnownError:
        return None
    return steps if 0 < steps <= _MOST_STEPS else None


def _is_true(value: ir.Value, given: ir.Value | None) -> bool:
    """Whether a condition is always true if ``given`` is."""
    maker = value.producer()
    while maker is not None and maker.op_type == "Identity" and maker.inputs[0] is not None:
        value = maker.inputs[0]
        maker = value.producer()
    if value is given:
        return True
    if maker is not None and maker.op_type == "Constant" and "value" in maker.attributes:
        return bool(maker.attributes["value"].as_tensor().numpy().all())
    return value.const_value is not None and bool(value.const_value.numpy().all())


def _size(body: ir.Graph) -> int:
    return sum(1 for _ in ir.traversal.RecursiveGraphIterator(body))
