"""Operators that most models have: each maker adds a node of one kind, or a few, to a graph."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from .building import BOOL, FLOATS, INTEGERS, Builder, Skip
from .registry import axes_of, axis_of, image, maker, since, window

UNARY = """
Abs Acos Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor HardSigmoid LeakyRelu Log Neg Reciprocal
Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Identity Shrink
"""
SINCE = {**dict.fromkeys(UNARY.split(), 11), "HardSwish": 14, "Mish": 18, "Gelu": 20, "Swish": 24}


@maker(6)
def unary(b: Builder) -> object:
    op, more = since(b, SINCE), {}
    if b.chance(0.5):
        match op:
            case "Celu" | "Elu" | "LeakyRelu" | "ThresholdedRelu":
                more = {"alpha": float(b.rng.uniform(0.1, 2))}
            case "HardSigmoid":
                more = {"alpha": float(b.rng.uniform(0.1, 1)), "beta": float(b.rng.uniform(0, 1))}
            case "Selu":
                more = {"alpha": 1.5, "gamma": 1.25}
            case "Shrink":
                more = {"lambd": 0.3, "bias": 0.1}
            case "Gelu":
                more = {"approximate": "tanh"}
    return b.emit(op, [b.floats()], **more)


@maker(2)
def integer_unary(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype.kind in "iu")
    signed = b.values[x].dtype.kind == "i"
    table = {"Abs": 11, "Sign": 11, "Identity": 11, "BitwiseNot": 18}
    return b.emit(since(b, table | ({"Neg": 11} if signed else {})), [x])


@maker()
def marks(b: Builder) -> object:
    if b.chance(0.4):
        return b.emit("Not", [b.pick(lambda array: array.dtype == BOOL)])
    return b.emit(b.one(("IsNaN", "IsInf")), [b.floats()])


@maker(6)
def binary(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype.kind in "fiu")
    y = b.like(x)
    op = b.one(("Add", "Sub", "Mul", "Add", "Mul", "Max", "Min", "Div"))
    if op == "Div" and b.values[x].dtype.kind != "f":
        shape = b.values[y].shape
        y = b.const(b.rng.integers(1, 5, shape).astype(b.values[x].dtype))
    return b.emit(op, [x, y] if b.chance(0.8) or op == "Div" else [y, x])


@maker(2)
def power(b: Builder) -> object:
    x = b.floats()
    if b.chance(0.3):
        y = b.like(b.emit("Abs", [x])[0])
        return b.emit("Pow", [b.graph.steps[-1].node.output[0], y])
    return b.emit("Pow", [x, b.const(b.one((2, 3, 1, 0, -1, 0.5)), b.values[x].dtype)])


@maker(2)
def remainder(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype.kind in "fiu")
    array = b.values[x]
    y = b.const(
        (b.rng.integers(1, 6, array.shape[-1:]) * (1 if array.dtype.kind == "u" else b.one((1, -1)))).astype(
            array.dtype
        )
    )
    return b.emit("Mod", [x, y], fmod=1 if array.dtype.kind == "f" or b.chance(0.5) else None)


@maker(3)
def compare(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype.kind in "fiu")
    table = {"Equal": 11, "Less": 11, "Greater": 11, "LessOrEqual": 12, "GreaterOrEqual": 12}
    return b.emit(since(b, table), [x, b.like(x)])


@maker()
def logic(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype == BOOL)
    return b.emit(b.one(("And", "Or", "Xor")), [x, b.like(x)])


@maker()
def bits(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype.kind in "iu")
    if b.values[x].dtype.kind == "u" and b.chance(0.4):
        shape = b.values[x].shape
        by = b.const(b.rng.integers(0, 8, shape).astype(b.values[x].dtype))
        return b.emit("BitShift", [x, by], direction=b.one(("LEFT", "RIGHT")))
    return b.emit(since(b, dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), 18)), [x, b.like(x)])


@maker()
def several(b: Builder) -> object:
    x = b.floats()
    return b.emit(
        b.one(("Sum", "Mean", "Max", "Min")), [x] + [b.like(x) for _ in range(int(b.rng.integers(0, 3)))]
    )


@maker(2)
def where(b: Builder) -> object:
    x = b.pick()
    y = b.like(x)
    shape = np.broadcast_shapes(b.values[x].shape, b.values[y].shape)
    masks = [n for n, a in b.values.items() if a.dtype == BOOL and a.shape == shape]
    mask = b.one(masks) if masks else b.new(tuple(1 if b.chance(0.3) else s for s in shape), BOOL)
    return b.emit("Where", [mask, x, y])


@maker()
def clip(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype.kind == "f" or (b.opset >= 12 and array.dtype.kind in "iu"))
    low, high = (b.const(n, b.values[x].dtype) for n in (1, 3))
    return b.emit("Clip", [x, *b.one(([low], [low, high], ["", high], []))])


@maker()
def prelu(b: Builder) -> object:
    x = b.floats(1)
    shape = tuple(1 if b.chance(0.4) else size for size in b.values[x].shape)
    return b.emit("PRelu", [x, b.new(shape, constant=True)])


@maker(3)
def cast(b: Builder) -> object:
    x = b.pick()
    target = b.one((*FLOATS[:2], *INTEGERS, BOOL, b.dtype, b.dtype))
    if b.opset >= 15 and b.chance(0.2):
        return b.emit("CastLike", [x, b.new((2,), target)])
    return b.emit("Cast", [x], to=int(helper.np_dtype_to_tensor_dtype(target)))


@maker(3)
def matmul(b: Builder) -> object:
    x = b.floats(1)
    array = b.values[x]
    inner = array.shape[-1]
    if array.ndim == 1 or b.chance(0.1):
        return b.emit("MatMul", [x, b.new((inner, b.size()) if b.chance(0.7) else (inner,))])
    batch = tuple(1 if b.chance(0.3) else size for size in array.shape[:-2])
    batch = batch[int(b.rng.integers(0, len(batch) + 1)) :]
    return b.emit("MatMul", [x, b.new((*batch, inner, b.size()))])


@maker(2)
def gemm(b: Builder) -> object:
    x = b.floats(2, 2)
    flip, turn = int(b.chance(0.3)), int(b.chance(0.5))
    inner, out = b.values[x].shape[0 if flip else 1], b.size()
    rows = b.values[x].shape[1 if flip else 0]
    inputs = [x, b.new((out, inner) if turn else (inner, out))]
    if b.chance(0.7):
        inputs.append(b.new(b.one(((), (out,), (1, out), (rows, 1), (rows, out)))))
    more = {"alpha": float(b.one((1, 0.5))), "beta": float(b.one((1, 2, 0)))} if b.chance(0.5) else {}
    return b.emit("Gemm", inputs, transA=flip, transB=turn, **more)


@maker()
def einsum(b: Builder) -> object:
    if b.opset < 12:
        raise Skip("opset")
    x = b.floats(2, 3)
    shape = b.values[x].shape
    if 0 in shape:
        raise Skip("onnxruntime ends the process")
    if len(shape) == 2:
        equation, other = b.one(
            (("ij,jk->ik", (shape[1], b.size())), ("ij,kj->ki", (b.size(), shape[1])), ("ij,ij->j", shape))
        )
    else:
        equation, other = b.one(
            (
                ("bij,bjk->bik", (shape[0], shape[2], b.size())),
                ("bij,jk->bki", (shape[2], b.size())),
                ("bij,bij->bi", shape),
            )
        )
    return b.emit("Einsum", [x, b.new(other)], equation=equation)


@maker(4)
def conv(b: Builder) -> object:
    x = image(b)
    array = b.values[x]
    channels = array.shape[1]
    group = int(b.one([n for n in (1, 1, 2, 3, channels) if channels % n == 0]))
    outs = group * int(b.one((1, 1, 2, 3)))
    taps = [int(b.one((1, 1, 2, 3, 3, 5))) for _ in array.shape[2:]]
    more = window(b, array, taps)
    inputs = [x, b.weight((outs, channels // group, *taps))]
    if b.chance(0.6):
        inputs.append(b.new((outs,), constant=True))
    return b.emit("Conv", inputs, group=group, **more)


@maker()
def conv_transpose(b: Builder) -> object:
    x = image(b)
    array = b.values[x]
    taps = [int(b.one((1, 2, 3))) for _ in array.shape[2:]]
    inputs = [x, b.weight((array.shape[1], int(b.one((1, 2))), *taps))]
    return b.emit("ConvTranspose", inputs, strides=[int(b.one((1, 2))) for _ in taps])


@maker(2)
def pool(b: Builder) -> object:
    x = image(b)
    if b.chance(0.3):
        return b.emit(b.one(("GlobalAveragePool", "GlobalMaxPool")), [x])
    array = b.values[x]
    taps = [int(b.one((1, 2, 3))) for _ in array.shape[2:]]
    op = b.one(("MaxPool", "AveragePool"))
    more = window(b, array, taps, dilate=op == "MaxPool")
    if op == "AveragePool" and b.chance(0.5):
        more["count_include_pad"] = 1
    if b.chance(0.2) and "auto_pad" not in more:
        more["ceil_mode"] = 1
    return b.emit(op, [x], kernel_shape=taps, **more)


NORMALIZATIONS = {
    "InstanceNormalization": 11, "BatchNormalization": 11, "LayerNormalization": 17, "GroupNormalization": 21,
    "LpNormalization": 11, "LRN": 11, "MeanVarianceNormalization": 13,
}  # fmt: skip


@maker(2)
def normalize(b: Builder) -> object:
    op = since(b, NORMALIZATIONS)
    if op in ("LayerNormalization", "LpNormalization"):
        x = b.floats(1)
        array = b.values[x]
        axis = axis_of(b, array)
        if op == "LpNormalization":
            return b.emit(op, [x], axis=axis, p=int(b.one((1, 2))))
        shape = array.shape[axis:]
        return b.emit(op, [x, b.new(shape)] + ([b.new(shape)] if b.chance(0.6) else []), axis=axis)
    x = image(b)
    channels = (b.values[x].shape[1],)
    if op == "LRN":
        return b.emit(op, [x], size=int(b.one((1, 3, 5))))
    if op == "MeanVarianceNormalization":
        return b.emit(op, [x], axes=[0, *range(2, b.values[x].ndim)])
    inputs = [x, b.new(channels), b.new(channels)]
    if op == "BatchNormalization":
        inputs += [b.new(channels, constant=True), b.const(b.rng.uniform(0.5, 2, channels).astype(b.dtype))]
    group = b.one([n for n in (1, 2, 3, *channels) if channels[0] % n == 0])
    return b.emit(op, inputs, num_groups=int(group) if op == "GroupNormalization" else None)


@maker(2)
def softmax(b: Builder) -> object:
    x = b.floats(1)
    return b.emit(b.one(("Softmax", "LogSoftmax", "Softmax", "Hardmax")), [x], axis=axis_of(b, b.values[x]))


REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
              "ReduceLogSumExp", "ReduceSumSquare", "ReduceLogSum")  # fmt: skip


@maker(4)
def reduce(b: Builder) -> object:
    op = b.one(REDUCTIONS)
    x = b.pick(
        lambda array: (
            array.dtype == b.dtype or (array.dtype.name in ("int32", "int64") and op in REDUCTIONS[:4])
        )
    )
    axes = axes_of(b, b.values[x])
    keep = b.one((0, 1, None))
    if b.opset >= (13 if op == "ReduceSum" else 18):
        inputs = [x, b.ints(*axes)] if axes or b.chance(0.5) else [x]
        noop = 1 if b.chance(0.2) else None
        return b.emit(op, inputs, keepdims=keep, noop_with_empty_axes=noop)
    return b.emit(op, [x], axes=axes or None, keepdims=keep)


@maker()
def arg(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype.kind in "fiu" and array.size > 0, 1)
    last = 1 if b.opset >= 12 and b.chance(0.4) else None
    more = {"axis": axis_of(b, b.values[x]), "keepdims": b.one((0, 1, None)), "select_last_index": last}
    return b.emit(b.one(("ArgMax", "ArgMin")), [x], **more)


@maker()
def cumulate(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype == b.dtype or array.dtype.name in ("int32", "int64"), 1)
    axis = b.const(axis_of(b, b.values[x]), np.int64)
    return b.emit("CumSum", [x, axis], exclusive=int(b.chance(0.3)), reverse=int(b.chance(0.3)))


@maker()
def top(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype == b.dtype or array.dtype.name in ("int32", "int64"), 1)
    axis = axis_of(b, b.values[x])
    count = b.ints(int(b.rng.integers(0, b.values[x].shape[axis] + 1)))
    return b.emit("TopK", [x, count], 2, axis=axis, largest=int(b.chance(0.6)), sorted=1)


@maker(2)
def reshape(b: Builder) -> object:
    x = b.pick()
    array = b.values[x]
    left, shape = int(array.size), []
    while left > 1 and len(shape) < 3:
        shape.append(int(b.one([n for n in range(1, left + 1) if left % n == 0])))
        left //= shape[-1]
    shape.append(left)
    if array.size and b.chance(0.4):
        shape[int(b.rng.integers(len(shape)))] = -1
    if array.ndim and array.shape[0] == shape[0] and b.chance(0.5):
        shape[0] = 0
    return b.emit("Reshape", [x, b.ints(*shape)])


@maker()
def flatten(b: Builder) -> object:
    x = b.pick()
    return b.emit("Flatten", [x], axis=int(b.rng.integers(0, b.values[x].ndim + 1)))


@maker(2)
def squeeze(b: Builder) -> object:
    x = b.pick()
    array = b.values[x]
    if b.chance(0.5):
        op, rank = "Unsqueeze", array.ndim + int(b.one((1, 1, 2)))
        axes = [int(axis) for axis in b.rng.permutation(rank)[: rank - array.ndim]]
    else:
        op, rank = "Squeeze", array.ndim
        axes = [axis for axis in range(rank) if array.shape[axis] == 1 and b.chance(0.7)]
    axes = [axis - rank if b.chance(0.3) else axis for axis in axes]
    if not axes:
        return b.emit(op, [x]) if op == "Squeeze" else None
    return b.emit(op, [x, b.ints(*axes)]) if b.opset >= 13 else b.emit(op, [x], axes=axes)


@maker(3)
def transpose(b: Builder) -> object:
    x = b.pick()
    perm = [int(axis) for axis in b.rng.permutation(b.values[x].ndim)]
    return b.emit("Transpose", [x], perm=perm if b.chance(0.8) and perm else None)


@maker(2)
def concat(b: Builder) -> object:
    x = b.pick(low=1)
    array = b.values[x]
    axis = axis_of(b, array)
    shape = list(array.shape)
    shape[axis] = b.size()
    return b.emit(
        "Concat",
        [b.new(shape, array.dtype), x] if b.chance(0.4) else [x, b.new(shape, array.dtype), x],
        axis=axis,
    )


@maker(2)
def split(b: Builder) -> object:
    x = b.pick(low=1)
    axis = axis_of(b, b.values[x])
    size = b.values[x].shape[axis]
    first = int(b.rng.integers(0, size + 1))
    parts = [first, size - first]
    if b.opset >= 13:
        return b.emit("Split", [x, b.ints(*parts)], 2, axis=axis)
    return b.emit("Split", [x], 2, axis=axis, split=parts)


@maker(3)
def cut(b: Builder) -> object:
    x = b.pick(low=1)
    array = b.values[x]
    count = int(b.rng.integers(1, array.ndim + 1))
    axes = [int(axis) for axis in b.rng.permutation(array.ndim)[:count]]
    steps = [int(b.one((1, 1, 1, 2, -1, -2))) for _ in axes]
    ends = [
        (int(b.rng.integers(-n - 2, n + 3)), int(b.rng.integers(-n - 2, n + 3)))
        for n in (array.shape[a] for a in axes)
    ]
    if b.chance(0.5):
        ends = [(0, 1 << 40) if step > 0 else (-1, -(1 << 40)) for step in steps]
    inputs = [x, b.ints(*(e[0] for e in ends)), b.ints(*(e[1] for e in ends)), b.ints(*axes), b.ints(*steps)]
    return b.emit("Slice", inputs)


@maker(2)
def gather(b: Builder) -> object:
    x = b.pick(low=1)
    array = b.values[x]
    axis = axis_of(b, array)
    size = array.shape[axis]
    if not size:
        raise Skip("empty")
    if b.chance(0.5):
        return b.emit("Gather", [x, b.const(b.rng.integers(-size, size, b.shape(0, 2)))], axis=axis)
    shape = list(array.shape)
    shape[axis] = int(b.one((1, 2, 3)))
    return b.emit("GatherElements", [x, b.const(b.rng.integers(-size, size, shape))], axis=axis)


@maker()
def gather_nd(b: Builder) -> object:
    x = b.pick(lambda array: array.size > 0, 1)
    array = b.values[x]
    depth = int(b.rng.integers(1, array.ndim + 1))
    columns = [b.rng.integers(-size, size, (int(b.one((1, 3))), 2)) for size in array.shape[:depth]]
    shape = columns[0].shape
    return b.emit(
        "GatherND",
        [
            x,
            b.const(
                np.stack([c[: shape[0]] if len(c) >= shape[0] else np.resize(c, shape) for c in columns], -1)
            ),
        ],
    )


@maker()
def scatter(b: Builder) -> object:
    x = b.pick(lambda array: array.size > 0 and array.dtype != BOOL, 1)
    array = b.values[x]
    axis = axis_of(b, array)
    size = array.shape[axis]
    shape = list(array.shape)
    shape[axis] = int(b.rng.integers(1, size + 1))
    order = np.argsort(b.rng.random(array.shape), axis)  # each place once
    places = np.take(order, range(shape[axis]), axis)
    reduction = b.one((None, "add", "mul") if b.opset >= 16 else (None,))
    return b.emit(
        "ScatterElements",
        [x, b.const(places.astype(np.int64)), b.new(shape, array.dtype)],
        axis=axis,
        reduction=reduction,
    )


@maker(2)
def pad(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype.kind == "f" or b.opset >= 13, 1)
    array = b.values[x]
    mode = b.one(("constant", "constant", "edge", "reflect"))
    if mode != "constant" and (0 in array.shape or min(array.shape) < 2):
        raise Skip("nothing to repeat")
    pads = [int(b.rng.integers(-1 if mode == "constant" else 0, 2)) for _ in range(2 * array.ndim)]
    inputs = [x, b.ints(*pads)]
    if mode == "constant" and b.chance(0.5):
        inputs.append(b.const(2, array.dtype))
    return b.emit("Pad", inputs, mode=mode)


@maker()
def tile(b: Builder) -> object:
    x = b.pick(low=1, high=3)
    return b.emit("Tile", [x, b.ints(*(int(b.one((1, 1, 2, 3))) for _ in b.values[x].shape))])


@maker()
def expand(b: Builder) -> object:
    x = b.pick(high=3)
    shape = [size if size != 1 else int(b.one((1, 2, 3))) for size in b.values[x].shape]
    return b.emit("Expand", [x, b.ints(*([2] if b.chance(0.4) else []), *shape)])


@maker()
def blocks(b: Builder) -> object:
    x = image(b, 4)
    if b.chance(0.5):
        return b.emit("SpaceToDepth", [x], blocksize=2)
    return b.emit("DepthToSpace", [x], blocksize=2, mode=b.one(("DCR", "CRD")))


@maker()
def triangle(b: Builder) -> object:
    if b.opset < 14:
        raise Skip("opset")
    x = b.pick(low=2)
    return b.emit("Trilu", [x, b.const(int(b.rng.integers(-2, 3)), np.int64)], upper=int(b.chance(0.5)))


@maker()
def one_hot(b: Builder) -> object:
    x = b.pick(lambda array: array.dtype.name in ("int64", "int32"), high=3)
    return b.emit(
        "OneHot",
        [x, b.const(int(b.one((1, 3, 5))), np.int64), b.new((2,), constant=True)],
        axis=axis_of(b, b.values[x], 1),
    )


@maker(2)
def sizes(b: Builder) -> object:
    """What exporters write: a shape that is computed from another tensor's."""
    x = b.pick(low=1)
    shape = b.emit("Shape", [x])[0]
    if b.chance(0.3):
        return shape
    rank = b.values[x].ndim
    part = b.emit("Gather", [shape, b.ints(int(b.rng.integers(rank)))])[0]
    match int(b.rng.integers(3)):
        case 0:
            return b.emit(
                "ConstantOfShape", [part], value=helper.make_tensor("v", onnx.TensorProto.FLOAT, [1], [2.5])
            )
        case 1:
            return b.emit("Reshape", [x, b.emit("Concat", [part, b.ints(-1)], axis=0)[0]])
        case _:
            return b.emit("Expand", [b.new((1,)), part])


@maker()
def from_data(b: Builder) -> object:
    if b.chance(0.5):
        return b.emit("NonZero", [b.pick(lambda array: array.dtype == BOOL or array.dtype == b.dtype, 1)])
    x = b.pick(low=1)
    axis = axis_of(b, b.values[x])
    mask = b.new((b.values[x].shape[axis],), BOOL)
    return b.emit("Compress", [x, mask], axis=axis)


@maker()
def ranges(b: Builder) -> object:
    limit = b.const(int(b.one((0, 1, 4, 7))), np.int64)
    return b.emit("Range", [b.const(0, np.int64), limit, b.const(1, np.int64)])


@maker()
def resize(b: Builder) -> object:
    x = image(b)
    array = b.values[x]
    scales = b.const([1, 1, *(float(b.one((0.5, 1, 2, 1.5))) for _ in array.shape[2:])], np.float32)
    empty = b.const(np.zeros(0, np.float32))
    mode = b.one(("nearest", "linear"))
    if array.ndim == 3 and mode == "linear" and b.chance(0.5):
        mode = "nearest"
    more = {
        "mode": mode,
        "coordinate_transformation_mode": b.one(("half_pixel", "asymmetric", "align_corners")),
    }
    if mode == "nearest":
        more["nearest_mode"] = b.one(("floor", "round_prefer_floor", "ceil", "round_prefer_ceil"))
    return b.emit("Resize", [x, "" if b.opset >= 13 else empty, scales], **more)


@maker()
def recurrent(b: Builder) -> object:
    x = b.floats(3, 3)
    width = b.values[x].shape[2]
    if not b.values[x].size:
        raise Skip("onnxruntime ends the process")
    op, gates = b.one((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    direction = b.one(("forward", "reverse", "bidirectional"))
    ways, hidden = 1 + (direction == "bidirectional"), int(b.one((1, 3, 8)))
    inputs = [x, b.new((ways, gates * hidden, width)), b.new((ways, gates * hidden, hidden))]
    if b.chance(0.6):
        inputs.append(b.new((ways, 2 * gates * hidden)))
    more = {"linear_before_reset": int(b.chance(0.5))} if op == "GRU" else {}
    return b.emit(op, inputs, 2, hidden_size=hidden, direction=direction, **more)


@maker()
def drop(b: Builder) -> object:
    return b.emit("Dropout", [b.floats()])
