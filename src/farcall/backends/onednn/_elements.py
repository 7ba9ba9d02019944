"""Elementwise and binary operators, softmax and normalizations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from farcall.backends.c._node import (
    constant_operand,
    float_attr,
    has_input,
    int_attr,
    normalize_axis,
    operand,
    opset,
    str_attr,
)
from farcall.backends.onednn._table import (
    MEAN,
    SCALE,
    SECOND,
    SHIFT,
    SOURCE,
    TARGET,
    VARIANCE,
    After,
    Operand,
    Operator,
    viewed,
    whole,
)
from farcall.graph.dims import Dim, dims, product, same

LINEAR = 0x26
ELEMENTWISE = {
    "Relu": 0x20,
    "LeakyRelu": 0x20,
    "Tanh": 0x21,
    "Elu": 0x22,
    "HardSigmoid": 0x28,
    "Sigmoid": 0x29,
    "Swish": 0x2C,  # also Mul(x, Sigmoid(x))
    "Clip": 0x2E,
    "Gelu": 0x31,
    "Mish": 0x33,
    "HardSwish": 0x34,
}
_GELU_TANH = 0x2B
BINARY = {"Add": 0x1FFF0, "Mul": 0x1FFF1, "Max": 0x1FFF2, "Min": 0x1FFF3, "Div": 0x1FFF4, "Sub": 0x1FFF5}
COMMUTATIVE = ("Add", "Mul", "Max", "Min")


def elementwise_refusal(node: ir.Node) -> str | None:
    """Why an activation is not taken, or None."""
    limits = [value for value in node.inputs[1:] if value is not None]
    if not all(value.const_value is not None for value in limits):
        return "only constant limits"
    return None


def activation(node: ir.Node) -> After:
    """What an activation computes on each element."""
    kind = node.op_type
    if kind == "Gelu" and str_attr(node, "approximate", "none") == "tanh":
        return After(_GELU_TANH)
    return After(ELEMENTWISE[kind], *_parameters(node))


def _parameters(node: ir.Node) -> tuple[float, float]:
    match node.op_type:
        case "LeakyRelu":
            return float_attr(node, "alpha", 0.01), 0
        case "Elu" | "Swish":
            return float_attr(node, "alpha", 1), 0
        case "HardSigmoid":
            return float_attr(node, "alpha", 0.2), float_attr(node, "beta", 0.5)
        case "HardSwish":
            return 1 / 6, 0.5
        case "Clip":
            return _limits(node)
    return 0, 0


def _limits(node: ir.Node) -> tuple[float, float]:
    most = float(np.finfo(np.float32).max)
    limits = [float_attr(node, "min", -most), float_attr(node, "max", most)]
    for place in (1, 2):
        if has_input(node, place):
            limits[place - 1] = float(constant_operand(node, place).reshape(()))
    return limits[0], limits[1]


def elementwise(source: ir.Value, target: ir.Value, after: After) -> Operator:
    """The primitive of an activation that does not follow another primitive."""
    return Operator(
        "ELEMENTWISE",
        [whole(SOURCE, source, "KEPT")],
        whole(TARGET, target, "LIKE_SOURCE"),
        after.algorithm,
        alpha=after.alpha,
        beta=after.beta,
    )


def operands_of(node: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    """The operand of a binary operator that has the result's shape, and the other one."""
    left, right = operand(node, 0), operand(node, 1)
    sizes = dims(node.outputs[0])
    ways = [(left, right), (right, left)] if node.op_type in COMMUTATIVE else [(left, right)]
    for full, other in ways:
        if full.const_value is None and is_shape(full, sizes) and _fits(other, sizes):
            return full, other
    return None


def is_shape(value: ir.Value, sizes: tuple[Dim, ...]) -> bool:
    """Whether a value has these dims."""
    own = dims(value)
    return len(own) == len(sizes) and all(map(same, own, sizes))


def _fits(value: ir.Value, sizes: tuple[Dim, ...]) -> bool:
    own = dims(value)
    aligned = zip(own, sizes[len(sizes) - len(own) :], strict=True)
    return all(mine == 1 or same(mine, size) for mine, size in aligned)


def binary_refusal(node: ir.Node) -> str | None:
    """Why a binary operator is not taken, or None."""
    if len(node.inputs) != 2:
        return "only two operands"
    if operands_of(node) is None:
        return "only one operand of the result's shape, and one that is broadcast to it"
    return None


def padded(what: int, value: ir.Value, rank: int) -> Operand:
    """An operand with axes of size 1 in front, up to ``rank``."""
    own = dims(value)
    return viewed(what, value, (*([1] * (rank - len(own))), *own))


def binary(node: ir.Node) -> Operator:
    """The primitive of a binary operator that does not follow another primitive."""
    full, other = operands_of(node)  # type: ignore[misc]
    sizes = dims(node.outputs[0])
    second = (
        whole(SECOND, other, "LIKE_SOURCE") if is_shape(other, sizes) else padded(SECOND, other, len(sizes))
    )
    return Operator(
        "BINARY",
        [whole(SOURCE, full, "KEPT"), second],
        whole(TARGET, node.outputs[0], "LIKE_SOURCE"),
        BINARY[node.op_type],
    )


def broadcast(value: ir.Value, sizes: tuple[Dim, ...]) -> Operand | None:
    """A value beside a product of these dims: one element, a row, or all; None: oneDNN would be slow."""
    own = dims(value)
    if len(own) > len(sizes) or not _fits(value, sizes):
        return None
    if is_shape(value, sizes) or product(own[:-1]) == 1:
        return padded(0, value, len(sizes))
    return None


def softmax_refusal(node: ir.Node) -> str | None:
    """Why a Softmax is not taken, or None."""
    return "only softmax over one axis" if opset(node) < 13 else None


def softmax(node: ir.Node) -> Operator:
    """The primitive of a Softmax."""
    source = operand(node, 0)
    axis = normalize_axis(int_attr(node, "axis", -1), len(dims(source)))
    made = Operator("SOFTMAX", [whole(SOURCE, source, "KEPT")], whole(TARGET, node.outputs[0], "LIKE_SOURCE"))
    made.axis = axis
    return made


def layer_refusal(node: ir.Node) -> str | None:
    """Why a LayerNormalization is not taken, or None."""
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return "only the normalized tensor, without mean and deviation"
    axis = _layer_axis(node)
    inner = product(dims(operand(node, 0))[axis:])
    if not all(same(product(dims(value)), inner) for value in node.inputs[1:] if value is not None):
        return "only a scale and a bias for each element"
    return None


def _layer_axis(node: ir.Node) -> int:
    return normalize_axis(int_attr(node, "axis", -1), len(dims(operand(node, 0))))


def layer_normalization(node: ir.Node) -> Operator:
    """The primitive of a LayerNormalization, over the columns of a matrix."""
    source = operand(node, 0)
    sizes, axis = dims(source), _layer_axis(node)
    matrix = (product(sizes[:axis]), product(sizes[axis:]))
    operands = [viewed(SOURCE, source, matrix)]
    for what, value in zip((SCALE, SHIFT), node.inputs[1:3], strict=False):
        if value is not None:
            operands.append(viewed(what, value, matrix[1:]))
    target = viewed(TARGET, node.outputs[0], matrix)
    return Operator("LAYER_NORMALIZATION", operands, target, alpha=float_attr(node, "epsilon", 1e-5))


def batch_refusal(node: ir.Node) -> str | None:
    """Why a BatchNormalization is not taken, or None."""
    if int_attr(node, "training_mode", 0) or any(value.uses() for value in node.outputs[1:]):
        return "only inference"
    return "only two dims or more" if len(dims(operand(node, 0))) < 2 else None


def batch_normalization(node: ir.Node) -> Operator:
    """The primitive of a BatchNormalization."""
    operands = [whole(SOURCE, operand(node, 0), "KEPT")]
    for place, what in enumerate((SCALE, SHIFT, MEAN, VARIANCE), 1):
        value = operand(node, place)
        operands.append(viewed(what, value, dims(value)))
    target = whole(TARGET, node.outputs[0], "LIKE_SOURCE")
    return Operator("BATCH_NORMALIZATION", operands, target, alpha=float_attr(node, "epsilon", 1e-5))
