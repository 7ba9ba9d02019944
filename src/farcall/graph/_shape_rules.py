"""The output dims of each operator, over symbolic dims.

Each rule follows the operator's text in the ONNX operator specification (https://onnx.ai/onnx/operators/).
A rule returns one tuple of dims for each output; if it returns fewer, the others are not known. It raises
:class:`NotKnownError` if an input that it needs is not known. A dim that is None is known only when the node
has run. ONNX's inference has checked the model before, so rules trust ranks and attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from farcall.graph._view import Dims, NodeView, PartialDims
from farcall.graph.dims import Dim, ceildiv, floordiv, maximum, minimum, product, same

Rule = Callable[[NodeView], "Sequence[PartialDims]"]
RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Register the rule of these operators of the default domain (each text may name several)."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(" ".join(operators).split(), function))
        return function

    return register


def positive_axis(axis: int, rank: int) -> int:
    """The axis that ``axis`` names, which counts from the end if it is negative.

    Raises:
        ValueError: There is none.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is outside of rank {rank}")
    return axis % rank


# Operators whose result has the shape of their first input.
KEEP_SHAPE = (
    "Relu LeakyRelu Elu Selu Celu ThresholdedRelu HardSigmoid HardSwish Gelu Mish Softplus Softsign "
    "Sigmoid Tanh Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Exp Log Sqrt Erf Reciprocal "
    "Neg Abs Sign Floor Ceil Round Not BitwiseNot IsNaN IsInf Clip Cast CastLike Identity Shrink Swish "
    "Softmax LogSoftmax Hardmax LpNormalization LRN InstanceNormalization GroupNormalization "
    "RMSNormalization RotaryEmbedding CumSum CumProd Trilu MeanVarianceNormalization BitCast Scatter "
    "ScatterElements ScatterND TensorScatter ReverseSequence EyeLike QuantizeLinear DequantizeLinear "
    "RandomNormalLike RandomUniformLike Bernoulli"
)


@rule(KEEP_SHAPE)
def _like_first(op: NodeView) -> list[Dims]:
    return [op.shape(0)]


@rule("QuantizeLinear", "DequantizeLinear")
def _quantize(op: NodeView) -> list[Dims]:
    """They keep the shape, of which one dim is the length of scales by axis."""
    data, scale = op.shape(0), op.shape(1)
    if len(scale) == 1 and scale[0] != 1 and not op.attr("block_size", 0):
        op.equate(data[positive_axis(op.attr("axis", 1), len(data))], scale[0])
    return [data]


@rule("DynamicQuantizeLinear")
def _dynamic_quantize(op: NodeView) -> list[Dims]:
    return [op.shape(0), (), ()]


@rule("Dropout")
def _dropout(op: NodeView) -> list[Dims]:
    return [op.shape(0), op.shape(0)]


# Operators whose operands are broadcast to each other.
BROADCAST = (
    "Add Sub Mul Div Pow Mod And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual PRelu "
    "BitwiseAnd BitwiseOr BitwiseXor BitShift Min Max Mean Sum Where"
)


@rule(BROADCAST)
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


@rule("Conv", "ConvInteger", "QLinearConv")
def _conv(op: NodeView) -> list[Dims]:
    data, weight = op.shape(0), op.shape(right_operand(op.node))
    op.equate(data[1], weight[1] * op.attr("group", 1))
    kernel: list[Dim] = [*op.attr("kernel_shape", weight[2:])]
    _equate_bias(op, 8 if op.node.op_type == "QLinearConv" else 2, weight[0])
    return [(data[0], weight[0], *_window(op, data[2:], kernel))]


def _equate_bias(op: NodeView, index: int, channels: Dim) -> None:
    """A bias has an element for each channel. The operand is a zero point for ConvInteger."""
    if op.has(index) and op.node.op_type != "ConvInteger" and len(op.shape(index)) == 1:
        op.equate(op.shape(index)[0], channels)


@rule("ConvTranspose")
def _conv_transpose(op: NodeView) -> list[Dims]:
    data, weight = op.shape(0), op.shape(1)
    op.equate(data[1], weight[0])
    sizes, taps = data[2:], weight[2:]
    rank = len(sizes)
    head = (data[0], weight[1] * op.attr("group", 1))
    _equate_bias(op, 2, head[1])
    if "output_shape" in op.node.attributes:
        return [(*head, *op.attr("output_shape", [0])[-rank:])]
    strides, dilations = op.attr("strides", [1] * rank), op.attr("dilations", [1] * rank)
    auto_pad, pads = op.attr("auto_pad", "NOTSET"), op.attr("pads", [0] * (2 * rank))
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return [(*head, *(size * stride for size, stride in zip(sizes, strides, strict=True)))]
    if auto_pad == "VALID":
        pads = [0] * (2 * rank)
    more = op.attr("output_padding", [0] * rank)
    made: list[Dim] = []
    for i, size in enumerate(sizes):
        reach = (taps[i] - 1) * dilations[i] + 1
        made.append((size - 1) * strides[i] + more[i] + reach - pads[i] - pads[i + rank])
    return [(*head, *made)]


# Operators for which ONNX's inference may give a dim a wrong name: for a DFT of a length that is not known,
# it keeps the name of the axis's dim.
MISNAMED_BY_ONNX = frozenset({"DFT"})


def _is_constant(op: NodeView, index: int) -> bool:
    """Whether an operand is constant, or not given."""
    value = op.node.inputs[index] if index < len(op.node.inputs) else None
    return value is None or value.const_value is not None


_POOLS = ("MaxPool", "AveragePool", "LpPool")
OFTEN_MISREAD = frozenset((*_POOLS, "STFT", "TreeEnsembleRegressor", "PRelu"))  # see misread_by_onnx


def misread_by_onnx(op: NodeView) -> bool:
    """Whether ONNX's inference may get a node's dims wrong.

    Before opset 22 it lets a pooling window in ceil mode start in the end padding, which neither ONNX's
    reference evaluator nor onnxruntime does at any opset. If the lengths of an STFT are constants, it takes
    ``onesided`` for 0 if that is not given, and its default is 1. For TreeEnsembleRegressor it infers
    nothing, and skl2onnx declares one target, whatever their number is. Of PRelu it takes the shape of the
    data, to which ONNX wants the slopes stretched; all packages stretch the data to the slopes, too.
    """
    if op.node.op_type in ("TreeEnsembleRegressor", "PRelu"):
        return True
    if op.node.op_type == "STFT":
        return "onesided" not in op.node.attributes and _is_constant(op, 1) and _is_constant(op, 3)
    return op.opset < 22 and op.node.op_type in _POOLS and bool(op.attr("ceil_mode", 0))


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
    for index in range(2, 5):
        op.equate(op.shape(index)[0], channels[0])
    return [data, *[channels] * (len(op.node.outputs) - 1)]


@rule("InstanceNormalization", "GroupNormalization")
def _normalization_of_channels(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    by_group = op.node.op_type == "GroupNormalization" and op.opset < 21
    for index in (1, 2):
        op.equate(op.shape(index)[0], op.attr("num_groups", 1) if by_group else data[1])
    return [data]


def _equate_factors(op: NodeView) -> Dims:
    """Scale and bias have the last dims of the data, or 1, which is stretched. Returns the data's dims."""
    data = op.shape(0)
    for index in (1, 2):
        factor = op.shape(index) if op.has(index) else ()
        for dim, wanted in zip(reversed(factor), reversed(data), strict=False):
            if dim != 1:
                op.equate(dim, wanted)
    return data


@rule("RotaryEmbedding")
def _rotary(op: NodeView) -> list[Dims]:
    """The caches, or the positions, have a row for each place of the data, or 1 for all."""
    data, cosine, sine = op.shape(0), op.shape(1), op.shape(2)
    places = op.shape(3) if op.has(3) else cosine[:2]
    for dim, wanted in (
        *zip(sine, cosine, strict=False),
        *zip(places[::-1], (data[-2], data[0]), strict=False),
    ):
        if dim != 1:
            op.equate(dim, wanted)
    return [data]


@rule("RMSNormalization")
def _rms_normalization(op: NodeView) -> list[Dims]:
    return [_equate_factors(op)]


@rule("LayerNormalization")
def _layer_normalization(op: NodeView) -> list[Dims]:
    data = _equate_factors(op)
    axis = positive_axis(op.attr("axis", -1), len(data))
    reduced = (*data[:axis], *[1] * (len(data) - axis))
    return [data, reduced, reduced]


TRAINING = "ai.onnx.preview.training"
_STATES = {"Adagrad": 1, "Momentum": 1, "Adam": 2}


@rule(*_STATES)
def _optimizer(op: NodeView) -> list[Dims]:
    """Operands are a rate, a step, and groups: tensors, their gradients, and states of each."""
    states = _STATES[op.node.op_type]
    count = (len(op.node.inputs) - 2) // (2 + states)
    trained = [op.shape(2 + i) for i in range(count)]
    for index in range(2 + count, 2 + count * (2 + states)):
        wanted = trained[(index - 2) % count]
        if len(op.shape(index)) == len(wanted):
            for a, b in zip(op.shape(index), wanted, strict=True):
                op.equate(a, b)
    return trained * (1 + states)


@rule("NegativeLogLikelihoodLoss")
def _loss(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    for dim, wanted in zip(op.shape(1), (data[0], *data[2:]), strict=True):
        op.equate(dim, wanted)
    if op.has(2):
        op.equate(op.shape(2)[0], data[1])
    return [(data[0], *data[2:]) if op.attr("reduction", "mean") == "none" else ()]


_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
# Operators whose rules say which operands fit, which ONNX's inference does not ask: loops would read beyond a
# scale, a bias or a state that is too small.
_NORMS = ("InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization")
FITTING = frozenset((*_GATES, *_NORMS, "Gemm", "NegativeLogLikelihoodLoss"))


@rule(*_GATES)
def _recurrent(op: NodeView) -> list[Dims]:
    steps, batch, width = op.shape(0)
    directions, _, hidden = op.shape(2)
    op.equate(hidden, op.attr("hidden_size", hidden))
    by_batch = bool(op.attr("layout", 0))
    if by_batch:
        steps, batch = batch, steps
    rows = hidden * _GATES[op.node.op_type]
    state: Dims = (batch, directions, hidden) if by_batch else (directions, batch, hidden)
    of_operands: dict[int, Dims] = {
        1: (directions, rows, width),
        2: (directions, rows, hidden),
        3: (directions, 2 * rows),
        4: (batch,),
        5: state,
        6: state,
        7: (directions, 3 * hidden),
    }
    for index, expected in of_operands.items():
        if op.has(index):
            for dim, wanted in zip(op.shape(index), expected, strict=True):
                op.equate(dim, wanted)
    if by_batch:
        return [(batch, steps, directions, hidden), state, state]
    return [(steps, directions, batch, hidden), state, state]


@rule("Attention")
def _attention(op: NodeView) -> list[Dims]:
    """ONNX infers the outputs; its definition would stretch keys whose heads are smaller than those of Q."""
    q, k, v = op.shape(0), op.shape(1), op.shape(2)
    for dim in (k[0], v[0]):
        op.equate(dim, q[0])
    op.equate(v[-2], k[-2])
    if len(q) == len(k) == 4:
        op.equate(v[1], k[1])
        op.equate(k[-1], q[-1])
        whole_quotient(op, q[1], k[1], "its {} heads of queries must be a multiple of its {} heads of keys")
    elif len(q) == len(k) == 3:
        op.equate(k[-1] * op.attr("q_num_heads", 1), q[-1] * op.attr("kv_num_heads", 1))
    if op.has(3):  # the definition pads a mask to the number of keys, and would cut a longer one
        keys = k[-2] + (op.shape(4)[-2] if op.has(4) else 0)
        op.equate(maximum(op.shape(3)[-1], keys), keys)
    return []


def right_operand(node: ir.Node) -> int:
    """The index of the right operand: scales and zero points are between it and the left one."""
    return 3 if node.op_type.startswith("QLinear") else 1


@rule("MatMul", "MatMulInteger", "QLinearMatMul")
def _matmul(op: NodeView) -> list[Dims]:
    a, b = op.shape(0), op.shape(right_operand(op.node))
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
    axis = op.attr("axis", 1)  # up to the rank; a negative one counts from the end
    return [(product(data[:axis]), product(data[axis:]))]


@rule("Transpose")
def _transpose(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    return [tuple(data[i] for i in op.attr("perm", list(reversed(range(len(data))))))]


@rule("Concat")
def _concat(op: NodeView) -> list[Dims]:
    shapes = op.shapes()
    axis = positive_axis(op.attr("axis", 0), len(shapes[0]))
    result = list(shapes[0])
    for shape in shapes[1:]:
        for i, dim in enumerate(shape):
            result[i] = result[i] + dim if i == axis else op.equate(result[i], dim)
    return [tuple(result)]


@rule("ArgMax", "ArgMin")
def _arg_reduce(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    axis = positive_axis(op.attr("axis", 0), len(data))
    return [(*data[:axis], *([1] if op.attr("keepdims", 1) else []), *data[axis + 1 :])]


@rule("Shape")
def _shape(op: NodeView) -> list[Dims]:
    rank = len(op.shape(0))
    return [(len(range(rank)[slice(op.attr("start", 0), op.attr("end", rank))]),)]


@rule("Size")
def _size(op: NodeView) -> list[Dims]:
    return [()]


def whole_quotient(op: NodeView, size: Dim, by: Dim, text: str = "{} must be a multiple of {}") -> Dim:
    """``size // by``, where nothing may be left."""
    if by == 0:
        return 0
    parts = floordiv(size, by)
    if not same(parts * by, size):  # divisibility is not proven, and floor would hide a remainder
        op.equate(parts * by, size, text, size, by)
    return parts


@rule("DepthToSpace")
def _depth_to_space(op: NodeView) -> list[Dims]:
    batch, channels, high, wide = op.shape(0)
    block = op.attr("blocksize", 1)
    return [(batch, whole_quotient(op, channels, block * block), high * block, wide * block)]


@rule("SpaceToDepth")
def _space_to_depth(op: NodeView) -> list[Dims]:
    batch, channels, *sizes = op.shape(0)
    block = op.attr("blocksize", 1)
    return [(batch, channels * block * block, *(whole_quotient(op, size, block) for size in sizes))]


@rule("Gather")
def _gather(op: NodeView) -> list[Dims]:
    data, indices = op.shape(0), op.shape(1)
    axis = positive_axis(op.attr("axis", 0), len(data))
    return [(*data[:axis], *indices, *data[axis + 1 :])]


@rule("GridSample")
def _grid_sample(op: NodeView) -> list[Dims]:
    data, grid = op.shape(0), op.shape(1)
    return [(op.equate(data[0], grid[0]), data[1], *grid[1:-1])]


@rule("DeformConv")
def _deform_conv(op: NodeView) -> list[Dims]:
    data, weight, offset = op.shape(0), op.shape(1), op.shape(2)
    op.equate(data[1], weight[1] * op.attr("group", 1))
    kernel: list[Dim] = [*op.attr("kernel_shape", weight[2:])]
    sizes = zip(_window(op, data[2:], kernel), offset[2:], strict=True)
    return [(op.equate(data[0], offset[0]), weight[0], *(op.equate(a, b) for a, b in sizes))]


@rule("RoiAlign")
def _roi_align(op: NodeView) -> list[Dims]:
    count = op.equate(op.shape(1)[0], op.shape(2)[0])
    return [(count, op.shape(0)[1], op.attr("output_height", 1), op.attr("output_width", 1))]


@rule("MaxRoiPool")
def _max_roi_pool(op: NodeView) -> list[Dims]:
    return [(op.shape(1)[0], op.shape(0)[1], *op.attr("pooled_shape", [1, 1]))]
