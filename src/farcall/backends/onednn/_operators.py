"""The operators that oneDNN computes: what is refused, and their rows in the region's table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from farcall.backends.c._check import reason
from farcall.backends.c._node import float_attr, has_input, int_attr, ints_attr, opset
from farcall.backends.c._window import Axis, axes_of
from farcall.graph import Match
from farcall.graph.dims import Dim, dims, same

_ACTIVATIONS = {"Relu": 32, "LeakyRelu": 32, "Tanh": 33, "Sigmoid": 41, "Clip": 46}
_MOST_RANK = 5
_POOLS = {"MaxPool": 511, "GlobalAveragePool": 1023}
_INCLUDING, _EXCLUDING = 767, 1023  # the two averages: with the padding, without it


@dataclass
class Operator:
    """One primitive: the fields of ``struct operator`` in onednn.h."""

    kind: str
    source: ir.Value
    target: ir.Value
    weights: np.ndarray[Any, Any] | None = None
    bias: np.ndarray[Any, Any] | None = None
    residual: ir.Value | None = None
    algorithm: int = 0
    axis: int = 0
    axes: list[Axis] = field(default_factory=list)
    activation: int = 0
    alpha: float = 0
    beta: float = 0


def refusal(match: Match) -> str | None:
    """Why the nodes of a match are not taken, or None."""
    for node in match.nodes:
        if node.outputs[0].dtype != ir.DataType.FLOAT:
            return "only float32"
        if problem := reason(node):  # what the C backend asks of shapes and attributes
            return problem
        if len(dims(node.outputs[0])) > _MOST_RANK:
            return f"only up to {_MOST_RANK} dims"
    return _root_refusal(match.nodes[0]) or _rest_refusal(match)


def _root_refusal(node: ir.Node) -> str | None:
    if node.op_type in ("Conv", "MatMul", "Gemm"):
        constants = [value for value in node.inputs[1:] if value is not None]
        if not all(value.const_value is not None for value in constants):
            return "only constant weights and bias"
        if not all(all(dims(value)) for value in constants):
            return "weights without elements"
    if node.inputs[0].const_value is not None:  # type: ignore[union-attr]
        return "a constant that is not folded"
    x = dims(node.inputs[0])  # type: ignore[arg-type]
    match node.op_type:
        case "MatMul":
            w = dims(node.inputs[1])  # type: ignore[arg-type]
            if len(x) < 2 or len(w) < 2 or (len(w) > 2 and w[:-2] != x[:-2]):
                return "only products with equal batches, or one matrix of weights"
        case "Gemm":
            if int_attr(node, "transA", 0):
                return "transA"
            if has_input(node, 2) and not _is_row(node.inputs[2], node.outputs[0]):
                return "only a bias for each column"
        case "MaxPool" | "AveragePool":
            if len(node.outputs) > 1 or int_attr(node, "ceil_mode", 0):
                return "only pools without indices and ceil_mode"
        case "Softmax":
            if opset(node) < 13:
                return "only softmax over one axis"
    return None


def _rest_refusal(match: Match) -> str | None:
    for before, node in zip(match.nodes, match.nodes[1:], strict=False):
        if node.op_type == "Add":
            other = _other(node, before)
            if not (_is_bias(match, other, node) or _same_dims(other, node.outputs[0])):
                return "only a sum with a bias, or with a tensor of the same shape"
        elif node.op_type == "Clip":
            limits = [value for value in node.inputs[1:] if value is not None]
            if not all(value.const_value is not None for value in limits):
                return "only constant limits"
    return None


def _other(node: ir.Node, before: ir.Node) -> ir.Value:
    """The operand of a sum that is not the result of ``before``."""
    left, right = node.inputs
    return right if left is before.outputs[0] else left  # type: ignore[return-value]


def _is_row(value: ir.Value | None, result: ir.Value) -> bool:
    """Whether a constant has one element for each of the result's columns, or one for all."""
    if value is None or value.const_value is None:
        return False
    *outer, last = dims(value) or (1,)
    return all(dim == 1 for dim in outer) and last in (1, dims(result)[-1]) and len(outer) < len(dims(result))


def _is_bias(match: Match, other: ir.Value, node: ir.Node) -> bool:
    root = match.nodes[0]
    return root.op_type == "MatMul" and _is_row(other, node.outputs[0])


def _same_dims(a: ir.Value, b: ir.Value) -> bool:
    one, other = dims(a), dims(b)
    return a.const_value is None and len(one) == len(other) and all(map(same, one, other))


def operator(match: Match) -> Operator:
    """The primitive that computes a match."""
    root, *rest = match.nodes
    made = _root(root)
    made.target = match.root.outputs[0]
    for before, node in zip(match.nodes, rest, strict=False):
        if node.op_type == "Add":
            other = _other(node, before)
            if _is_bias(match, other, node):
                made.bias = _row(other, root)
            else:
                made.residual = other
        else:
            made.activation = _ACTIVATIONS[node.op_type]
            made.alpha, made.beta = _parameters(node)
    return made


def _parameters(node: ir.Node) -> tuple[float, float]:
    if node.op_type == "LeakyRelu":
        return float_attr(node, "alpha", 0.01), 0
    if node.op_type != "Clip":
        return 0, 0
    most = float(np.finfo(np.float32).max)
    limits = [float_attr(node, "min", -most), float_attr(node, "max", most)]
    for place in (1, 2):
        if has_input(node, place):
            limits[place - 1] = float(node.inputs[place].const_value.numpy())  # type: ignore[union-attr]
    return limits[0], limits[1]


def _root(node: ir.Node) -> Operator:
    target = node.outputs[0]
    source: ir.Value = node.inputs[0]  # type: ignore[assignment]
    match node.op_type:
        case "Conv":
            return _convolution(node, source)
        case "MatMul":
            weights = _data(node.inputs[1])
            weights = weights.reshape((1,) * (len(dims(source)) - weights.ndim) + weights.shape)
            return Operator("PRODUCT", source, target, weights)
        case "Gemm":
            weights = _data(node.inputs[1])
            weights = weights.T if int_attr(node, "transB", 0) else weights
            made = Operator("PRODUCT", source, target, weights * np.float32(float_attr(node, "alpha", 1)))
            if has_input(node, 2):
                made.bias = _row(node.inputs[2], node) * np.float32(float_attr(node, "beta", 1))
            return made
        case "Softmax":
            axis = int_attr(node, "axis", -1) % max(len(dims(source)), 1)
            return Operator("SOFTMAX", source, target, axis=axis)
    return _pool(node, source)


def _convolution(node: ir.Node, source: ir.Value) -> Operator:
    weights, group = _data(node.inputs[1]), int_attr(node, "group", 1)
    axes = axes_of(node, weights.shape[2:])
    if group > 1:
        weights = weights.reshape(group, weights.shape[0] // group, *weights.shape[1:])
    made = Operator("CONVOLUTION", source, node.outputs[0], weights, axes=axes)
    if has_input(node, 2):
        made.bias = _data(node.inputs[2]).reshape(-1)
    return made


def _pool(node: ir.Node, source: ir.Value) -> Operator:
    made = Operator("POOLING", source, node.outputs[0])
    if node.op_type == "GlobalAveragePool":
        made.axes = [Axis(size, 1, size, 1, 1, 0, 0) for size in dims(source)[2:]]
    else:
        made.axes = axes_of(node, ints_attr(node, "kernel_shape", []))
    average = _INCLUDING if int_attr(node, "count_include_pad", 0) else _EXCLUDING
    made.algorithm = _POOLS.get(node.op_type, average)
    return made


def _data(value: ir.Value | None) -> np.ndarray[Any, Any]:
    return value.const_value.numpy()  # type: ignore[union-attr]


def _row(value: ir.Value | None, root: ir.Node) -> np.ndarray[Any, Any]:
    return np.broadcast_to(_data(value).reshape(-1), (int(dims(root.outputs[0])[-1]),)).copy()


def window(axes: list[Axis]) -> list[Dim]:
    """Strides, taps, dilations (0: dense), and pads before and after, as oneDNN takes them."""
    return [
        *(axis.stride for axis in axes),
        *(axis.taps for axis in axes),
        *(axis.dilation - 1 for axis in axes),
        *(axis.begin for axis in axes),
        *(axis.end for axis in axes),
    ]
