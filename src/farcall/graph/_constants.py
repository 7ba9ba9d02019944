"""Nodes that compute from constants alone are computed once, here, and become constants.

Exporters leave such nodes (weights that are transposed or filled by ConstantOfShape), and no backend should
have to. The values are those of ONNX's own reference evaluator.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from farcall.graph.dims import try_dims

MAX_BYTES = 256 << 20  # a larger constant is left to be computed: the artifact would carry it
_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)


def fold_constants(model: ir.Model) -> None:
    """Replace each constant computation by its value, in place.

    Args:
        model: with shapes inferred; a node whose result's size is unknown stays.
    """
    for node in list(model.graph):
        if _is_constant(node):
            _replace(model, node)


def _is_constant(node: ir.Node) -> bool:
    return (
        node.domain in ("", "ai.onnx")
        and node.op_type not in _RANDOM
        and len(node.inputs) > 0
        and all(value is None or value.const_value is not None for value in node.inputs)
        and not any(value.is_graph_output() for value in node.outputs)
        and all(_is_small(value) for value in node.outputs if value.uses())
        and not any(
            a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()
        )
    )


def _is_small(value: ir.Value) -> bool:
    dims = try_dims(value)
    if dims is None or value.dtype is None or value.dtype == ir.DataType.STRING:
        return False
    size = 1
    for dim in dims:
        if not isinstance(dim, int):
            return False
        size *= dim
    return size * value.dtype.itemsize <= MAX_BYTES


def _replace(model: ir.Model, node: ir.Node) -> None:
    graph = model.graph
    results = _evaluate(model, node)
    if results is None:
        return
    for value in node.outputs:
        if not value.uses() or value.name is None:
            continue
        array = np.asarray(results[value.name])
        constant = ir.Value(
            name=value.name,
            shape=ir.Shape(array.shape),
            type=value.type,
            const_value=ir.tensor(array, dtype=value.dtype, name=value.name),
        )
        value.replace_all_uses_with(constant)
        value.name = None
        graph.register_initializer(constant)
    graph.remove(node, safe=True)


def _evaluate(model: ir.Model, node: ir.Node) -> dict[str, object] | None:
    """The node's results by name, or None where the reference evaluator cannot give them."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    given = [value for value in node.inputs if value is not None]
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            [ir.to_proto(node)],
            "constant",
            [onnx.helper.make_empty_tensor_value_info(value.name) for value in dict.fromkeys(given)],
            [onnx.helper.make_empty_tensor_value_info(value.name) for value in node.outputs if value.name],
        ),
        opset_imports=[onnx.helper.make_opsetid("", model.opset_imports.get("", 1))],
    )
    feeds = {value.name: value.const_value.numpy() for value in given if value.const_value is not None}
    names = [value.name for value in node.outputs if value.name]
    try:
        return dict(zip(names, ReferenceEvaluator(proto).run(names, feeds), strict=True))
    except Exception:
        return None  # an operator that the evaluator lacks, or a dtype: the node stays as it is
