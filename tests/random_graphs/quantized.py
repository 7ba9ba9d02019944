"""Quantized operators, and patterns of QuantizeLinear and DequantizeLinear that become one operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import helper

from .building import Builder, Skip
from .registry import maker, window

BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


@maker(2)
def quantize(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype == np.float32)
    kind = np.dtype(b.one((np.uint8, np.int8)))
    scale, zero = b.const(np.float32(b.one((0.05, 0.1, 0.5)))), b.const(b.one((0, 3)), kind)
    y = b.emit("QuantizeLinear", [x, scale, zero])[0]
    return b.emit("DequantizeLinear", [y, scale, zero]) if b.chance(0.7) else y


@maker()
def integer_product(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype.name in ("int8", "uint8") and array.size > 0, 2)
    inner = b.values[x].shape[-1]
    return b.emit(
        "MatMulInteger", [x, b.new((inner, b.size()), np.dtype(b.one((np.int8, np.uint8))), constant=True)]
    )


def _bytes(b: Builder, low: int = 0, high: int = 4) -> str:
    return b.pick(lambda array: array.dtype in BYTES and array.size > 0, low, high)


def _scale(b: Builder, *shape: int) -> str:
    return b.const(np.round(b.rng.uniform(0.02, 0.3, shape), 3).astype(np.float32))


def _zero(b: Builder, dtype: np.dtype, *shape: int) -> str:
    return b.const(b.rng.integers(0, 5, shape).astype(dtype))


@maker()
def by_axis(b: Builder) -> object:
    """Scales of an axis, there and back; since opset 21 also of int16."""
    if b.opset < 13:
        raise Skip("opset")
    x = b.pick(lambda array: array.dtype == np.float32, 1)
    array = b.values[x]
    axis = int(b.rng.integers(-array.ndim, array.ndim))
    kinds = (*BYTES, np.dtype(np.int16), np.dtype(np.uint16)) if b.opset >= 21 else BYTES
    size, kind = array.shape[axis], b.one(kinds)
    scale, zero = _scale(b, size), _zero(b, kind, size)
    y = b.emit("QuantizeLinear", [x, scale, zero], axis=axis)[0]
    return b.emit("DequantizeLinear", [y, scale, zero], axis=axis) if b.chance(0.7) else y


@maker()
def dynamic(b: Builder) -> object:
    return b.emit("DynamicQuantizeLinear", [b.pick(lambda a: a.dtype == np.float32 and a.size > 0)], 3)


@maker()
def products(b: Builder) -> object:
    x = _bytes(b, 2)
    array = b.values[x]
    kind = b.one(BYTES) if array.dtype == np.uint8 else np.dtype(np.int8)
    columns = b.size()
    w = b.new((array.shape[-1], columns), kind, constant=True)
    shape = (columns,) if b.chance(0.3) else ()
    inputs = [x, _scale(b), _zero(b, array.dtype), w, _scale(b, *shape), _zero(b, kind, *shape)]
    return b.emit("QLinearMatMul", [*inputs, _scale(b), _zero(b, array.dtype)])


@maker()
def convolutions(b: Builder) -> object:
    kind = b.one(BYTES)
    sizes = [int(b.one((3, 5, 8))) for _ in range(2)]
    channels = int(b.one((1, 2, 4)))
    x = b.pick(lambda array: array.dtype in BYTES and array.ndim == 4 and array.size > 0, 4)
    array = b.values[x] if x else b.values[b.new((1, channels, *sizes), kind, constant=False)]
    taps = [int(b.one((1, 2, 3))) for _ in range(2)]
    more = window(b, array, taps)
    other = b.one(BYTES) if array.dtype == np.uint8 else np.dtype(np.int8)
    group = int(b.one([n for n in (1, array.shape[1]) if array.shape[1] % n == 0]))
    outs = group * int(b.one((1, 2)))
    w = b.new((outs, array.shape[1] // group, *taps), other, constant=True)
    if b.chance(0.4):
        zeros = [_zero(b, array.dtype), _zero(b, other)] if b.chance(0.5) else []
        return b.emit("ConvInteger", [x, w, *zeros], group=group, **more)
    return _linear_conv(b, x, w, group=group, **more)


def _linear_conv(b: Builder, x: str, w: str, **attributes: object) -> list[str]:
    """A QLinearConv, maybe with a scale for each output channel and a bias."""
    kind, (outs, *_), other = b.values[x].dtype, b.values[w].shape, b.values[w].dtype
    shape = (outs,) if b.chance(0.4) else ()
    origin = 0 if other == np.int8 else int(b.one((0, 3, 119)))
    zeros = b.const(np.full(shape, origin, other))
    inputs = [x, _scale(b), _zero(b, kind), w, _scale(b, *shape), zeros, _scale(b), _zero(b, kind)]
    if b.chance(0.5):
        inputs.append(b.const(b.rng.integers(-50, 50, outs).astype(np.int32)))
    return b.emit("QLinearConv", inputs, **attributes)


@maker()
def chains(b: Builder) -> object:
    """Convolutions of 16 channels and more after each other, and what may be between them."""
    kind, sizes = b.one(BYTES), [int(b.one((1, 5, 8))) for _ in range(2)]
    other = b.one(BYTES) if kind == np.uint8 else np.dtype(np.int8)
    x = b.new((int(b.one((1, 2))), int(b.one((16, 19))), *sizes), kind, constant=False)
    made: list[str] = []
    for _ in range(int(b.rng.integers(4, 8))):
        array, taps = b.values[x], [int(b.one((1, 1, 3))) for _ in range(2)]
        strides, outs = [int(b.one((1, 1, 2))) for _ in taps], int(b.one((16, 24, 37)))
        w = b.new((outs, array.shape[1], *taps), other, constant=True)
        x = _linear_conv(b, x, w, strides=strides, pads=[tap // 2 for tap in taps * 2])[0]
        made.append(x)
        equal = next((name for name in made[:-1] if b.values[name].shape == b.values[x].shape), "")
        match int(b.rng.integers(5)):
            case 0:
                x = b.emit("MaxPool", [x], kernel_shape=[3, 3], pads=[1] * 4, strides=strides)[0]
            case 1:
                x = b.emit("Concat", [x, x], axis=1)[0]
            case 2 if equal:
                parts = [part for name in (x, equal) for part in (name, _scale(b), _zero(b, kind))]
                out = [_scale(b), _zero(b, kind)]
                x = b.emit("QLinearAdd", [*parts, *out], domain="com.microsoft")[0]
        made.append(x)
    b.hide(dict.fromkeys(name for name in made if name != x))
    return [x]


@maker()
def of_microsoft(b: Builder) -> object:
    """Operators that onnxruntime's quantizer writes."""
    x = _bytes(b)
    kind = b.values[x].dtype
    mine, out = [_scale(b), _zero(b, kind)], [_scale(b), _zero(b, kind)]
    match b.one(("binary", "pool", "sigmoid", "gemm", "concat")):
        case "binary":
            op = b.one(("QLinearAdd", "QLinearMul"))
            y = b.like(x)
            return b.emit(op, [x, *mine, y, _scale(b), _zero(b, kind), *out], domain="com.microsoft")
        case "pool":
            if b.values[x].ndim < 3:
                raise Skip("no image")
            return b.emit(
                "QLinearGlobalAveragePool", [x, *mine, *out], domain="com.microsoft", channels_last=0
            )
        case "sigmoid":
            op = "QLinearLeakyRelu"
            return b.emit(op, [x, *mine, *out], domain="com.microsoft", alpha=0.1)
        case "gemm":
            if b.values[x].ndim != 2:
                raise Skip("no matrix")
            inner, outs = b.values[x].shape[1], b.size()
            w = b.new((inner, outs), kind, constant=True)
            inputs = [x, *mine, w, _scale(b), _zero(b, kind), "", *out]
            return b.emit("QGemm", inputs, domain="com.microsoft", alpha=1.0)
        case _:
            y = b.like(x, broadcasts=False)
            axis = int(b.rng.integers(0, max(b.values[x].ndim, 1)))
            inputs = [*out, x, *mine, y, _scale(b), _zero(b, kind)]
            return b.emit("QLinearConcat", inputs, domain="com.microsoft", axis=axis)


class _Pattern:
    """The nodes of a pattern: an operator between DequantizeLinear and QuantizeLinear."""

    def __init__(self, b: Builder) -> None:
        self.b, self.nodes, self.base = b, [], b.name("p")

    def add(self, op: str, inputs: Sequence[str], **more: object) -> str:
        name = f"{self.base}{chr(97 + len(self.nodes))}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"{op}_{name}", **more))
        return name

    def weight(self, shape: Sequence[int], by: int | None, x_scale: np.ndarray) -> tuple[str, str]:
        """A weight of int8, with a scale, or one for each index of the axis ``by``; and a bias that fits.

        Weights have seven bits: onnxruntime's kernels for AVX2 add two products with uint8 in 16 bits.
        """
        b, size = self.b, shape[by or 0]
        scales = np.round(b.rng.uniform(0.02, 0.3, () if by is None else (size,)), 3).astype(np.float32)
        data = b.const(b.rng.integers(-64, 65, shape).astype(np.int8))
        zeros = b.const(np.zeros(scales.shape, np.int8))
        more = {} if by is None else {"axis": by}
        w = self.add("DequantizeLinear", [data, b.const(scales), zeros], **more)
        return w, b.const((x_scale * scales).astype(np.float32))


@maker(3)
def pattern(b: Builder) -> object:
    """A quantized operator as exporters write it, computed by onnxruntime's fused kernels."""
    if b.opset < 13:
        raise Skip("opset")
    op = b.one(("Conv", "Conv", "MatMul", "Gemm", "Add", "Mul", "MaxPool", "GlobalAveragePool", "Transpose"))
    x = (
        _bytes(b, 4, 4)
        if op in ("Conv", "MaxPool", "GlobalAveragePool")
        else _bytes(b, 2, 2 if op == "Gemm" else 4)
    )
    array, made = b.values[x], _Pattern(b)
    x_scale = np.float32(round(float(b.rng.uniform(0.02, 0.3)), 3))
    a = made.add("DequantizeLinear", [x, b.const(x_scale), _zero(b, array.dtype)])
    more: dict[str, object] = {}
    inputs = [a]
    match op:
        case "Conv":
            taps = [int(b.one((1, 2, 3))) for _ in range(2)]
            more = {"kernel_shape": taps, **window(b, array, taps)}
            outs = int(b.one((1, 2, 4, 8)))
            shape = (outs, array.shape[1], *taps)
            w, scale = made.weight(shape, 0 if b.chance(0.5) else None, x_scale)
            inputs += [w]
            if b.chance(0.6):
                bias = b.const(b.rng.integers(-500, 500, outs).astype(np.int32))
                zero = b.const(np.zeros(b.values[scale].shape, np.int32))
                inputs.append(made.add("DequantizeLinear", [bias, scale, zero], axis=0))
        case "MatMul" | "Gemm":
            columns = b.size()
            w, _ = made.weight((array.shape[-1], columns), 1 if b.chance(0.4) else None, x_scale)
            inputs += [w]
        case "Add" | "Mul":
            y = b.like(x)
            inputs += [made.add("DequantizeLinear", [y, _scale(b), _zero(b, array.dtype)])]
        case "MaxPool":
            more = {"kernel_shape": [2, 2], **window(b, array, [2, 2])}
    y = made.add(op, inputs, **more)
    if op in ("Conv", "MatMul", "Gemm", "Add") and b.chance(0.4):
        y = made.add("Relu", [y])
    kept = op in ("MaxPool", "Transpose")  # these move elements: the scales are equal
    first = made.nodes[0].input
    out = [first[1], first[2]] if kept else [_scale(b), _zero(b, array.dtype)]
    return b.emit("QuantizeLinear", [y, *out], before=made.nodes, fused=True)
