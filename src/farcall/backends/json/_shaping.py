"""Operators that change shapes or copy elements: all are moves between views, but for Gather."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from farcall.backends.c._indexing import slices_of
from farcall.backends.c._node import (
    Unsupported,
    constant,
    has_input,
    int_attr,
    normalize_axis,
    operand,
    opset,
    output_used,
    str_attr,
)
from farcall.backends.c._pad import pads_of
from farcall.backends.c._shaping import permutation
from farcall.backends.json._graph import GraphFunction, dtype_of
from farcall.backends.json._registry import lowers
from farcall.graph._operand_rules import slice_first
from farcall.graph.dims import Dim, dims, fold, maximum, minimum, product, same


def _strides(shape: Sequence[Dim]) -> list[Dim]:
    return [product(shape[axis + 1 :]) for axis in range(len(shape))]


def _copied(
    f: GraphFunction, node: ir.Node, source: int, strides: Sequence[Dim], start: Dim = 0, output: int = 0
) -> None:
    """The output is a view of ``source``, made row-major."""
    out = node.outputs[output]
    shape = dims(out)
    target = f.temporary(f.dtype(source), shape)
    f.define(out, f.move(source, target, shape, (start, strides), (0, _strides(shape))))


@lowers("Identity", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Dropout")
def _view(f: GraphFunction, node: ir.Node) -> None:
    if node.op_type == "Dropout" and output_used(node, 1):
        raise Unsupported("the mask of a Dropout")
    by_input = node.op_type in ("Reshape", "Squeeze", "Unsqueeze") and has_input(node, 1)
    if by_input and constant(operand(node, 1)) is None:
        raise Unsupported(f"input 1 (`{operand(node, 1).name}`) must be constant")
    f.define(node.outputs[0], f.view(f.of(operand(node, 0)), dims(node.outputs[0])))


@lowers("Transpose")
def _transpose(f: GraphFunction, node: ir.Node) -> None:
    x = f.of(operand(node, 0))
    strides = _strides(f.shape(x))
    _copied(f, node, x, [strides[axis] for axis in permutation(node)])


@lowers("Slice")
def _slice(f: GraphFunction, node: ir.Node) -> None:
    x = f.of(operand(node, 0))
    shape = f.shape(x)
    strides = _strides(shape)
    start: Dim = 0
    for axis, (first, step) in slices_of(node).items():
        start = start + slice_first(shape[axis], first, step) * strides[axis]
        strides[axis] = product((strides[axis], step))
    _copied(f, node, x, strides, start)


@lowers("Expand")
def _expand(f: GraphFunction, node: ir.Node) -> None:
    if constant(operand(node, 1)) is None:
        raise Unsupported(f"input 1 (`{operand(node, 1).name}`) must be constant")
    x, made = f.of(operand(node, 0)), dims(node.outputs[0])
    own = f.shape(x)
    more = len(made) - len(own)
    strides = [0] * more + _strides(own)
    for axis, dim in enumerate(own, start=more):
        if not same(dim, made[axis]):
            f.require_equal(fold((dim - 1) * (dim - made[axis])), 0)  # 1 fits, too, and is repeated
            strides[axis] = product((strides[axis], minimum(dim - 1, 1)))
    _copied(f, node, x, strides)


@lowers("Concat")
def _concat(f: GraphFunction, node: ir.Node) -> None:
    out = node.outputs[0]
    shape = dims(out)
    axis = normalize_axis(int_attr(node, "axis", 1), len(shape))
    target = f.temporary(dtype_of(out), shape)
    strides = _strides(shape)
    start: Dim = 0
    for value in node.inputs:
        if value is None:
            continue
        part = f.of(value)
        f.move(part, target, f.shape(part), (0, _strides(f.shape(part))), (start * strides[axis], strides))
        start = start + f.shape(part)[axis]
    f.define(out, target)


@lowers("Split")
def _split(f: GraphFunction, node: ir.Node) -> None:
    if opset(node) >= 13 and has_input(node, 1) and constant(operand(node, 1)) is None:
        raise Unsupported(f"input 1 (`{operand(node, 1).name}`) must be constant")
    x = f.of(operand(node, 0))
    axis = normalize_axis(int_attr(node, "axis", 0), len(f.shape(x)))
    strides = _strides(f.shape(x))
    start: Dim = 0
    for index, out in enumerate(node.outputs):
        if output_used(node, index):
            _copied(f, node, x, strides, start * strides[axis], index)
        start = start + dims(out)[axis]


@lowers("Pad")
def _pad(f: GraphFunction, node: ir.Node) -> None:
    """Fill the output, then copy what of the input it shows: a negative pad cuts elements off."""
    if (mode := str_attr(node, "mode", "constant")) != "constant":
        raise Unsupported(f"mode={mode}")
    x, out, pads = f.of(operand(node, 0)), node.outputs[0], pads_of(node)
    shape, own = dims(out), f.shape(x)
    if has_input(node, 2) and opset(node) >= 11:
        fill = f.view(f.of(operand(node, 2)), ())
    else:
        fill = f.scalar(node.attributes["value"].as_float() if "value" in node.attributes else 0, f.dtype(x))
    target, source, strides = f.temporary(f.dtype(x), shape), _strides(own), _strides(shape)
    f.move(fill, target, shape, (0, [0] * len(shape)), (0, strides))
    begin: Dim = 0
    start: Dim = 0
    shown: list[Dim] = []
    for axis, dim in enumerate(own):
        before, after = pads[axis], pads[len(own) + axis]
        begin = begin + max(-before, 0) * source[axis]
        start = start + max(before, 0) * strides[axis]
        shown.append(maximum(fold(dim + min(before, 0) + min(after, 0)), 0))
    f.define(out, f.move(x, target, shown, (begin, source), (start, strides)))


@lowers("Gather")
def _gather(f: GraphFunction, node: ir.Node) -> None:
    x, indices, out = f.of(operand(node, 0)), f.of(operand(node, 1)), node.outputs[0]
    axis = normalize_axis(int_attr(node, "axis", 0), len(f.shape(x)))
    f.define(out, f.step("gather", [x, indices], f.temporary(f.dtype(x), dims(out)), [axis]))


@lowers("ConstantOfShape")
def _constant_of_shape(f: GraphFunction, node: ir.Node) -> None:
    if constant(operand(node, 0)) is None:
        raise Unsupported(f"input 0 (`{operand(node, 0).name}`) must be constant")
    out = node.outputs[0]
    given = node.attributes["value"].as_tensor().numpy() if "value" in node.attributes else np.zeros(1)
    number = f.scalar(given.reshape(-1)[0].item(), dtype_of(out))
    _copied(f, node, number, [0] * len(dims(out)))


@lowers("Shape", "Size")
def _shape(f: GraphFunction, node: ir.Node) -> None:
    shape = dims(operand(node, 0))
    chosen: Sequence[Dim] = (product(shape),)
    if node.op_type == "Shape":
        chosen = shape[int_attr(node, "start", 0) : int_attr(node, "end", len(shape))]
    out = node.outputs[0]
    f.define(out, f.step("sizes", [], f.temporary("int64", dims(out)), chosen))
