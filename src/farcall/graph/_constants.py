"""Constant folding: computes nodes whose inputs are all constants, and replaces them by constants.

Exporters leave such nodes (weights that are transposed or filled by ConstantOfShape), and backends should not
have to handle them. ONNX's reference evaluator computes the values of those that it computes as ONNX says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from farcall.graph._view import PartialDims

MAX_BYTES = 256 << 20  # a node with a larger result stays: the artifact would have to carry the constant
_GROWTH = 8  # times the model's own constants: int4 weights as float32, or several steps for each weight
# The operators that numpy has, too: the evaluator computes them as ONNX says, and operands and results bound
# its memory and time. Others it may compute wrongly (LpNormalization keeps the signs, GlobalMaxPool of three
# axes takes one maximum of all planes, Softmax has one axis before opset 13), or in memory that only an
# attribute bounds.
_MOVES = """
Cast CastLike Compress Concat ConstantOfShape DepthToSpace Expand EyeLike Flatten Gather GatherElements
GatherND Identity NonZero Pad Range Reshape ReverseSequence ScatterElements ScatterND Shape Size Slice
SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze Where BitCast
"""
_ELEMENTS = """
Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clip
Cos Cosh DequantizeLinear Div Equal Erf Exp Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log
Max Mean Min Mod Mul Neg Not Or Pow QuantizeLinear Reciprocal Relu Round Sigmoid Sign Sin Sinh Sqrt Sub Sum
Tan Tanh Xor
"""
_SUMS = """
ArgMax ArgMin BlackmanWindow Einsum Gemm HammingWindow HannWindow MatMul MatMulInteger MelWeightMatrix
ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare
"""
_FOLDED = frozenset((_MOVES + _ELEMENTS + _SUMS).split())
# The first version that the evaluator knows, of operators that mean the same before it.
_SINCE = {"QuantizeLinear": 19, "DequantizeLinear": 19}


class Folder:
    """Replaces nodes whose inputs are all constants by their results, within a budget.

    A model of a few hundred bytes can define any number of constants, each just below ``MAX_BYTES``, so the
    sum is bounded too. A node that does not fit in the budget stays as it is.

    Args:
        model: Changed in place.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        own = (value.const_value for value in model.graph.initializers.values())
        self._left = MAX_BYTES + _GROWTH * sum(tensor.nbytes for tensor in own if tensor is not None)

    def fold(self, node: ir.Node, found: Sequence[PartialDims | None]) -> dict[ir.Value, ir.Value]:
        """Compute ``node``, for which :func:`is_constant` must hold.

        Args:
            node: A node of the model.
            found: The dims of its outputs, inferred from its operands. Declared dims do not bound the size.

        Returns:
            Each output, and the constant that replaces it; empty if the node stays.
        """
        known = [*found, *[None] * len(node.outputs)]  # a rule may tell of outputs that the node leaves out
        sizes = [_bytes(*item) for item in zip(node.outputs, known, strict=False) if item[0].uses()]
        if any(size is None for size in sizes) or sum(size or 0 for size in sizes) > self._left:
            return {}
        results = _evaluate(self._model, node)
        if results is None:
            return {}
        arrays = {value: results[value.name] for value in node.outputs if value.uses() and value.name}
        self._left -= sum(array.nbytes for array in arrays.values())
        return replace(node.graph if isinstance(node.graph, ir.Graph) else self._model.graph, node, arrays)


def replace(
    graph: ir.Graph, node: ir.Node, arrays: Mapping[ir.Value, np.ndarray]
) -> dict[ir.Value, ir.Value]:
    """Remove ``node``, and replace its outputs, also those that are outputs of the graph, by constants.

    Args:
        graph: The graph of the node.
        node: A node.
        arrays: The elements of each of its outputs that is used.

    Returns:
        The constant that replaces each output.
    """
    constants = {value: _constant(value, array) for value, array in arrays.items()}
    for value, constant in constants.items():
        value.replace_all_uses_with(constant, replace_graph_outputs=True)
        value.name = None
        graph.register_initializer(constant)
    graph.remove(node, safe=True)
    return constants


def _constant(value: ir.Value, array: np.ndarray) -> ir.Value:
    tensor = ir.tensor(array, dtype=value.dtype, name=value.name)
    return ir.Value(name=value.name, shape=ir.Shape(array.shape), type=value.type, const_value=tensor)


def is_constant(node: ir.Node) -> bool:
    """Whether a node's inputs are all constants, its results never vary, and none is a graph output."""
    return (
        node.domain in ("", "ai.onnx")
        and node.op_type in _FOLDED
        and len(node.inputs) > 0
        and all(value is None or value.const_value is not None for value in node.inputs)
        and not any(value.is_graph_output() for value in node.outputs)
        and _is_plain(node)
    )


def _is_plain(node: ir.Node) -> bool:
    """Whether the evaluator, which leaves it to numpy, takes bounds and axes as ONNX does."""
    if node.op_type == "Slice":
        # Backwards, from a start before the first element, ONNX takes that element, and numpy takes none.
        steps = node.inputs[4].const_value if len(node.inputs) > 4 and node.inputs[4] is not None else None
        return steps is None or bool((steps.numpy() > 0).all())
    if node.op_type == "GatherElements":
        # The evaluator goes round and round to an index outside: for 2**60 that takes years.
        given = [value.const_value for value in node.inputs if value is not None]
        data, indices = (tensor.numpy() for tensor in given if tensor is not None)
        axis = node.attributes.get_int("axis", 0)
        if not -data.ndim <= axis < data.ndim:
            return False
        size = data.shape[axis]
        return bool(((indices >= -size) & (indices < size)).all())
    if node.op_type == "Unsqueeze" and "axes" in node.attributes:
        # The evaluator inserts one axis after the other, where ONNX counts them in the result.
        axes = node.attributes["axes"].as_ints()
        return min(axes, default=0) >= 0 and list(axes) == sorted(axes)
    return True


def _bytes(value: ir.Value, dims: PartialDims | None) -> float | None:
    """The size of a constant in bytes; None if it is not known, or above the bound."""
    if dims is None or value.dtype is None or value.dtype == ir.DataType.STRING:
        return None
    size: float = value.dtype.itemsize  # elements of four bits take half a byte
    for dim in dims:
        if not isinstance(dim, int) or dim < 0:
            return None
        size *= dim
    return size if size <= MAX_BYTES else None


def _evaluate(model: ir.Model, node: ir.Node) -> dict[str, np.ndarray] | None:
    """The node's results by name, or None if the reference evaluator cannot compute them."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    given = [value for value in node.inputs if value is not None]
    version = model.opset_imports.get("", 1)
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            [ir.to_proto(node)],
            "constant",
            [onnx.helper.make_empty_tensor_value_info(value.name) for value in dict.fromkeys(given)],
            [onnx.helper.make_empty_tensor_value_info(value.name) for value in node.outputs if value.name],
        ),
        opset_imports=[onnx.helper.make_opsetid("", max(version, _SINCE.get(node.op_type, 0)))],
    )
    feeds = {value.name: value.const_value.numpy() for value in given if value.const_value is not None}
    names = [value.name for value in node.outputs if value.name]
    try:
        results = dict(zip(names, map(np.asarray, ReferenceEvaluator(proto).run(names, feeds)), strict=True))
        for value in node.outputs:
            if value.name:
                ir.tensor(results[value.name], dtype=value.dtype)  # of that dtype?
        return results
    except Exception:
        return None  # the evaluator lacks the operator, or computes another dtype: the node stays as it is
