"""The output dims of each operator, over symbolic dims.

Each rule follows the operator's text in the ONNX operator specification (https://onnx.ai/onnx/operators/).
A rule returns one tuple of dims for each output; if it returns fewer, the others are not known. It raises
:class:`NotKnownError` if an input that it needs is not known. ONNX's inference has checked the model before,
so rules trust ranks and attributes.
"""

from __future__ import annotations

from collections.abc import Callable

from farcall.graph._view import Dims, NodeView, NotKnownError
from farcall.graph.dims import Dim, ceildiv, floordiv, maximum, minimum, product, same

Rule = Callable[[NodeView], "list[Dims]"]
RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Register the rule of these operators of the default domain (each text may name several)."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(" ".join(operators).split(), function))
        return function

    return register


def _axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


# Operators whose result has the shape of their first input.
KEEP_SHAPE = (
    "Relu LeakyRelu Elu Selu Celu ThresholdedRelu HardSigmoid HardSwish Gelu Mish Softplus Softsign "
    "Sigmoid Tanh Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Exp Log Sqrt Erf Reciprocal "
    "Neg Abs Sign Floor Ceil Round Not BitwiseNot IsNaN IsInf Clip Cast CastLike Identity Shrink Swish "
    "Softmax LogSoftmax Hardmax LpNormalization LRN InstanceNormalization GroupNormalization "
    "RMSNormalization RotaryEmbedding CumSum CumProd Trilu MeanVarianceNormalization BitCast Scatter "
    "ScatterElements ScatterND TensorScatter ReverseSequence EyeLike"
)


@rule(KEEP_SHAPE)
def _like_first(op: NodeView) -> list[Dims]:
    return [op.shape(0)]


@rule("Dropout")
def _dropout(op: NodeView) -> list[Dims]:
    return [op.shape(0), op.shape(0)]


@rule(
    "Add Sub Mul Div Pow Mod And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual PRelu",
    "BitwiseAnd BitwiseOr BitwiseXor BitShift Min Max Mean Sum Where",
)
def _broadcast(op: NodeView) -> list[Dims]:
    return [op.broadcast(*op.shapes())]


def _window(op: NodeView, sizes: Dims, kernel: list[Dim]) -> Dims:
    """The spatial dims after a sliding window (ONNX: Conv, MaxPool, AveragePool)."""
    rank = len(sizes)
    strides = op.attr("strides", [1] * rank)
    dilations = op.attr("dilations", [1] * rank)
    pads = op.attr("pads", [0] * (2 * rank))
    auto_pad = op.attr("auto_pad", "NOTSET")
    result: list[Dim] = []
    for i, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        reach = (kernel[i] - 1) * dilations[i] + 1
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            result.append(ceildiv(size, stride))
            continue
        before, after = (0, 0) if auto_pad == "VALID" else (pads[i], pads[i + rank])
        room, ceil_mode = size + before + after - reach, bool(op.attr("ceil_mode", 0))
        count = ceildiv(room + stride, stride) if ceil_mode else floordiv(room + stride, stride)
        if ceil_mode and not (isinstance(reach, int) and after + stride <= reach):
            count = minimum(
                count, floordiv(size + before - 1, stride) + 1
            )  # no window starts in the end padding
        result.append(count)
    return tuple(result)


@rule("Conv")
def _conv(op: NodeView) -> list[Dims]:
    data, weight = op.shape(0), op.shape(1)
    op.equate(data[1], weight[1] * op.attr("group", 1))
    kernel: list[Dim] = [*op.attr("kernel_shape", weight[2:])]
    return [(data[0], weight[0], *_window(op, data[2:], kernel))]


def misread_by_onnx(op: NodeView) -> bool:
    """Whether ONNX's inference may get a node's dims wrong.

    Before opset 22 it lets a pooling window in ceil mode start in the end padding, which neither ONNX's
    reference evaluator nor onnxruntime does at any opset.
    """
    return op.opset < 22 and op.node.op_type in _POOLS and bool(op.attr("ceil_mode", 0))


_POOLS = ("MaxPool", "AveragePool", "LpPool")


@rule(*_POOLS)
def _pool(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    kernel: list[Dim] = [*op.attr("kernel_shape", [1] * (len(data) - 2))]
    result = (*data[:2], *_window(op, data[2:], kernel))
    return [result, result]


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    return [(*data[:2], *[1] * (len(data) - 2))]


@rule("BatchNormalization")
def _batch_normalization(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    channels = (op.equate(data[1], op.shape(1)[0]),) if len(data) > 1 else op.shape(1)
    return [data, *[channels] * (len(op.node.outputs) - 1)]


@rule("LayerNormalization")
def _layer_normalization(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    axis = _axis(op.attr("axis", -1), len(data))
    reduced = (*data[:axis], *[1] * (len(data) - axis))
    return [data, reduced, reduced]


@rule("NegativeLogLikelihoodLoss")
def _loss(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    return [(data[0], *data[2:]) if op.attr("reduction", "mean") == "none" else ()]


@rule("RNN", "GRU", "LSTM")
def _recurrent(op: NodeView) -> list[Dims]:
    steps, batch, _ = op.shape(0)
    directions, _, hidden = op.shape(2)
    if op.attr("layout", 0):
        steps, batch = batch, steps
        state: Dims = (batch, directions, hidden)
        return [(batch, steps, directions, hidden), state, state]
    state = (directions, batch, hidden)
    return [(steps, directions, batch, hidden), state, state]


@rule("MatMul")
def _matmul(op: NodeView) -> list[Dims]:
    a, b = op.shape(0), op.shape(1)
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    op.equate(left[-1], right[-2])
    batch = op.broadcast(left[:-2], right[:-2]) if len(left) > 2 or len(right) > 2 else ()
    rows = () if len(a) == 1 else (left[-2],)
    columns = () if len(b) == 1 else (right[-1],)
    return [(*batch, *rows, *columns)]


@rule("Gemm")
def _gemm(op: NodeView) -> list[Dims]:
    a, b = op.shape(0), op.shape(1)
    rows, inner = reversed(a) if op.attr("transA", 0) else a
    inner_b, columns = reversed(b) if op.attr("transB", 0) else b
    op.equate(inner, inner_b)
    result = (rows, columns)
    if op.has(2):
        for dim, target in zip(reversed(op.shape(2)), reversed(result), strict=False):
            if dim != 1:
                op.equate(dim, target)
    return [result]


@rule("Flatten")
def _flatten(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    axis = _axis(op.attr("axis", 1), len(data))
    return [(product(data[:axis]), product(data[axis:]))]


@rule("Reshape")
def _reshape(op: NodeView) -> list[Dims]:
    wanted = op.data(1).tolist()
    try:
        data = op.shape(0)
    except NotKnownError:
        if any(item in (0, -1) for item in wanted):
            raise
        return [tuple(wanted)]
    if not op.attr("allowzero", 0):
        wanted = [data[i] if item == 0 else item for i, item in enumerate(wanted)]
    return [_fill_in(op, data, wanted)]


def _fill_in(op: NodeView, data: Dims, wanted: list[Dim]) -> Dims:
    """Give the one -1 its size, or require that the sizes agree."""
    hole = next((i for i, item in enumerate(wanted) if isinstance(item, int) and item == -1), None)
    known = product(item for i, item in enumerate(wanted) if i != hole)
    total = product(data)
    if hole is None:
        op.equate(total, known)
        return tuple(wanted)
    return (*wanted[:hole], _quotient(op, total, known), *wanted[hole + 1 :])


def _quotient(op: NodeView, total: Dim, known: Dim) -> Dim:
    if known == 0:
        return 0
    size = floordiv(total, known)
    if not same(size * known, total):  # divisibility is not proven, and floor would hide a remainder
        op.equate(size * known, total)
    return size


@rule("Transpose")
def _transpose(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    return [tuple(data[i] for i in op.attr("perm", list(reversed(range(len(data))))))]


@rule("Concat")
def _concat(op: NodeView) -> list[Dims]:
    shapes = op.shapes()
    axis = _axis(op.attr("axis", 0), len(shapes[0]))
    result = list(shapes[0])
    for shape in shapes[1:]:
        for i, dim in enumerate(shape):
            result[i] = result[i] + dim if i == axis else op.equate(result[i], dim)
    return [tuple(result)]


def _axes(op: NodeView, index: int, since: int) -> list[int] | None:
    """The axes of an operator that took them as an attribute before opset ``since``; None if not given."""
    if op.opset < since:
        given: list[int] = op.attr("axes", [])
        return given or None
    return op.ints(index) if op.has(index) else None


@rule("Squeeze")
def _squeeze(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    axes = _axes(op, 1, since=13)
    if axes is None:
        if not all(isinstance(dim, int) for dim in data):
            raise NotKnownError  # the rank depends on whether a symbol is 1
        return [tuple(dim for dim in data if dim != 1)]
    drop = {_axis(axis, len(data)) for axis in axes}
    for axis in drop:
        op.equate(data[axis], 1)
    return [tuple(dim for i, dim in enumerate(data) if i not in drop)]


@rule("Unsqueeze")
def _unsqueeze(op: NodeView) -> list[Dims]:
    data = list(op.shape(0))
    axes = _axes(op, 1, since=13) or []
    rank = len(data) + len(axes)
    for axis in sorted(_axis(axis, rank) for axis in axes):
        data.insert(axis, 1)
    return [tuple(data)]


_REDUCE_AXES_INPUT = {"ReduceSum": 13}  # the others followed in opset 18


@rule(
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum",
    "ReduceLogSumExp ReduceSumSquare",
)
def _reduce(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    axes = _axes(op, 1, since=_REDUCE_AXES_INPUT.get(op.node.op_type, 18))
    if not axes and op.attr("noop_with_empty_axes", 0):
        return [data]
    drop = {_axis(axis, len(data)) for axis in axes or range(len(data))}
    keep = op.attr("keepdims", 1)
    return [tuple(1 if i in drop else dim for i, dim in enumerate(data) if keep or i not in drop)]


@rule("ArgMax", "ArgMin")
def _arg_reduce(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    axis = _axis(op.attr("axis", 0), len(data))
    return [(*data[:axis], *([1] if op.attr("keepdims", 1) else []), *data[axis + 1 :])]


@rule("Shape")
def _shape(op: NodeView) -> list[Dims]:
    rank = len(op.shape(0))
    return [(len(range(rank)[slice(op.attr("start", 0), op.attr("end", rank))]),)]


@rule("Size")
def _size(op: NodeView) -> list[Dims]:
    return [()]


@rule("Gather")
def _gather(op: NodeView) -> list[Dims]:
    data, indices = op.shape(0), op.shape(1)
    axis = _axis(op.attr("axis", 0), len(data))
    return [(*data[:axis], *indices, *data[axis + 1 :])]


@rule("ConstantOfShape")
def _constant_of_shape(op: NodeView) -> list[Dims]:
    return [tuple(op.data(0).tolist())]


@rule("Range")
def _range(op: NodeView) -> list[Dims]:
    start, limit, step = map(op.number, range(3))
    if not isinstance(step, int) or step == 0:
        raise NotKnownError
    length = limit - start if step > 0 else start - limit
    return [(maximum(ceildiv(length, abs(step)), 0),)]


@rule("Expand")
def _expand(op: NodeView) -> list[Dims]:
    return [op.broadcast(op.shape(0), tuple(op.data(1).tolist()))]


@rule("Tile")
def _tile(op: NodeView) -> list[Dims]:
    return [tuple(dim * times for dim, times in zip(op.shape(0), op.data(1).tolist(), strict=True))]


@rule("Slice")
def _slice(op: NodeView) -> list[Dims]:
    data = list(op.shape(0))
    if op.opset < 10:
        starts, ends = op.attr("starts", [0]), op.attr("ends", [0])
        axes, steps = op.attr("axes", list(range(len(starts)))), [1] * len(starts)
    else:
        starts, ends = op.data(1).tolist(), op.data(2).tolist()
        axes = op.ints(3) if op.has(3) else list(range(len(starts)))
        steps = op.ints(4) if op.has(4) else [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        at = _axis(axis, len(data))
        data[at] = slice_length(data[at], start, end, step)
    return [tuple(data)]


def slice_length(size: Dim, start: Dim, end: Dim, step: int) -> Dim:
    """The number of elements of ``[start:end:step]`` of ``size`` (numpy's rule, which ONNX uses).

    Raises:
        NotKnownError: It depends on the sign of a symbolic bound, or on a symbolic size with a negative step.
    """
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*slice(start, _open_end(end, step), step).indices(size)))
    if step < 0:
        raise NotKnownError
    last = _bound(size, end)
    if isinstance(start, int) and last == size:  # the frequent [k:], as a short expression
        count = maximum(size - start, 0) if start >= 0 else minimum(size, -start)
    else:
        count = maximum(last - _bound(size, start), 0)
    return ceildiv(count, step)


def _open_end(end: int, step: int) -> int | None:
    """The end of a slice; with a negative step, a far negative end includes the first element."""
    return None if step < 0 and end < -(2**30) else end


def _bound(size: Dim, at: Dim) -> Dim:
    if isinstance(at, int):
        if at >= 2**31 - 1:
            return size
        return maximum(size + at, 0) if at < 0 else minimum(size, at)
    if at == size or (size - at).is_nonnegative:
        return maximum(at, 0)
    if not at.is_nonnegative:
        raise NotKnownError
    return minimum(size, at)


@rule("Split")
def _split(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    axis = _axis(op.attr("axis", 0), len(data))
    count = len(op.node.outputs)
    if op.has(1):
        sizes: list[Dim] = op.data(1).tolist()
    elif op.opset < 13 and "split" in op.node.attributes:
        sizes = op.attr("split", [])
    else:
        chunk = ceildiv(data[axis], op.attr("num_outputs", count))
        sizes = [chunk] * (count - 1) + [data[axis] - chunk * (count - 1)]
    return [(*data[:axis], size, *data[axis + 1 :]) for size in sizes]


@rule("Pad")
def _pad(op: NodeView) -> list[Dims]:
    data = list(op.shape(0))
    pads = op.attr("pads", [0]) if op.opset < 11 else op.data(1).tolist()
    axes = op.ints(3) if op.has(3) else list(range(len(data)))
    for i, axis in enumerate(axes):
        at = _axis(axis, len(data))
        data[at] = data[at] + pads[i] + pads[i + len(axes)]
    return [tuple(data)]
