"""MatMul and Gemm: matrix products, of matrices in row-major or transposed order."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from farcall.backends.c._node import float_attr, has_input, int_attr, operand
from farcall.backends.onednn._elements import LINEAR, broadcast
from farcall.backends.onednn._table import BIAS, SOURCE, TARGET, WEIGHTS, After, Operator, fixed, viewed
from farcall.graph.dims import Dim, dims, product

_ADD = 0x1FFF0


def refusal(node: ir.Node) -> str | None:
    """Why a product is not taken, or None."""
    if node.op_type == "Gemm" and has_input(node, 2):
        value = operand(node, 2)
        if value.const_value is None and float_attr(node, "beta", 1) != 1:
            return "beta of a sum that is not constant"
        if broadcast(value, dims(node.outputs[0])) is None:
            return "only a sum with one element, with a row, or with a tensor of the same shape"
    return None


def product_of(node: ir.Node) -> Operator:
    """The primitive of a MatMul or Gemm."""
    return _gemm(node) if node.op_type == "Gemm" else _matmul(node)


def _matmul(node: ir.Node) -> Operator:
    left, right = operand(node, 0), operand(node, 1)
    a, b = list(dims(left)), list(dims(right))
    a = [1, *a] if len(a) == 1 else a
    b = [*b, 1] if len(b) == 1 else b
    if product(b[:-2]) == 1:  # one product of all rows
        a, b = [product(a[:-1]), a[-1]], b[-2:]
    rank = max(len(a), len(b))
    a, b = ([1] * (rank - len(sizes)) + sizes for sizes in (a, b))
    outer: list[Dim] = [x if x != 1 else y for x, y in zip(a[:-2], b[:-2], strict=True)]
    return Operator(
        "PRODUCT",
        [viewed(SOURCE, left, a), viewed(WEIGHTS, right, b, layout=_layout(right))],
        viewed(TARGET, node.outputs[0], (*outer, a[-2], b[-1])),
    )


def _layout(weights: ir.Value) -> str:
    """Constant weights are reordered once; others would be in each call."""
    return "PREFERRED" if weights.const_value is not None else "STRIDED"


def _gemm(node: ir.Node) -> Operator:
    left, right = operand(node, 0), operand(node, 1)
    source = viewed(SOURCE, left, dims(left), _order(node, "transA"))
    weights = viewed(WEIGHTS, right, dims(right), _order(node, "transB"), _layout(right))
    made = Operator("PRODUCT", [source, weights], viewed(TARGET, node.outputs[0], dims(node.outputs[0])))
    alpha = float_attr(node, "alpha", 1)
    if isinstance(weights.value, np.ndarray):
        weights.value = weights.value * np.float32(alpha)
    elif alpha != 1:
        made.append(After(LINEAR, alpha))
    if has_input(node, 2):
        _add(node, made)
    return made


def _order(node: ir.Node, name: str) -> tuple[int, int]:
    return (1, 0) if int_attr(node, name, 0) else (0, 1)


def _add(node: ir.Node, made: Operator) -> None:
    """Add the third operand of a Gemm: a constant row as the primitive's bias."""
    value = operand(node, 2)
    sizes = dims(node.outputs[0])
    if value.const_value is None:
        made.append(After(_ADD, operand=broadcast(value, sizes)))
        return
    data = value.const_value.numpy() * np.float32(float_attr(node, "beta", 1))
    columns = sizes[1]
    if not made.afters and isinstance(columns, int) and data.size in (1, columns) and data.shape[-1:] != (1,):
        row = np.broadcast_to(data.reshape(1, -1), (1, columns))
        made.operands.append(fixed(BIAS, row))
    else:
        made.append(After(_ADD, operand=fixed(0, data.reshape((1,) * (2 - data.ndim) + data.shape))))
