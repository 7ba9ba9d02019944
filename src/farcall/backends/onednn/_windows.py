"""Convolutions, transposed convolutions and pools."""

from __future__ import annotations

import onnx_ir as ir

from farcall.backends.c._node import (
    Unsupported,
    constant_operand,
    has_input,
    int_attr,
    ints_attr,
    operand,
    str_attr,
)
from farcall.backends.c._window import Axis, axes_of
from farcall.backends.onednn._table import BIAS, SOURCE, TARGET, WEIGHTS, Operator, fixed, viewed, whole
from farcall.graph.dims import Dim, dims

_POOLS = {"MaxPool": 0x1FF, "GlobalAveragePool": 0x3FF, "ReduceMean": 0x3FF}
_INCLUDING, _EXCLUDING = 0x2FF, 0x3FF  # the two averages: with the padding, without it


def refusal(node: ir.Node) -> str | None:
    """Why a convolution or pool is not taken, or None."""
    if not 3 <= len(dims(operand(node, 0))) <= 5:
        return "only one to three spatial dims"
    match node.op_type:
        case "Conv" | "ConvTranspose":
            if not all(isinstance(size, int) and size for size in dims(operand(node, 1))):
                return "only weights of known sizes, with elements"
            if node.op_type == "ConvTranspose":
                return _transposed_refusal(node)
        case "MaxPool" | "AveragePool":
            if len(node.outputs) > 1 or int_attr(node, "ceil_mode", 0):
                return "only pools without indices and ceil_mode"
            if node.op_type == "MaxPool" and int_attr(node, "storage_order", 0):
                return "storage_order"
        case "ReduceMean":
            return _mean_refusal(node)
    return None


def _mean_refusal(node: ir.Node) -> str | None:
    """A mean over all spatial axes that keeps them is a pool."""
    axes = ints_attr(node, "axes", [])
    if has_input(node, 1):
        given = node.inputs[1]
        if given is None or given.const_value is None:
            return "only constant axes"
        axes = [int(axis) for axis in given.const_value.numpy().reshape(-1)]
    rank = len(dims(operand(node, 0)))
    if sorted(axis % rank for axis in axes) != list(range(2, rank)) or not int_attr(node, "keepdims", 1):
        return "only a mean over all spatial axes, with keepdims"
    return None


def windowed(node: ir.Node) -> Operator:
    """The primitive of a convolution or pool."""
    match node.op_type:
        case "Conv":
            return _convolution(node)
        case "ConvTranspose":
            return _transposed(node)
    return _pool(node)


def _convolution(node: ir.Node) -> Operator:
    weights = operand(node, 1)
    filters, *rest = dims(weights)
    axes = axes_of(node, rest[1:])
    group = int_attr(node, "group", 1)
    if group == 1 and weights.const_value is not None and all(axis.size == 1 and axis.plain for axis in axes):
        return _product(node)
    seen = [group, filters // group, *rest] if group > 1 else [filters, *rest]
    made = Operator(
        "CONVOLUTION",
        [whole(SOURCE, operand(node, 0), "PREFERRED"), viewed(WEIGHTS, weights, seen, layout="PREFERRED")],
        whole(TARGET, node.outputs[0], "PREFERRED"),
        window=_window(axes),
    )
    _add_bias(node, made)
    return made


def _product(node: ir.Node) -> Operator:
    """A convolution of one pixel, as behind a global pool, is a product of a row for each image."""
    filters, channels = (int(size) for size in dims(operand(node, 1))[:2])
    images = dims(operand(node, 0))[0]
    turned = constant_operand(node, 1).reshape(filters, channels).T
    made = Operator(
        "PRODUCT",
        [viewed(SOURCE, operand(node, 0), (images, channels)), fixed(WEIGHTS, turned, "PREFERRED")],
        viewed(TARGET, node.outputs[0], (images, filters)),
    )
    if has_input(node, 2):
        bias = operand(node, 2)
        made.operands.append(viewed(BIAS, bias, (1, filters)))
    return made


def _add_bias(node: ir.Node, made: Operator) -> None:
    if has_input(node, 2):
        bias = operand(node, 2)
        made.operands.append(viewed(BIAS, bias, dims(bias)))


def _window(axes: list[Axis]) -> list[Dim]:
    """Strides, taps, dilations (0: dense), and pads before and after, as oneDNN takes them."""
    return [
        *(axis.stride for axis in axes),
        *(axis.taps for axis in axes),
        *(axis.dilation - 1 for axis in axes),
        *(axis.begin for axis in axes),
        *(axis.end for axis in axes),
    ]


def _transposed_refusal(node: ir.Node) -> str | None:
    if str_attr(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return "only explicit pads"
    if ints_attr(node, "output_shape", []):
        return "output_shape"
    if any(isinstance(axis.end, int) and axis.end < 0 for axis in _transposed_axes(node)):
        return "output_padding beyond the padding"
    return None


def _transposed_axes(node: ir.Node) -> list[Axis]:
    """The axes: a window of the result for each element of the source."""
    sizes, outs = dims(operand(node, 0))[2:], dims(node.outputs[0])[2:]
    taps: list[int] = [int(size) for size in dims(operand(node, 1))[2:]]
    count = len(sizes)
    strides, dilations = ints_attr(node, "strides", [1] * count), ints_attr(node, "dilations", [1] * count)
    pads = ints_attr(node, "pads", [0] * 2 * count)
    if str_attr(node, "auto_pad", "NOTSET") == "VALID":
        pads = [0] * 2 * count
    more = ints_attr(node, "output_padding", [0] * count)
    if not len(strides) == len(dilations) == len(more) == count or len(pads) != 2 * count:
        raise Unsupported("strides, dilations, pads and output_padding must name every spatial axis")
    return [
        Axis(sizes[i], outs[i], taps[i], strides[i], dilations[i], pads[i], pads[i + count] - more[i])
        for i in range(count)
    ]


def _transposed(node: ir.Node) -> Operator:
    weights = operand(node, 1)
    channels, *rest = dims(weights)
    group = int_attr(node, "group", 1)
    seen = [group, channels // group, *rest] if group > 1 else [channels, *rest]
    first = 1 if group > 1 else 0  # oneDNN has the result's channels in front of the source's
    order = [*range(first), first + 1, first, *range(first + 2, len(seen))]
    layout = "PREFERRED" if weights.const_value is not None else "STRIDED"
    made = Operator(
        "DECONVOLUTION",
        [whole(SOURCE, operand(node, 0), "PREFERRED"), viewed(WEIGHTS, weights, seen, order, layout)],
        whole(TARGET, node.outputs[0], "PREFERRED"),
        window=_window(_transposed_axes(node)),
    )
    _add_bias(node, made)
    return made


def _pool(node: ir.Node) -> Operator:
    source = operand(node, 0)
    if node.op_type in ("GlobalAveragePool", "ReduceMean"):
        axes = [Axis(size, 1, size, 1, 1, 0, 0) for size in dims(source)[2:]]
    else:
        axes = axes_of(node, ints_attr(node, "kernel_shape", []))
    average = _INCLUDING if int_attr(node, "count_include_pad", 0) else _EXCLUDING
    target = whole(TARGET, node.outputs[0], "PREFERRED")
    algorithm = _POOLS.get(node.op_type, average)
    return Operator("POOLING", [whole(SOURCE, source, "KEPT")], target, algorithm, window=_window(axes))
