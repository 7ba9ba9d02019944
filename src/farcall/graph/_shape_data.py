"""Propagates the elements of small integer tensors that exporters compute from shapes, for a Reshape.

PyTorch writes ``x.reshape(x.shape[0], -1)`` as Shape, Gather, Unsqueeze, Concat and Reshape. The rules here
give the elements of such tensors as dims, so that the Reshape has a shape before the model runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir
import sympy

from farcall.errors import ModelError
from farcall.graph._operand_rules import slice_range
from farcall.graph._view import (
    DATA_DTYPES,
    FLOAT_DTYPES,
    MAX_DATA,
    Data,
    NodeView,
    NotKnownError,
    elementwise,
)
from farcall.graph.dims import Dim, floordiv, fold, is_large, maximum, minimum, product

DataRule = Callable[[NodeView], Data]
DATA_RULES: dict[str, DataRule] = {}


def rule(*operators: str) -> Callable[[DataRule], DataRule]:
    """Register the data rule of these operators (of the default domain)."""

    def register(function: DataRule) -> DataRule:
        DATA_RULES.update(dict.fromkeys(operators, function))
        return function

    return register


def has_data(operator: str, dtype: ir.DataType) -> bool:
    """Whether the elements of an operator's result are followed, if it is small."""
    if operator not in DATA_RULES:
        return False
    return dtype in (FLOAT_DTYPES + DATA_DTYPES if operator in ("Cast", "CastLike") else DATA_DTYPES)


def followed(op: NodeView, dtype: ir.DataType, dims: tuple[int, ...]) -> Data | None:
    """The elements of a node's result, which has these dims, if they are known and fit its dtype."""
    if product(dims) > MAX_DATA:
        return None
    try:
        items = DATA_RULES[op.node.op_type](op).reshape(dims)
    except (NotKnownError, IndexError, OverflowError, ValueError):
        return None
    return items if _fits(items, dtype) and not any(map(is_large, items.flat)) else None


def _fits(items: Data, dtype: ir.DataType) -> bool:
    """Whether the elements that are numbers fit the dtype; otherwise ONNX's arithmetic would wrap around."""
    low, high = (0, 1) if dtype == ir.DataType.BOOL else (int(dtype.min), int(dtype.max))
    return all(low <= item <= high for item in items.ravel().tolist() if isinstance(item, int))


def array(items: Any) -> Data:
    """Dims as data of rank 1, or of the rank of a nested list."""
    return np.asarray(items, dtype=object)


@rule("Shape")
def _shape(op: NodeView) -> Data:
    dims = op.shape(0)
    return array(dims[slice(op.attr("start", 0), op.attr("end", len(dims)))])


@rule("Size")
def _size(op: NodeView) -> Data:
    return array(product(op.shape(0)))


@rule("Identity", "Flatten")
def _same(op: NodeView) -> Data:
    return op.data(0)


@rule("Cast", "CastLike")
def _cast(op: NodeView) -> Data:
    data = op.data(0)
    return elementwise(_truth, data) if op.node.outputs[0].dtype == ir.DataType.BOOL else data


def _truth(item: Dim) -> bool:
    if not isinstance(item, int):
        raise NotKnownError  # a symbol may be 0
    return item != 0


@rule("Gather")
def _gather(op: NodeView) -> Data:
    return array(np.take(op.data(0), op.data(1).astype(np.int64), axis=op.attr("axis", 0)))


@rule("Unsqueeze", "Squeeze", "Reshape")
def _reshaped(op: NodeView) -> Data:
    """The elements stay the same; the caller gives them the output's dims."""
    return op.data(0)


@rule("Concat")
def _concat(op: NodeView) -> Data:
    parts = [op.data(index) for index in range(len(op.node.inputs))]
    return np.concatenate(parts, axis=op.attr("axis", 0))


@rule("Slice")
def _slice(op: NodeView) -> Data:
    if op.opset < 10:
        raise NotKnownError
    data = op.data(0)
    starts, ends = op.ints(1), op.ints(2)
    axes = op.ints(3) if op.has(3) else list(range(len(starts)))
    steps = op.ints(4) if op.has(4) else [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        data = data.take(list(slice_range(data.shape[axis], start, end, step)), axis)
    return data


@rule("ConstantOfShape")
def _constant_of_shape(op: NodeView) -> Data:
    shape = op.ints(0)
    if product(shape) > MAX_DATA:
        raise NotKnownError
    tensor = op.attr("value", None)
    fill = 0 if tensor is None else int(tensor.numpy().ravel()[0])
    return np.full(shape, fill, dtype=object)


@rule("Expand")
def _expand(op: NodeView) -> Data:
    shape = op.ints(1)
    data = op.data(0)
    if product(shape) * data.size > MAX_DATA:
        raise NotKnownError
    return array(np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape))))


def _quotient(a: Dim, b: Dim) -> Dim:
    """Integer division, which truncates in ONNX."""
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise NotKnownError
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if not (isinstance(b, int) and b > 0):
        raise NotKnownError
    a = sympy.sympify(a)
    if a.is_nonnegative:
        return fold(sympy.floor(a / b))
    least, rest = a.as_coeff_Add()
    if rest.is_nonnegative and least > -b:  # what rounding down would make -1 is 0
        return maximum(floordiv(a, b), 0)
    return fold(floordiv(maximum(a, 0), b) - floordiv(maximum(fold(-a), 0), b))


def _remainder(a: Dim, b: Dim) -> Dim:
    """ONNX's Mod of integers, with the sign of the divisor as in Python."""
    if not isinstance(b, int) or b == 0:
        raise NotKnownError
    if isinstance(a, int):
        return a % b
    if not (a.is_nonnegative and b > 0):
        raise NotKnownError
    return fold(sympy.Mod(a, b))


_ARITHMETIC: dict[str, Callable[[Any, Any], Dim]] = {
    "Add": lambda a, b: fold(a + b),
    "Sub": lambda a, b: fold(a - b),
    "Mul": lambda a, b: fold(a * b),
    "Div": _quotient,
    "Mod": _remainder,
    "Min": minimum,
    "Max": maximum,
}


@rule(*_ARITHMETIC)
def _arithmetic(op: NodeView) -> Data:
    if op.attr("fmod", 0):
        raise NotKnownError
    result = op.data(0)
    for index in range(1, len(op.node.inputs)):
        result = elementwise(_ARITHMETIC[op.node.op_type], result, op.data(index))
    too_large = [item for item in result.flat if isinstance(item, int) and not -(2**63) <= item < 2**63]
    if too_large:  # ONNX would wrap it around, to a wrong size
        raise ModelError(f"{op.where}: its result does not fit into 64 bits: {too_large[0]}")
    return result


@rule("Neg")
def _neg(op: NodeView) -> Data:
    return elementwise(lambda a: fold(-a), op.data(0))


@rule("Abs")
def _abs(op: NodeView) -> Data:
    return elementwise(lambda a: maximum(a, fold(-a)), op.data(0))


@rule("Not")
def _not(op: NodeView) -> Data:
    return elementwise(lambda a: not a, op.data(0))


@rule("And", "Or")
def _logic(op: NodeView) -> Data:
    function = {"And": lambda a, b: a and b, "Or": lambda a, b: a or b}[op.node.op_type]
    return elementwise(function, op.data(0), op.data(1))


def _less(a: Dim, b: Dim) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    difference = sympy.sympify(b) - sympy.sympify(a)
    if difference.is_positive:
        return True
    if difference.is_nonpositive:
        return False
    raise NotKnownError


_ORDERS: dict[str, Callable[[Dim, Dim], bool]] = {
    "Less": _less,
    "Greater": lambda a, b: _less(b, a),
    "LessOrEqual": lambda a, b: not _less(b, a),
    "GreaterOrEqual": lambda a, b: not _less(a, b),
}


@rule(*_ORDERS)
def _order(op: NodeView) -> Data:
    return elementwise(_ORDERS[op.node.op_type], op.data(0), op.data(1))


@rule("Equal")
def _equal(op: NodeView) -> Data:
    return elementwise(_equals, op.data(0), op.data(1))


def _equals(a: Dim, b: Dim) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    difference = sympy.sympify(a) - sympy.sympify(b)
    if difference.is_zero is None:
        raise NotKnownError
    return bool(difference.is_zero)


@rule("Where")
def _where(op: NodeView) -> Data:
    return elementwise(lambda condition, a, b: a if condition else b, op.data(0), op.data(1), op.data(2))


_REDUCTIONS: dict[str, Callable[[Any, Any], Dim]] = {
    "ReduceProd": _ARITHMETIC["Mul"],
    "ReduceSum": _ARITHMETIC["Add"],
    "ReduceMax": maximum,
    "ReduceMin": minimum,
}


@rule(*_REDUCTIONS)
def _reduction(op: NodeView) -> Data:
    data = op.data(0)
    if data.ndim != 1 or data.size == 0:
        raise NotKnownError
    # One element; if the operator leaves a longer tensor as it is, the caller sees that the sizes differ.
    return array(reduce(_REDUCTIONS[op.node.op_type], data.tolist()))


@rule("Tile")
def _tile(op: NodeView) -> Data:
    times = op.ints(1)
    if product(times) * op.data(0).size > MAX_DATA:
        raise NotKnownError
    return array(np.tile(op.data(0), times))


@rule("Transpose")
def _transpose(op: NodeView) -> Data:
    return op.data(0).transpose(op.attr("perm", None))


@rule("Range")
def _range(op: NodeView) -> Data:
    start, limit, step = map(op.number, range(3))
    if not isinstance(step, int) or step == 0:
        raise NotKnownError
    count = fold(-floordiv(start - limit, step))  # rounded up
    if not isinstance(count, int) or count > MAX_DATA:
        raise NotKnownError
    return array([fold(start + index * step) for index in range(count)])
