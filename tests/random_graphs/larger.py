"""What models have that small graphs have not: longer sums, blocks of channels, volumes, caches, few bits."""

from __future__ import annotations

import numpy as np
from onnx import helper

from .building import Builder, Skip
from .quantized import BYTES
from .registry import maker, since

FLOAT = np.dtype(np.float32)


@maker(2)
def products(b: Builder) -> object:
    """Products whose sums are longer than a block of a kernel, and whose rows and columns end within one."""
    inner = int(b.one((31, 64, 130, 257, 600)))
    rows, columns = int(b.one((1, 5, 6, 13, 40))), int(b.one((1, 8, 33, 70, 96)))
    x = b.new((rows, inner), constant=False)
    if b.chance(0.3):
        more = {"alpha": 0.5, "beta": 2.0} if b.chance(0.5) else {}
        inputs = [x, b.new((columns, inner)), b.new((columns,))]
        return b.emit("Gemm", inputs, transB=1, **more)
    y = b.emit("MatMul", [x, b.new((inner, columns))])[0]
    if b.chance(0.5):
        y = b.emit("Add", [y, b.new((columns,), constant=True)])[0]
    return b.emit(since(b, {"Relu": 11, "Sigmoid": 11, "Tanh": 11, "Gelu": 20}), [y])


@maker()
def integer_products(b: Builder) -> object:
    kind, inner, columns = b.one(BYTES), int(b.one((33, 64, 260))), int(b.one((1, 17, 40)))
    x = b.new((int(b.one((1, 7, 20))), inner), kind, constant=False)
    w = b.new((inner, columns), np.dtype(np.int8), constant=True)
    return b.emit("MatMulInteger", [x, w])


@maker(2)
def blocks(b: Builder) -> object:
    """Convolutions of as many channels as vectors have elements, and more, and what follows them."""
    channels, outs = int(b.one((8, 16, 19, 32))), int(b.one((8, 16, 24, 37)))
    size = int(b.one((1, 4, 5, 7)))
    x = b.new((1, channels, size, int(b.one((3, 6, 8)))), constant=False)
    taps, group = b.one(([1, 1], [3, 3], [5, 5])), channels if b.chance(0.4) else 1
    if group > 1:
        outs = channels
    strides = [int(b.one((1, 1, 2)))] * 2
    inputs = [x, b.weight((outs, channels // group, *taps)), b.new((outs,), constant=True)]
    y = b.emit("Conv", inputs, group=group, pads=[tap // 2 for tap in taps * 2], strides=strides)[0]
    match int(b.rng.integers(4)):
        case 0:
            return b.emit("Relu", [y])
        case 1:
            return b.emit("Clip", [y, b.const(0, b.dtype), b.const(6, b.dtype)])
        case 2 if b.values[y].shape == b.values[x].shape:
            return b.emit("Relu", b.emit("Add", [x, y]))
    return y


@maker(2)
def volumes(b: Builder) -> object:
    """Images with three axes of places."""
    sizes = [int(b.one((2, 3, 4, 5))) for _ in range(3)]
    x = b.new((int(b.one((1, 2))), int(b.one((1, 2, 4))), *sizes), constant=False)
    taps = [int(b.one((1, 2, 2))) for _ in sizes]
    strides = [int(b.one((1, 1, 2))) for _ in sizes]
    channels = b.values[x].shape[1]
    match b.one(("Conv", "ConvTranspose", "MaxPool", "AveragePool", "BatchNormalization", "Resize")):
        case "Conv":
            return b.emit("Conv", [x, b.weight((2, channels, *taps))], strides=strides)
        case "ConvTranspose":
            return b.emit("ConvTranspose", [x, b.weight((channels, 2, *taps))], strides=strides)
        case "BatchNormalization":
            kinds = [b.new((channels,), constant=True) for _ in range(3)]
            variance = b.const(b.rng.uniform(0.5, 2, channels).astype(b.dtype))
            return b.emit("BatchNormalization", [x, *kinds, variance], epsilon=1e-3)
        case "Resize":
            if b.opset < 13:
                raise Skip("opset")
            scales = b.const([1, 1, 2, 2, 2], np.float32)
            return b.emit("Resize", [x, "", scales], mode="nearest", nearest_mode="floor",
                          coordinate_transformation_mode="asymmetric")  # fmt: skip
        case op:
            return b.emit(op, [x], kernel_shape=taps, strides=strides)


@maker(2)
def states(b: Builder) -> object:
    """Recurrent operators with lengths, first states and peepholes."""
    length, batch, width, hidden = (int(b.one(sizes)) for sizes in ((1, 4), (1, 3), (2, 5), (1, 4)))
    op, gates = b.one((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    direction = b.one(("forward", "reverse", "bidirectional"))
    ways = 1 + (direction == "bidirectional")
    x = b.new((length, batch, width), constant=False)
    inputs = [x, b.weight((ways, gates * hidden, width)), b.weight((ways, gates * hidden, hidden))]
    inputs.append(b.new((ways, 2 * gates * hidden), constant=True) if b.chance(0.6) else "")
    lengths = b.const(b.rng.integers(1, length + 1, batch), np.int32)
    inputs.append(lengths if b.chance(0.5) else "")
    inputs.append(b.new((ways, batch, hidden)))
    if op == "LSTM":
        inputs.append(b.new((ways, batch, hidden)))
        if b.chance(0.4):
            inputs.append(b.weight((ways, 3 * hidden)))
    more = {"linear_before_reset": int(b.chance(0.5))} if op == "GRU" else {}
    if b.chance(0.2):
        more["clip"] = 1.5
    return b.emit(op, inputs, 3 if op == "LSTM" else 2, hidden_size=hidden, direction=direction, **more)


@maker(2)
def caches(b: Builder) -> object:
    """Attention of decoders: heads inside of the last axis, keys and values of earlier calls."""
    if b.opset < 23:
        raise Skip("opset")
    batch, length, past, size = (int(b.one(sizes)) for sizes in ((1, 2), (1, 3), (1, 4), (2, 4)))
    groups = int(b.one((1, 2)))
    heads = groups * int(b.one((1, 2)))
    q = b.new((batch, length, heads * size), constant=False)
    k, v = (b.new((batch, length, groups * size), constant=False) for _ in range(2))
    inputs = [q, k, v]
    more: dict[str, object] = {"q_num_heads": heads, "kv_num_heads": groups, "is_causal": int(b.chance(0.5))}
    if b.chance(0.6):
        mask = b.new((length, past + length)) if b.chance(0.5) else ""
        caches = [b.new((batch, groups, past, size), constant=False) for _ in range(2)]
        return b.emit("Attention", [*inputs, mask, *caches], 3, **more)
    return b.emit("Attention", inputs, **more)


@maker(2)
def of_transformers(b: Builder) -> object:
    """More operators that onnxruntime's transformer optimizer writes."""
    batch, length, heads, size = (int(b.one(sizes)) for sizes in ((1, 2), (1, 3, 5), (1, 2), (4, 8)))
    shape = (batch, length, heads * size)
    x = b.new(shape, FLOAT, constant=False)
    match b.one(("rms", "skip", "heads", "bits", "rotary", "gelu")):
        case "rms":
            more = {"axis": -1, "epsilon": 1e-5}
            return b.emit("SimplifiedLayerNormalization", [x, b.new(shape[-1:], FLOAT)], **more)
        case "skip":
            inputs = [x, b.new(shape, FLOAT), b.new(shape[-1:], FLOAT)]
            return b.emit("SkipSimplifiedLayerNormalization", inputs, domain="com.microsoft", epsilon=1e-3)
        case "heads":
            k, v = (b.new(shape, FLOAT, constant=False) for _ in range(2))
            more = {"num_heads": heads, "unidirectional": int(b.chance(0.3))}
            return b.emit("MultiHeadAttention", [x, k, v], domain="com.microsoft", **more)
        case "bits":
            inner, columns = shape[-1], int(b.one((3, 8)))
            w = b.const(b.rng.integers(0, 256, (columns, 1, 8)).astype(np.uint8))
            scales = b.const(b.rng.uniform(0.02, 0.2, columns).astype(np.float32))
            more = {"K": inner, "N": columns, "bits": 4, "block_size": 16}
            return b.emit("MatMulNBits", [x, w, scales], domain="com.microsoft", **more)
        case "rotary":
            x = b.new((batch, heads, length, size), FLOAT, constant=False)
            at = b.const(b.rng.integers(0, 9, (batch, length)), np.int64)
            tables = [b.new((9, size // 2), FLOAT, constant=True) for _ in range(2)]
            more = {"interleaved": int(b.chance(0.5))}
            return b.emit("RotaryEmbedding", [x, at, *tables], domain="com.microsoft", **more)
        case _:
            return b.emit("Gelu", [x], domain="com.microsoft")


@maker()
def few_bits(b: Builder) -> object:
    """Weights of int4, with a scale for each block of an axis."""
    if b.opset < 21:
        raise Skip("opset")
    rows, columns = int(b.one((4, 8))), int(b.one((3, 6)))
    kind = b.one(("int4", "uint4"))
    scale = b.const(b.rng.uniform(0.05, 0.3, (rows // 4, columns)).astype(np.float32))
    x = b.new((rows, columns), FLOAT, constant=False)
    b.graph.fixed.add(x)
    code = int(getattr(helper.onnx.TensorProto, kind.upper()))
    before = [helper.make_node(
        "QuantizeLinear", [x, scale], [b.name("f")], name=f"QuantizeLinear_{b.name('f')}",
        axis=0, block_size=4, output_dtype=code,
    )]  # fmt: skip
    return b.emit("DequantizeLinear", [b.name("f"), scale], before=before, axis=0, block_size=4)
