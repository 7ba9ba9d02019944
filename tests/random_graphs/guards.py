"""What onnxruntime must not be asked, because it ends its process, or answers what ONNX does not say.

Each rule names the operators that it is for and what is wrong with the answer, and tells whether it is for a
node with its operands. Rules are narrow: what one leaves out by mistake, nobody compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

Operands: TypeAlias = Sequence[np.ndarray]
Holds: TypeAlias = Callable[[onnx.NodeProto, Operands], bool]


class Skip(Exception):  # noqa: N818 - no error
    """The node that was tried does not fit the graph."""


class Refused(Skip):
    """onnxruntime refuses the operands, or takes them though ONNX does not allow them."""


@dataclass(frozen=True)
class Rule:
    """``holds`` tells whether the answer for a node is not to be compared; ``reason`` says why."""

    kind: type[Skip]
    reason: str
    holds: Holds


RULES: dict[str, list[Rule]] = {}
"""By operator."""

SKIPS = {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}
_RECURRENT = ("LSTM", "GRU", "RNN")
_LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
_WINDOWS = ("Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool")
_LINEAR = ("LinearClassifier", "LinearRegressor")
_REDUCTIONS = [f"Reduce{name}" for name in ("Max", "Min", "Mean", "Prod", "Sum", "L1", "L2", "SumSquare")]
_REDUCTIONS += ["ReduceLogSum", "ReduceLogSumExp"]


def guard(node: onnx.NodeProto, inputs: Operands) -> None:
    """Raises: Skip, for what onnxruntime must not be asked."""
    for rule in RULES.get(node.op_type, ()):
        if rule.holds(node, inputs):
            raise rule.kind(rule.reason)


def _rule(kind: type[Skip], reason: str, operators: Sequence[str]) -> Callable[[Holds], Holds]:
    def register(holds: Holds) -> Holds:
        for operator in operators:
            RULES.setdefault(operator, []).append(Rule(kind, reason, holds))
        return holds

    return register


def _not_compared(reason: str, *operators: str) -> Callable[[Holds], Holds]:
    """The function tells for which operands the results of these operators are not compared."""
    return _rule(Skip, reason, operators)


def _not_allowed(reason: str, *operators: str) -> Callable[[Holds], Holds]:
    """The function tells which operands ONNX does not allow, whatever onnxruntime makes of them."""
    return _rule(Refused, reason, operators)


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = next((item for item in node.attribute if item.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


def _all_have_elements(inputs: Operands) -> bool:
    return all(array.size for array in inputs)


# ---------------------------------------------------------------- operands without elements ----


@_not_compared(
    "onnxruntime ends or holds its process if an operand has no elements",
    *(*_RECURRENT, "Einsum", "Conv", "Unique", "FeatureVectorizer", "RoiAlign", "Scan"),
)
def _ends_the_process(node: onnx.NodeProto, inputs: Operands) -> bool:
    return not _all_have_elements(inputs)


@_not_compared("onnxruntime ends its process if there are no elements along three axes", "ConvTranspose")
def _spreads_nothing_along_three_axes(node: onnx.NodeProto, inputs: Operands) -> bool:
    return inputs[0].ndim > 4 and not inputs[0].size


@_not_compared(
    "of no elements, onnxruntime stretches no batches, and does not fill products by vectors", "MatMul"
)
def _multiplies_nothing(node: onnx.NodeProto, inputs: Operands) -> bool:
    batches = {array.shape[:-2] for array in inputs}
    return not _all_have_elements(inputs) and (len(batches) > 1 or inputs[-1].ndim == 1)


@_not_compared("onnxruntime ends its process where heads have no width", "MultiHeadAttention")
def _has_heads_of_no_width(node: onnx.NodeProto, inputs: Operands) -> bool:
    return not all(array.shape[-1] for array in inputs[:3])


@_not_compared("of no elements, onnxruntime leaves the negative axes as they are", *_REDUCTIONS)
def _reduces_negative_axes(node: onnx.NodeProto, inputs: Operands) -> bool:
    return not inputs[0].size and any(axis < 0 for axis in _axes(node, inputs))


@_not_compared("of no elements, onnxruntime leaves a negative axis as it is", "ArgMax", "ArgMin")
def _picks_along_negative_axis(node: onnx.NodeProto, inputs: Operands) -> bool:
    return not inputs[0].size and _attribute(node, "axis", 0) < 0


@_not_compared("of no elements, onnxruntime has the mean 0, and ONNX says that it is undefined", "ReduceMean")
def _is_mean_of_nothing(node: onnx.NodeProto, inputs: Operands) -> bool:
    axes = _axes(node, inputs) or range(inputs[0].ndim)
    return any(inputs[0].shape[axis] == 0 for axis in axes)


def _axes(node: onnx.NodeProto, inputs: Operands) -> list[int]:
    axes: list[int] = inputs[1].tolist() if len(inputs) > 1 else [*_attribute(node, "axes", [])]
    return axes


@_not_compared("onnxruntime leaves out what is empty, and need not fit", "Concat")
def _joins_some_empty(node: onnx.NodeProto, inputs: Operands) -> bool:
    return any(array.ndim and array.size for array in inputs) and not _all_have_elements(inputs)


@_not_allowed("onnxruntime does not check what is empty", "Concat")
def _joins_empty_of_other_shapes(node: onnx.NodeProto, inputs: Operands) -> bool:
    if any(array.size for array in inputs):
        return False
    try:
        np.concatenate(inputs, _attribute(node, "axis", 0))
    except ValueError:
        return True
    return False


@_not_compared("of products without terms, onnxruntime forgets beta", "Gemm")
def _scales_nothing(node: onnx.NodeProto, inputs: Operands) -> bool:
    return not inputs[0].size and _attribute(node, "beta", 1.0) != 1.0


@_not_allowed("onnxruntime does not check operands without elements", "MatMul")
def _multiplies_empty_of_other_shapes(node: onnx.NodeProto, inputs: Operands) -> bool:
    if (
        _all_have_elements(inputs) or len(inputs) != 2
    ):  # others are made by a node that counts as one with this
        return False
    try:
        np.matmul(*(np.zeros(array.shape) for array in inputs))
    except ValueError:
        return True
    return False


@_not_compared("a transform of no elements, which numpy refuses", "DFT")
def _transforms_nothing(node: onnx.NodeProto, inputs: Operands) -> bool:
    return not inputs[0].size


# ------------------------------------------------------- numbers that are rounding errors ----


@_not_compared(
    "of one element, ONNX's formula has 0 / 0; of two, all may be rounding errors of zero",
    "HannWindow",
    "HammingWindow",
    "BlackmanWindow",
)
def _is_short_window(node: onnx.NodeProto, inputs: Operands) -> bool:
    return bool(inputs[0] < 3)


@_not_compared("of one element, onnxruntime gives rounding errors of its mean", "InstanceNormalization")
def _normalizes_one_element(node: onnx.NodeProto, inputs: Operands) -> bool:
    return bool(np.prod(inputs[0].shape[2:]) < 2)


@_not_compared(
    "onnxruntime takes the square of the mean from the mean of the squares, of which little is left",
    "MeanVarianceNormalization",
)
def _is_uniform(node: onnx.NodeProto, inputs: Operands) -> bool:
    axes = tuple(_attribute(node, "axes", (0, 2, 3)))
    data = inputs[0].astype(float)
    return bool((np.abs(data.mean(axes)) > 8 * data.std(axes)).any())


@_not_compared("onnxruntime has the remainder of float64", "Mod")
def _has_long_integers(node: onnx.NodeProto, inputs: Operands) -> bool:
    return inputs[0].dtype.kind in "iu" and bool((abs(inputs[0].astype(float)) > 2**53).any())


# --------------------------------------------------- sizes of which packages think otherwise ----


@_not_compared(
    "of a length with a fraction, ONNX's tests take the fraction, and onnxruntime does not", "Resize"
)
def _has_fractions(node: onnx.NodeProto, inputs: Operands) -> bool:
    if _attribute(node, "coordinate_transformation_mode", b"") not in (
        b"align_corners",
        b"tf_crop_and_resize",
    ):
        return False
    scales = [array for array in inputs[1:] if array.dtype == np.float32 and array.shape == (inputs[0].ndim,)]
    return bool(scales) and not np.all(scales[-1] * inputs[0].shape % 1 == 0)


@_not_compared("smaller than its window: onnxruntime rounds towards zero; or with negative pads", *_WINDOWS)
def _is_smaller_than_its_window(node: onnx.NodeProto, inputs: Operands) -> bool:
    weight = next((array for array in inputs[1:] if array.ndim == inputs[0].ndim), inputs[0])
    taps = _attribute(node, "kernel_shape", weight.shape[2:])
    pads = _attribute(node, "pads", [0] * 2 * len(taps))
    wide = [
        (tap - 1) * by + 1
        for tap, by in zip(taps, _attribute(node, "dilations", [1] * len(taps)), strict=True)
    ]
    sizes = inputs[0].shape[2:]
    if _attribute(node, "auto_pad", b"").startswith(b"SAME"):
        steps = _attribute(node, "strides", [1] * len(taps))
        covered = [(-(-size // by) - 1) * by + one for size, by, one in zip(sizes, steps, wide, strict=True)]
        negative = any(all_of < size for all_of, size in zip(covered, sizes, strict=True))
        return "Pool" in node.op_type and negative  # pads, which packages take or leave
    return any(size + pads[i] + pads[i + len(taps)] < wide[i] for i, size in enumerate(sizes))


# ------------------------------------------------------------- operands that do not fit ----


@_not_allowed("onnxruntime reads batches that the data does not have", "GatherND")
def _has_other_batches(node: onnx.NodeProto, inputs: Operands) -> bool:
    count = _attribute(node, "batch_dims", 0)
    return inputs[0].shape[:count] != inputs[1].shape[:count]


@_not_allowed("onnxruntime reads no index of data without elements", "GatherND")
def _gathers_nothing(node: onnx.NodeProto, inputs: Operands) -> bool:
    data, places = inputs
    first = _attribute(node, "batch_dims", 0)
    sizes = np.array(data.shape[first : first + places.shape[-1]])
    return not data.size and bool(((places < -sizes) | (places >= sizes)).any())


@_not_allowed(
    "onnxruntime leaves out conditions beyond the last element, whether or not they hold", "Compress"
)
def _has_more_conditions(node: onnx.NodeProto, inputs: Operands) -> bool:
    axis = _attribute(node, "axis", None)
    return inputs[1].size > (inputs[0].size if axis is None else inputs[0].shape[axis])


@_not_allowed("packages differ in what they check", *_LOSSES)
def _has_other_labels(node: onnx.NodeProto, inputs: Operands) -> bool:
    return inputs[1].shape != (*inputs[0].shape[:1], *inputs[0].shape[2:])


@_not_allowed("of weights for other classes than there are, onnxruntime takes those of the labels", *_LOSSES)
def _has_other_weights(node: onnx.NodeProto, inputs: Operands) -> bool:
    return len(inputs) > 2 and inputs[2].shape != inputs[0].shape[1:2]


@_not_allowed("onnxruntime takes any number of coefficients", *_LINEAR)
def _has_other_coefficients(node: onnx.NodeProto, inputs: Operands) -> bool:
    """Whether there is no row of coefficients for each result, nor one for two classes."""
    labels = [_attribute(node, name, ()) for name in ("classlabels_ints", "classlabels_strings")]
    rows = max(map(len, labels)) or _attribute(node, "targets", 1)
    count, columns = len(_attribute(node, "coefficients", ())), inputs[0].shape[-1]
    return count != rows * columns and not (rows == 2 and count == columns)


@_not_allowed("onnxruntime takes any number of values", "Imputer")
def _imputes_other_columns(node: onnx.NodeProto, inputs: Operands) -> bool:
    counts = [len(_attribute(node, f"imputed_value_{kind}", ())) for kind in ("floats", "int64s")]
    return max(counts) not in (1, inputs[0].shape[-1])


@_not_allowed("the reference does not check the sizes of states", *_RECURRENT)
def _has_other_states(node: onnx.NodeProto, inputs: Operands) -> bool:
    return _attribute(node, "hidden_size", inputs[2].shape[-1]) != inputs[2].shape[-1]


@_not_allowed("the reference stretches what must be of one shape", "Adagrad", "Adam", "Momentum")
def _trains_other_shapes(node: onnx.NodeProto, inputs: Operands) -> bool:
    return len({array.shape for array in inputs[2:]}) > 1


@_not_allowed("onnxruntime takes skips of any number of rows, and leaves some out", *SKIPS)
def _skips_other_rows(node: onnx.NodeProto, inputs: Operands) -> bool:
    shape = inputs[0].shape
    return inputs[1].shape not in (shape, shape[1:], (1, *shape[1:]))


# ------------------------------------------------------------------------------- attention ----


@_not_allowed("onnxruntime reads beyond tables of other sizes, and may end the process", "RotaryEmbedding")
def _has_other_tables(node: onnx.NodeProto, inputs: Operands) -> bool:
    return inputs[0].shape[-1] != 2 * inputs[2].shape[-1]


@_not_allowed("of other sizes, onnxruntime computes float64 alone", "Attention")
def _attends_to_other_sizes(node: onnx.NodeProto, inputs: Operands) -> bool:
    q, k, v = (array.shape for array in inputs[:3])
    if len(q) == len(k) == len(v) == 3:
        heads = [_attribute(node, f"{name}_num_heads", 1) for name in ("q", "kv")]
        return q[0] != k[0] or k[:2] != v[:2] or k[2] * heads[0] != q[2] * heads[1]
    if not len(q) == len(k) == len(v) == 4:
        return False
    return q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3] or not k[1] or bool(q[1] % k[1])


@_not_compared(
    "of one query behind past keys, onnxruntime masks no key, and ONNX those behind it", "Attention"
)
def _masks_one_query(node: onnx.NodeProto, inputs: Operands) -> bool:
    one = inputs[0].shape[-2] == 1 < inputs[1].shape[-2]
    return bool(one and any(node.input[4:5]) and _attribute(node, "is_causal", 0))


@_not_compared(
    "a mask of other sizes, which the reference stretches otherwise than ONNX's definition", "Attention"
)
def _has_other_masks(node: onnx.NodeProto, inputs: Operands) -> bool:
    if not any(node.input[3:4]):
        return False
    past = inputs[4].shape[-2] if any(node.input[4:5]) else 0
    return inputs[3].shape[-2:] != (inputs[0].shape[-2], inputs[1].shape[-2] + past)


@_not_compared(
    "onnxruntime masks no key of the last query; of as many keys, there is none", "MultiHeadAttention"
)
def _masks_other_keys(node: onnx.NodeProto, inputs: Operands) -> bool:
    return bool(_attribute(node, "unidirectional", 0)) and inputs[0].shape[1] != inputs[1].shape[1]
