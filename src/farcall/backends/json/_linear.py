"""Matrix products, convolutions, pooling and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import onnx_ir as ir

from farcall.backends.c._node import (
    Unsupported,
    constant,
    float_attr,
    has_input,
    int_attr,
    ints_attr,
    operand,
    output_used,
)
from farcall.backends.c._reduction import reduced_axes
from farcall.backends.c._window import Axis, axes_of
from farcall.backends.json._graph import GraphFunction, dtype_of
from farcall.backends.json._registry import lowers
from farcall.graph.dims import Dim, dims, product

_PRODUCTS = {"float32", "float64", "int32", "int64"}


def _product(f: GraphFunction, a: int, b: int, out: int, swaps: tuple[int, int] = (0, 0)) -> None:
    if f.dtype(a) not in _PRODUCTS:
        raise Unsupported(f"a product of {f.dtype(a)}")
    f.step("matmul", [a, b], out, swaps)


@lowers("MatMul")
def _matmul(f: GraphFunction, node: ir.Node) -> None:
    a, b = f.of(operand(node, 0)), f.of(operand(node, 1))
    target = f.temporary(f.dtype(a), dims(node.outputs[0]))
    shape = list(f.shape(target))
    if len(f.shape(a)) == 1:
        shape.insert(len(shape) - (len(f.shape(b)) > 1), 1)
        a = f.view(a, (1, *f.shape(a)))
    if len(f.shape(b)) == 1:
        shape.append(1)
        b = f.view(b, (*f.shape(b), 1))
    if all(dim == 1 for dim in f.shape(b)[:-2]) and len(shape) > 2:  # all batches share b: more rows of a
        rows = product(shape[:-1])
        a, b = f.view(a, (rows, f.shape(a)[-1])), f.view(b, f.shape(b)[-2:])
        shape = [rows, shape[-1]]
    _product(f, a, b, f.view(target, shape))
    f.define(node.outputs[0], target)


def _rows_of_b(f: GraphFunction, node: ir.Node) -> tuple[int, int]:
    """B, and whether it must be swapped: a constant is transposed now, for rows that are read in order."""
    value, swapped = operand(node, 1), int(bool(int_attr(node, "transB", 0)))
    data = constant(value) if swapped else None
    if data is None or data.ndim != 2:
        return f.of(value), swapped
    return f.constant(np.ascontiguousarray(data.T), dtype_of(value)), 0


@lowers("Gemm")
def _gemm(f: GraphFunction, node: ir.Node) -> None:
    a, out = f.of(operand(node, 0)), node.outputs[0]
    b, swapped = _rows_of_b(f, node)
    swaps = (int(bool(int_attr(node, "transA", 0))), swapped)
    result = f.temporary(f.dtype(a), dims(out))
    _product(f, a, b, result, swaps)
    alpha, beta = float_attr(node, "alpha", 1.0), float_attr(node, "beta", 1.0)
    if alpha != 1.0:
        result = f.map("mul", result, f.scalar(alpha, f.dtype(a)))
    if has_input(node, 2) and beta != 0.0:
        c = f.of(operand(node, 2))
        scaled = f.map("mul", c, f.scalar(beta, f.dtype(a))) if beta != 1.0 else c
        result = f.map("add", result, scaled)
    f.define(out, result)


# ---- windows ----

_MOST_STEP = 1 << 28  # as in native/runtime/graph/linear.c


def _window(f: GraphFunction, node: ir.Node, taps: Sequence[Dim]) -> list[Axis]:
    """Two spatial axes: rows of one element are put before a single one."""
    axes = axes_of(node, taps)
    if dtype_of(operand(node, 0)) != "float32":
        raise Unsupported(f"{node.op_type} of {dtype_of(operand(node, 0))}")
    if len(axes) > 2:
        raise Unsupported(f"{len(axes)} spatial axes")
    for axis in axes:
        if any(isinstance(pad, int) and pad < 0 for pad in (axis.begin, axis.end)):
            raise Unsupported("negative pads")
    for axis in axes:
        reaches = (axis.begin, axis.end, axis.stride * axis.out, axis.taps * axis.dilation)
        if any(isinstance(reach, int) and reach > _MOST_STEP for reach in reaches):
            raise Unsupported(f"windows that reach farther than {_MOST_STEP} elements")
    return [Axis(1, 1, 1, 1, 1, 0, 0)] * (2 - len(axes)) + axes


def _planes(f: GraphFunction, index: int) -> int:
    shape = f.shape(index)
    return index if len(shape) == 4 else f.view(index, (*shape[:2], 1, shape[2]))


def _geometry(axes: Sequence[Axis]) -> list[Dim]:
    return [
        *(axis.stride for axis in axes),
        *(axis.dilation for axis in axes),
        *(axis.begin for axis in axes),
    ]


def _windows(f: GraphFunction, node: ir.Node, op: str, inputs: Sequence[int], numbers: Sequence[Dim]) -> None:
    target = f.temporary("float32", dims(node.outputs[0]))
    f.step(op, inputs, _planes(f, target), numbers)
    f.define(node.outputs[0], target)


@lowers("Conv")
def _conv(f: GraphFunction, node: ir.Node) -> None:
    axes = _window(f, node, dims(operand(node, 1))[2:])
    inputs = [_planes(f, f.of(operand(node, 0))), _planes(f, f.of(operand(node, 1)))]
    inputs += [f.of(operand(node, 2))] if has_input(node, 2) else []
    _windows(f, node, "conv", inputs, [*_geometry(axes), int_attr(node, "group", 1)])


@lowers("MaxPool", "AveragePool")
def _pool(f: GraphFunction, node: ir.Node) -> None:
    if output_used(node, 1):
        raise Unsupported("the indices of a MaxPool")
    axes = _window(f, node, ints_attr(node, "kernel_shape", []))
    numbers = [*_geometry(axes), *(axis.taps for axis in axes), int_attr(node, "count_include_pad", 0)]
    numbers += [axis.end for axis in axes]
    op = "maxpool" if node.op_type == "MaxPool" else "averagepool"
    _windows(f, node, op, [_planes(f, f.of(operand(node, 0)))], numbers)


# ---- reductions ----

_REDUCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceSumSquare": "sum", "ReduceL1": "sum", "ReduceL2": "sum", "ReduceLogSum": "sum",
}  # fmt: skip


def _reduced(
    f: GraphFunction, op: str, x: int, axes: Sequence[int], shape: Sequence[Dim] | None = None
) -> int:
    """``x`` without ``axes``; they are kept with size 1 unless ``shape`` says otherwise."""
    kept = [1 if axis in axes else dim for axis, dim in enumerate(f.shape(x))]
    return f.step(f"reduce_{op}", [x], f.temporary(f.dtype(x), kept if shape is None else shape), axes)


def _axes(node: ir.Node) -> list[int]:
    axes = reduced_axes(node)
    if axes is None:
        raise Unsupported("axes that are known only at run time")
    return axes


@lowers(*_REDUCTIONS)
def _reduce(f: GraphFunction, node: ir.Node) -> None:
    x, out = f.of(operand(node, 0)), node.outputs[0]
    if node.op_type in ("ReduceSumSquare", "ReduceL2"):
        x = f.map("mul", x, x)
    if node.op_type == "ReduceL1":
        x = f.map("abs", x)
    result = _reduced(f, _REDUCTIONS[node.op_type], x, _axes(node), dims(out))
    if node.op_type == "ReduceL2":
        result = f.map("sqrt", result)
    if node.op_type == "ReduceLogSum":
        result = f.map("log", result)
    f.define(out, result)


@lowers("ReduceLogSumExp")
def _reduce_log_sum_exp(f: GraphFunction, node: ir.Node) -> None:
    x, axes, shape = f.of(operand(node, 0)), _axes(node), dims(node.outputs[0])
    largest = _reduced(f, "max", x, axes)
    finite = f.map("lt", f.map("abs", largest), f.scalar(inf, f.dtype(x)))
    top = f.map("where", finite, largest, f.scalar(0, f.dtype(x)))
    total = _reduced(f, "sum", f.map("exp", f.map("sub", x, top)), axes, shape)
    f.define(node.outputs[0], f.map("add", f.map("log", total), f.view(top, shape)))


@lowers("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(f: GraphFunction, node: ir.Node) -> None:
    x = f.of(operand(node, 0))
    op = "mean" if node.op_type == "GlobalAveragePool" else "max"
    f.define(node.outputs[0], _reduced(f, op, x, range(2, len(f.shape(x)))))
