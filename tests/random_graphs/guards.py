"""What onnxruntime must not be asked, because it ends its process, or answers what ONNX does not say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper


class Skip(Exception):  # noqa: N818 - no error
    """The node that was tried does not fit the graph."""


class Refused(Skip):
    """onnxruntime refuses the operands, or takes them though ONNX does not allow them."""


# Operators for which onnxruntime ends or holds its process if an operand has no elements.
_FRAGILE = {
    *("LSTM", "GRU", "RNN", "Einsum", "Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "Resize"),
    *("RoiAlign", "MaxRoiPool", "GridSample", "Unique", "MultiHeadAttention", "FeatureVectorizer"),
}
_LOSSES = {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
SKIPS = {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}
_WINDOWS = {"Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool"}


def guard(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> None:
    """Raises: Skip, for what onnxruntime must not be asked."""
    if node.op_type in _FRAGILE and not all(array.size for array in inputs):
        raise Skip("onnxruntime does not come back")
    if node.op_type == "Scan" and not all(array.size for array in inputs):
        raise Skip("onnxruntime ends the process where it transposes what is scanned along another axis")
    if node.op_type == "GatherND" and not _fits_batch(node, inputs):
        raise Refused("onnxruntime reads batches that the data does not have")
    if node.op_type.endswith("Window") and inputs[0] < 4:
        raise Skip("of one element, packages differ; of two or three, all may be rounding errors of zero")
    if node.op_type.startswith("Reduce") and not inputs[0].size:
        given = [item.ints for item in node.attribute if item.name == "axes"]
        axes = inputs[1] if len(inputs) > 1 else np.array(given[0] if given else [0])
        if node.op_type != "ReduceSum" or axes.min(initial=0) < 0:
            raise Skip("of no elements, for which onnxruntime and the reference have other results or shapes")
    if (
        node.op_type == "Concat"
        and {array.ndim for array in inputs if array.size}
        and not all(array.size for array in inputs)
    ):
        raise Skip("onnxruntime leaves out what is empty, and need not fit")
    if node.op_type == "Concat" and not any(array.size for array in inputs) and not _is_joined(node, inputs):
        raise Refused("onnxruntime does not check what is empty")
    if node.op_type == "InstanceNormalization" and np.prod(inputs[0].shape[2:]) < 2:
        raise Skip("of one element, onnxruntime gives rounding errors of its mean")
    if node.op_type == "Gemm" and not inputs[0].size and inputs[0].ndim == 2:
        raise Skip("of products without terms, onnxruntime forgets beta")
    if node.op_type.startswith("Arg") and not inputs[0].size:
        raise Skip("of no elements, none is the largest")
    if (
        node.op_type == "Mod"
        and inputs[0].dtype.kind in "iu"
        and (abs(inputs[0].astype(float)) > 2**53).any()
    ):
        raise Skip("onnxruntime has the remainder of float64")
    if node.op_type == "Resize" and _has_fractions(node, inputs):
        raise Skip("of a length with a fraction, ONNX's tests take the fraction, and onnxruntime does not")
    if node.op_type == "DFT" and not inputs[0].size:
        raise Skip("a transform of no elements, which numpy refuses")
    if node.op_type in _LOSSES and inputs[1].shape != (*inputs[0].shape[:1], *inputs[0].shape[2:]):
        raise Refused("packages differ in what they check")
    if node.op_type in _LOSSES and len(inputs) > 2 and inputs[2].shape != inputs[0].shape[1:2]:
        raise Refused("of weights for other classes than there are, onnxruntime takes those of the labels")
    if node.op_type in ("LinearClassifier", "LinearRegressor") and not _fits_coefficients(node, inputs[0]):
        raise Refused("onnxruntime takes any number of coefficients")
    if node.op_type == "Imputer" and not _fits_imputer(node, inputs[0]):
        raise Refused("onnxruntime takes any number of values")
    if node.op_type in ("LSTM", "GRU", "RNN") and _hidden(node) not in (None, inputs[2].shape[-1]):
        raise Refused("the reference does not check the sizes of states")
    if node.op_type == "MeanVarianceNormalization" and _is_uniform(node, inputs[0]):
        raise Skip(
            "onnxruntime takes the square of the mean from the mean of the squares, of which little is left"
        )
    if node.domain == "ai.onnx.preview.training" and len({array.shape for array in inputs[2:]}) > 1:
        raise Refused("the reference stretches what must be of one shape")
    if node.op_type == "PRelu" and not _is_stretched_to(inputs[0].shape, inputs[1].shape):
        raise Refused("onnxruntime stretches the data to the slopes, too")
    if node.op_type == "MatMul" and not all(array.size for array in inputs) and not _fits_product(*inputs):
        raise Refused("onnxruntime does not check operands without elements")
    if node.op_type == "Compress" and _is_longer(node, inputs[1].size, inputs[0].shape):
        raise Refused("onnxruntime leaves out conditions beyond the last element, whether or not they hold")
    if node.op_type == "Attention" and not _fits_attention(node, *(array.shape for array in inputs[:3])):
        raise Refused("of other sizes, onnxruntime computes float64 alone")
    if node.op_type == "Attention" and _is_causal(node) and inputs[0].shape[-2] == 1 < inputs[1].shape[-2]:
        raise Skip("of one query, onnxruntime masks no key, and ONNX those after the first new one")
    if node.op_type == "RotaryEmbedding" and inputs[0].shape[-1] != 2 * inputs[2].shape[-1]:
        raise Refused("onnxruntime reads beyond tables of other sizes, and may end the process")
    if node.op_type == "Attention" and any(node.input[3:4]) and not _fits_mask(node, inputs):
        raise Skip("a mask of other sizes, which the reference broadcasts otherwise than ONNX's definition")
    if (
        node.op_type == "MultiHeadAttention"
        and any(item.name == "unidirectional" and item.i for item in node.attribute)
        and inputs[0].shape[1] != inputs[1].shape[1]
    ):
        raise Skip("of as many keys as queries alone, onnxruntime masks the last row")
    if node.op_type in SKIPS and not _fits_skip(*(array.shape for array in inputs[:2])):
        raise Refused("onnxruntime takes skips of any number of rows, and leaves some out")
    if node.op_type in _WINDOWS and _is_small(node, inputs):
        raise Skip("smaller than its window: onnxruntime rounds towards zero; or with negative pads")


def _is_causal(node: onnx.NodeProto) -> bool:
    return any(item.name == "is_causal" and item.i for item in node.attribute)


def _has_fractions(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> bool:
    """Whether positions depend on lengths that scales give, which are no integers."""
    modes = [item.s for item in node.attribute if item.name == "coordinate_transformation_mode"]
    scales = [array for array in inputs[1:] if array.dtype == np.float32 and array.shape == (inputs[0].ndim,)]
    lengths = scales[-1] * inputs[0].shape if scales else np.zeros(1)
    return bool(set(modes) & {b"align_corners", b"tf_crop_and_resize"}) and not np.all(lengths % 1 == 0)


def _fits_batch(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> bool:
    count = next((item.i for item in node.attribute if item.name == "batch_dims"), 0)
    return inputs[0].shape[:count] == inputs[1].shape[:count]


def _is_longer(node: onnx.NodeProto, length: int, shape: Sequence[int]) -> bool:
    axis = next((item.i for item in node.attribute if item.name == "axis"), None)
    return length > (int(np.prod(shape)) if axis is None else shape[axis])


def _fits_attention(node: onnx.NodeProto, q: Sequence[int], k: Sequence[int], v: Sequence[int]) -> bool:
    if len(q) == len(k) == len(v) == 3:
        heads = {item.name: item.i for item in node.attribute}
        as_wide = k[2] * heads.get("q_num_heads", 1) == q[2] * heads.get("kv_num_heads", 1)
        return q[0] == k[0] and tuple(k[:2]) == tuple(v[:2]) and as_wide
    if not len(q) == len(k) == len(v) == 4:
        return True
    return q[0] == k[0] and tuple(k[:3]) == tuple(v[:3]) and q[3] == k[3] and bool(k[1]) and not q[1] % k[1]


def _fits_mask(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> bool:
    past = inputs[4].shape[-2] if any(node.input[4:5]) else 0
    return inputs[3].shape[-2:] == (inputs[0].shape[-2], inputs[1].shape[-2] + past)


def _fits_skip(x: Sequence[int], skip: Sequence[int]) -> bool:
    return tuple(skip) in (tuple(x), tuple(x[1:]), (1, *x[1:]))


def _is_small(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> bool:
    """Whether an axis of an image, with its pads, is smaller than a window, or pads are negative."""
    given = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    weight = next((array for array in inputs[1:] if array.ndim == inputs[0].ndim), inputs[0])
    taps = given.get("kernel_shape", weight.shape[2:])
    pads, dilations = given.get("pads", [0] * 2 * len(taps)), given.get("dilations", [1] * len(taps))
    if given.get("auto_pad", b"").startswith(b"SAME"):
        strides = given.get("strides", [1] * len(taps))
        return (
            "Pool" in node.op_type
            and any(  # negative pads, which packages take or leave
                (-(-size // strides[i]) - 1) * strides[i] + (taps[i] - 1) * dilations[i] + 1 < size
                for i, size in enumerate(inputs[0].shape[2:])
            )
        )
    return any(
        size + pads[i] + pads[i + len(taps)] < (taps[i] - 1) * dilations[i] + 1
        for i, size in enumerate(inputs[0].shape[2:])
    )


def _fits_coefficients(node: onnx.NodeProto, data: np.ndarray) -> bool:
    """Whether there is a row of coefficients for each result, or for one of two classes."""
    given = {item.name: item for item in node.attribute}
    classes = [len(item.ints) + len(item.strings) for name, item in given.items() if "labels" in name]
    rows = max(classes, default=given["targets"].i if "targets" in given else 1)
    count = len(given["coefficients"].floats)
    return count == rows * data.shape[-1] or (rows == 2 and count == data.shape[-1])


def _fits_imputer(node: onnx.NodeProto, data: np.ndarray) -> bool:
    counts = [len(item.floats) + len(item.ints) for item in node.attribute if item.name.startswith("imputed")]
    return max(counts) in (1, data.shape[-1])


def _hidden(node: onnx.NodeProto) -> int | None:
    return next((item.i for item in node.attribute if item.name == "hidden_size"), None)


def _is_joined(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> bool:
    try:
        np.concatenate(inputs, next(item.i for item in node.attribute if item.name == "axis"))
    except ValueError:
        return False
    return True


def _is_uniform(node: onnx.NodeProto, data: np.ndarray) -> bool:
    """Whether the deviations of some slice are small beside its mean."""
    axes = next((tuple(item.ints) for item in node.attribute if item.name == "axes"), (0, 2, 3))
    mean, deviation = data.astype(float).mean(axes), data.astype(float).std(axes)
    return bool((np.abs(mean) > 8 * deviation).any())


def _is_stretched_to(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, other) == shape
    except ValueError:
        return False


def _fits_product(*inputs: np.ndarray) -> bool:
    try:
        if len(inputs) == 2:  # neither is made by a node that counts as one with this
            np.matmul(*(np.zeros(array.shape) for array in inputs))
    except ValueError:
        return False
    return True
