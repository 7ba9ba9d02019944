"""Transforms of signals, sequences of words, and attention."""

from __future__ import annotations

import numpy as np

from .building import Builder, Skip
from .registry import maker

WINDOWS = ("HannWindow", "HammingWindow", "BlackmanWindow")


@maker()
def window_of_signal(b: Builder) -> object:
    if b.opset < 17:
        raise Skip("opset")
    size = b.const(int(b.one((1, 4, 7, 16))), np.int64)
    if b.chance(0.5):
        x = b.pick(low=1)
        at = b.const(int(b.rng.integers(b.values[x].ndim)), np.int64)
        size = b.emit("Gather", [b.emit("Shape", [x])[0], at])[0]
    return b.emit(b.one(WINDOWS), [size], periodic=int(b.chance(0.5)))


@maker()
def fourier(b: Builder) -> object:
    if b.opset < 17:
        raise Skip("opset")
    x = b.pick(lambda a: a.dtype == b.dtype and b.dtype != np.float16 and a.size > 0, 2, 3)
    array = b.values[x]
    x = b.emit("Unsqueeze", [x, b.ints(array.ndim)])[0]
    axis = int(b.rng.integers(1, array.ndim))
    more = {"onesided": int(b.chance(0.4))}
    length = b.const(int(b.one((2, 3, 4, 8, 9))), np.int64) if b.chance(0.4) else ""
    if b.opset >= 20:
        return b.hide(b.emit("DFT", [x, length, b.const(axis, np.int64)], **more))
    return b.hide(b.emit("DFT", [x, length] if length else [x], axis=axis, **more))


@maker()
def short_fourier(b: Builder) -> object:
    if b.opset < 17 or b.dtype == np.float16:
        raise Skip("opset")
    frame = int(b.one((4, 7, 8)))
    x = b.new((int(b.one((1, 2))), int(b.one((16, 23))), 1))
    inputs = [x, b.const(int(b.one((2, 4))), np.int64), b.new((frame,)), b.const(frame, np.int64)]
    return b.hide(b.emit("STFT", inputs, onesided=int(b.chance(0.6))))


@maker()
def mel(b: Builder) -> object:
    if b.opset < 17:
        raise Skip("opset")
    numbers = [b.const(number, np.int64) for number in (int(b.one((3, 8))), int(b.one((16, 32))), 8192)]
    return b.emit("MelWeightMatrix", [*numbers, b.const(0, np.float32), b.const(4096, np.float32)])


@maker()
def rotary(b: Builder) -> object:
    if b.opset < 23:
        raise Skip("opset")
    batch, heads, length, size = (int(b.one(sizes)) for sizes in ((1, 2), (1, 3), (1, 5), (4, 8)))
    x = b.new((batch, heads, length, size))
    if b.chance(0.5):
        tables = [b.new((9, size // 2)) for _ in range(2)]
        at = b.add(b.graph.inputs, b.name("x"), b.rng.integers(0, 9, (batch, length)))
        return b.emit("RotaryEmbedding", [x, *tables, at], interleaved=int(b.chance(0.5)))
    tables = [b.new((batch, length, size // 2)) for _ in range(2)]
    return b.emit("RotaryEmbedding", [x, *tables], interleaved=int(b.chance(0.5)))


@maker(2)
def attention(b: Builder) -> object:
    if b.opset < 23:
        raise Skip("opset")
    batch, groups, length, keys, size = (
        int(b.one(sizes)) for sizes in ((1, 2), (1, 2), (1, 3, 5), (1, 4, 5), (2, 4, 8))
    )
    heads = groups * int(b.one((1, 1, 2)))
    q = b.new((batch, heads, length, size), constant=False)
    k, v = (b.new((batch, groups, keys, size), constant=False) for _ in range(2))
    inputs = [q, k, v]
    if b.chance(0.4):
        inputs.append(b.new(b.one(((length, keys), (batch, 1, length, keys), (1, heads, length, keys)))))
    more: dict[str, object] = {"is_causal": 1} if b.chance(0.3) else {}
    if b.chance(0.3):
        more["scale"] = 0.3
    if b.chance(0.2):
        more["softcap"] = 2.0
    return b.emit("Attention", inputs, **more)


@maker()
def by_hand(b: Builder) -> object:
    """Attention as older exporters write it: products, a softmax, and heads that are split by reshapes."""
    x = b.floats(3, 3)
    batch, length, width = b.values[x].shape
    if 0 in (batch, length) or width % 2 or not width:
        raise Skip("no heads")
    parts = []
    for _ in range(3):
        y = b.emit("MatMul", [x, b.new((width, width), constant=True)])[0]
        y = b.emit("Reshape", [y, b.ints(0, -1, 2, width // 2)])[0]
        parts.append(b.emit("Transpose", [y], perm=[0, 2, 1, 3])[0])
    turned = b.emit("Transpose", [parts[1]], perm=[0, 1, 3, 2])[0]
    scores = b.emit("MatMul", [parts[0], turned])[0]
    scores = b.emit("Div", [scores, b.const(float(np.sqrt(width // 2)), b.values[scores].dtype)])[0]
    if b.chance(0.5):
        mask = b.new(b.one(((length,), (length, length), (batch, 1, 1, length), (1, 2, length, 1))))
        scores = b.emit("Add", [scores, mask])[0]
    shares = b.emit("Softmax", [scores], axis=3)[0]
    if b.opset >= 9 and b.chance(0.3):
        zero = b.const(0.0, b.values[shares].dtype)
        shares = b.emit("Where", [b.emit("IsNaN", [shares])[0], zero, shares])[0]
    y = b.emit("Transpose", [b.emit("MatMul", [shares, parts[2]])[0]], perm=[0, 2, 1, 3])[0]
    return b.emit("Reshape", [y, b.ints(0, 0, -1)])


@maker()
def words(b: Builder) -> object:
    """TfIdfVectorizer of numbers."""
    x = b.pick(lambda a: a.dtype.name in ("int32", "int64") and a.size > 0, 1, 2)
    more = {
        "mode": b.one(("TF", "IDF", "TFIDF")),
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": int(b.one((0, 1))),
        "ngram_counts": [0, 3],
        "ngram_indexes": [0, 1, 2, 3, 4],
        "pool_int64s": [1, 2, 3, 1, 2, 0, 1],
        "weights": [1.0, 2.0, 0.5, 1.5, 1.0],
    }
    return b.emit("TfIdfVectorizer", [x], **more)


FUSED = ("FastGelu", "QuickGelu", "BiasGelu", "FusedMatMul", "SkipLayerNormalization")


@maker(2)
def of_microsoft(b: Builder) -> object:
    """Operators that onnxruntime's transformer optimizer writes."""
    x = b.pick(lambda a: a.dtype == np.float32 and a.size > 0, 2, 3)
    shape = b.values[x].shape
    match op := b.one(FUSED):
        case "FastGelu":
            inputs = [x, b.new(shape[-1:], np.dtype(np.float32))] if b.chance(0.5) else [x]
            return b.emit(op, inputs, domain="com.microsoft")
        case "QuickGelu":
            return b.emit(op, [x], domain="com.microsoft", alpha=1.702)
        case "BiasGelu":
            return b.emit(op, [x, b.new(shape[-1:], np.dtype(np.float32))], domain="com.microsoft")
        case "FusedMatMul":
            flip = int(b.chance(0.5))
            w = (b.size() or 1, shape[-1]) if flip else (shape[-1], b.size() or 1)
            y = b.new(w, np.dtype(np.float32))
            return b.emit(op, [x, y], domain="com.microsoft", transB=flip, alpha=0.5)
        case _:
            if len(shape) != 3:
                raise Skip("rank")
            skip = b.new(shape, np.dtype(np.float32))
            weights = [b.new(shape[-1:], np.dtype(np.float32)) for _ in range(3)]
            more = weights[: int(b.one((1, 2, 3)))]
            return b.emit(op, [x, skip, *more], domain="com.microsoft", epsilon=1e-3)
