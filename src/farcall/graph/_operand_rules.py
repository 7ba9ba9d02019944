"""The output dims of operators that take sizes, axes or positions as operands, or find them in the data.

Exporters compute such operands from shapes, and :mod:`farcall.graph._shape_data` follows them. If it cannot,
because they depend on the data, a dim of the output is None: it is known when the node has run.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import onnx_ir as ir
import sympy

from farcall.graph._shape_rules import positive_axis, rule, whole_quotient
from farcall.graph._view import Data, Dims, NodeView, NotKnownError, PartialDims
from farcall.graph.dims import Dim, ceildiv, floordiv, maximum, minimum, product, same

_FAR = 2**31 - 1  # as a bound of a slice: beyond any axis


def computed(op: NodeView, index: int) -> Data | None:
    """The elements of an operand; None if they are known only at run time."""
    try:
        return op.data(index)
    except NotKnownError:
        return None


def _length(op: NodeView, index: int) -> int:
    """The number of elements of an operand of rank 1, which tells a rank."""
    shape = op.shape(index)
    if len(shape) != 1 or not isinstance(shape[0], int) or shape[0] > _LARGEST_RANK:
        raise NotKnownError
    return shape[0]


_LARGEST_RANK = 64


def _axes(op: NodeView, index: int, since: int) -> list[int] | None:
    """The axes of an operator that took them as an attribute before opset ``since``; None if not given."""
    if op.opset < since:
        given: list[int] = op.attr("axes", [])
        return given or None
    return op.ints(index) if op.has(index) else None


@rule("Squeeze")
def _squeeze(op: NodeView) -> Sequence[PartialDims]:
    data = op.shape(0)
    if _has_computed_axes(op, 1):
        return [(None,) * (len(data) - _length(op, 1))]
    axes = _axes(op, 1, since=13)
    if axes is None:
        return [_squeeze_all(op, data)]
    drop = {positive_axis(axis, len(data)) for axis in axes}
    for axis in drop:
        op.equate(data[axis], 1, f"it removes dim {axis} of its input, {{}}, which must be 1", data[axis])
    return [tuple(dim for i, dim in enumerate(data) if i not in drop)]


def _squeeze_all(op: NodeView, data: Dims) -> Dims:
    """The dims without those that are 1; a dim with a name is one of them only if the model declares so."""
    kept = tuple(dim for dim in data if dim != 1)
    named = [dim for dim in kept if not isinstance(dim, int)]
    if named and not op.is_settled:
        raise NotKnownError  # a name may become 1
    declared = op.node.outputs[0].shape
    if named and declared is not None and len(declared) == len(kept) - len(named):
        for dim in named:
            op.equate(dim, 1, "its output is declared without its dim {}, which must be 1", dim)
        return tuple(dim for dim in kept if isinstance(dim, int))
    for dim in named:
        # The rank is fixed: a call in which the dim is 1 is refused. 0 and numbers from 2 on fit.
        bound = maximum(dim, product((2, minimum(dim, 1))))
        op.equate(bound, dim, "as it has no axes, and its rank is fixed, its dim {} must not be 1", dim)
    return kept


def leaves_named_dims(op: NodeView) -> bool:
    """Whether a node is a Squeeze without axes of dims with names, which is settled last."""
    if op.node.op_type != "Squeeze" or op.has(1) or "axes" in op.node.attributes:
        return False
    try:
        return not all(isinstance(dim, int) for dim in op.shape(0))
    except NotKnownError:
        return False


def _has_computed_axes(op: NodeView, index: int) -> bool:
    return op.has(index) and computed(op, index) is None


@rule("Unsqueeze")
def _unsqueeze(op: NodeView) -> Sequence[PartialDims]:
    data = list(op.shape(0))
    if _has_computed_axes(op, 1):
        return [(None,) * (len(data) + _length(op, 1))]
    axes = _axes(op, 1, since=13) or []
    rank = len(data) + len(axes)
    for axis in sorted(positive_axis(axis, rank) for axis in axes):
        data.insert(axis, 1)
    return [tuple(data)]


_REDUCE_AXES_INPUT = {"ReduceSum": 13}  # the others followed in opset 18


@rule(
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum",
    "ReduceLogSumExp ReduceSumSquare",
)
def _reduce(op: NodeView) -> Sequence[PartialDims]:
    data = op.shape(0)
    if _has_computed_axes(op, 1) and op.shape(1) != (0,):
        return [(None,) * len(data) if op.attr("keepdims", 1) else (None,) * (len(data) - _length(op, 1))]
    axes = _axes(op, 1, since=_REDUCE_AXES_INPUT.get(op.node.op_type, 18))
    if not axes and op.attr("noop_with_empty_axes", 0):
        return [data]
    drop = {positive_axis(axis, len(data)) for axis in axes or range(len(data))}
    keep = op.attr("keepdims", 1)
    return [tuple(1 if i in drop else dim for i, dim in enumerate(data) if keep or i not in drop)]


@rule("Reshape")
def _reshape(op: NodeView) -> Sequence[PartialDims]:
    data = computed(op, 1)
    if data is None:
        return [(None,) * _length(op, 1)]
    wanted = data.tolist()
    try:
        given = op.shape(0)
    except NotKnownError:
        if any(item in (0, -1) for item in wanted):
            raise
        return [tuple(wanted)]
    if not op.attr("allowzero", 0):
        wanted = [given[i] if item == 0 else item for i, item in enumerate(wanted)]
        _refuse_zeros(op, given, wanted)
    return [_fill_in(op, given, wanted)]


def _refuse_zeros(op: NodeView, given: Dims, wanted: list[Dim]) -> None:
    """Require that sizes which a call may make 0 are 0 only where the dim of the operand is.

    ONNX reads a 0 as "as the operand has it". That matters beside a -1; without one, the number of elements
    would be another, which ONNX refuses.
    """
    if -1 not in wanted:
        return
    for dim, item in zip(given, wanted, strict=False):
        if not isinstance(item, int) and not _is_zero_with(dim, item):
            text = "the size {} of its shape must not be 0, which would mean a dim of the input"
            op.equate(maximum(minimum(dim, 1), item), item, text, item)


def _is_zero_with(dim: Dim, item: sympy.Expr) -> bool:
    """Whether ``dim`` is 0 wherever ``item``, a size that is not negative, is."""
    if same(dim, item):
        return True
    factors = item.as_ordered_factors()
    return all(
        factor.is_positive or (factor.is_Symbol and sympy.sympify(dim).subs(factor, 0) == 0)
        for factor in factors
    )


def _fill_in(op: NodeView, data: Dims, wanted: list[Dim]) -> Dims:
    """Give the one -1 its size, or require that the sizes agree."""
    hole = next((i for i, item in enumerate(wanted) if isinstance(item, int) and item == -1), None)
    known = product(item for i, item in enumerate(wanted) if i != hole)
    total = product(data)
    if hole is None:
        op.equate(
            total, known, "its input must have as many elements as its shape: expected {} == {}", total, known
        )
        return tuple(wanted)
    return (*wanted[:hole], whole_quotient(op, total, known), *wanted[hole + 1 :])


@rule("ConstantOfShape")
def _constant_of_shape(op: NodeView) -> Sequence[PartialDims]:
    shape = computed(op, 0)
    return [(None,) * _length(op, 0) if shape is None else tuple(shape.tolist())]


@rule("Range")
def _range(op: NodeView) -> Sequence[PartialDims]:
    try:
        start, limit, step = map(op.number, range(3))
    except NotKnownError:
        return [(None,)]
    if not isinstance(step, int) or step == 0:
        return [(None,)]
    length = limit - start if step > 0 else start - limit
    return [(maximum(ceildiv(length, abs(step)), 0),)]


@rule("Expand")
def _expand(op: NodeView) -> Sequence[PartialDims]:
    given, shape = op.shape(0), computed(op, 1)
    if shape is None:
        rank = max(len(given), _length(op, 1))
        # A symbol may be 1, which becomes any number.
        kept = (dim if isinstance(dim, int) and dim != 1 else None for dim in given)
        return [(None,) * (rank - len(given)) + tuple(kept)]
    return [op.broadcast(given, tuple(shape.tolist()))]


@rule("AffineGrid")
def _affine_grid(op: NodeView) -> Sequence[PartialDims]:
    images, *_ = op.shape(0)
    lengths = items(op, 1, _length(op, 1))[2:]
    return [(images, *lengths, len(lengths))]


@rule("Tile")
def _tile(op: NodeView) -> Sequence[PartialDims]:
    given = op.shape(0)
    times = items(op, 1, len(given))
    return [tuple(None if count is None else dim * count for dim, count in zip(given, times, strict=True))]


@rule("Slice")
def _slice(op: NodeView) -> Sequence[PartialDims]:
    data: list[Dim | None] = list(op.shape(0))
    starts: Sequence[Dim | None]
    ends: Sequence[Dim | None]
    if op.opset < 10:
        starts, ends = op.attr("starts", [0]), op.attr("ends", [0])
        axes = op.attr("axes", list(range(len(starts))))
        steps: Sequence[Dim | None] = [1] * len(starts)
    else:
        if op.has(3) and computed(op, 3) is None:  # any axis
            return [(None,) * len(data)]
        axes = op.ints(3) if op.has(3) else list(range(_length(op, 1)))
        starts, ends = items(op, 1, len(axes)), items(op, 2, len(axes))
        steps = items(op, 4, len(axes)) if op.has(4) else [1] * len(axes)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        at = positive_axis(axis, len(data))
        data[at] = _slice_length(data[at], start, end, step)
    return [tuple(data)]


def items(op: NodeView, index: int, count: int) -> Sequence[Dim | None]:
    """The elements of an operand; as many None if they are known only at run time."""
    found = computed(op, index)
    return [None] * count if found is None else found.ravel().tolist()


def _slice_length(size: Dim | None, start: Dim | None, end: Dim | None, step: Dim | None) -> Dim | None:
    if size is None or start is None or end is None or not isinstance(step, int):
        return None
    try:
        return slice_length(size, start, end, step)
    except NotKnownError:
        return None


def slice_length(size: Dim, start: Dim, end: Dim, step: int) -> Dim:
    """The number of elements of ``[start:end:step]`` of ``size``, as ONNX counts them.

    Raises:
        NotKnownError: It depends on the sign of a symbolic bound.
    """
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(slice_range(size, start, end, step))
    if step < 0:
        return maximum(ceildiv(slice_first(size, start, step) - _bound_before(size, end), -step), 0)
    if isinstance(start, int) and isinstance(end, int) and end <= start and (start < 0) == (end < 0):
        return 0  # both count from the same end of the axis
    last = _bound(size, end)
    if isinstance(start, int) and last == size:  # the frequent [k:], as a short expression
        count = maximum(size - start, 0) if start >= 0 else minimum(size, -start)
    else:
        count = maximum(last - _bound(size, start), 0)
    return ceildiv(count, step)


def slice_range(size: int, start: int, end: int, step: int) -> range:
    """The places of ``[start:end:step]`` of ``size``.

    This is numpy's rule but for a start before the first element and a negative step: ONNX moves it to the
    first element, which is taken.
    """
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first, last = (min(max(at + size if at < 0 else at, low), high) for at in (start, end))
    return range(max(first, 0) if size else first, last, step)


def slice_first(size: Dim, start: Dim, step: int) -> Dim:
    """The first place that a slice takes, if it takes one.

    Raises:
        NotKnownError: It depends on the sign of a symbolic bound.
    """
    if isinstance(size, int) and isinstance(start, int):
        return slice_range(size, start, size, step).start
    if step > 0:
        return _bound(size, start)
    if not isinstance(start, int):
        raise NotKnownError
    if start == -1 or start >= _FAR:
        return size - 1
    return minimum(maximum(size + start, 0) if start < 0 else start, size - 1)


def _bound_before(size: Dim, end: Dim) -> Dim:
    """The place at which a slice backwards ends, which it does not take."""
    if not isinstance(end, int):
        raise NotKnownError
    if end <= -_FAR:
        return -1
    return maximum(size + end, -1) if end < 0 else minimum(end, size - 1)


def _bound(size: Dim, at: Dim) -> Dim:
    if isinstance(at, int):
        if at >= _FAR:
            return size
        return maximum(size + at, 0) if at < 0 else minimum(size, at)
    if at == size or (size - at).is_nonnegative:
        return maximum(at, 0)
    if not at.is_nonnegative:
        raise NotKnownError
    return minimum(size, at)


@rule("Split")
def _split(op: NodeView) -> Sequence[PartialDims]:
    data = op.shape(0)
    axis = positive_axis(op.attr("axis", 0), len(data))
    count = len(op.node.outputs)
    sizes: Sequence[Dim | None]
    if op.has(1):
        sizes = items(op, 1, count)
    elif op.opset < 13 and "split" in op.node.attributes:
        sizes = op.attr("split", [])
    else:
        chunk = ceildiv(data[axis], op.attr("num_outputs", count))
        sizes = [chunk] * (count - 1) + [data[axis] - chunk * (count - 1)]
    known = [size for size in sizes if size is not None]
    if len(known) == count:
        text = f"its parts must be as long together as dim {axis} of its input: expected {{}} == {{}}"
        op.equate(data[axis], sum(known), text, data[axis], sum(known))
    return [(*data[:axis], size, *data[axis + 1 :]) for size in sizes]


@rule("Pad")
def _pad(op: NodeView) -> Sequence[PartialDims]:
    data: list[Dim | None] = list(op.shape(0))
    if op.has(3) and computed(op, 3) is None:
        return [(None,) * len(data)]
    axes = op.ints(3) if op.has(3) else list(range(len(data)))
    pads = op.attr("pads", [0]) if op.opset < 11 else items(op, 1, 2 * len(axes))
    for before, after, axis in zip(pads, pads[len(axes) :], axes, strict=False):
        at = positive_axis(axis, len(data))
        size = data[at]
        data[at] = None if size is None or before is None or after is None else size + before + after
    return [tuple(data)]


@rule("Col2Im")
def _col2im(op: NodeView) -> Sequence[PartialDims]:
    data = op.shape(0)
    axes = _length(op, 1)
    block = items(op, 2, axes)
    taps = None if None in block else product(size for size in block if size is not None)
    channels = None if taps is None else whole_quotient(op, data[1], taps)
    return [(data[0], channels, *items(op, 1, axes))]


@rule("MaxUnpool")
def _max_unpool(op: NodeView) -> Sequence[PartialDims]:
    data = op.shape(0)
    if op.has(2):
        return [tuple(items(op, 2, len(data)))]
    count = len(data) - 2
    taps, strides = op.attr("kernel_shape", [1] * count), op.attr("strides", [1] * count)
    pads = op.attr("pads", [0] * (2 * count))
    ends = ((data[i + 2] - 1) * strides[i] + taps[i] - pads[i] - pads[i + count] for i in range(count))
    return [(*data[:2], *ends)]


@rule("Resize", "Upsample")
def _resize(op: NodeView) -> Sequence[PartialDims]:
    data: list[Dim | None] = list(op.shape(0))
    axes = [positive_axis(axis, len(data)) for axis in op.attr("axes", list(range(len(data))))]
    by_sizes = op.node.op_type == "Resize" and op.has(3) and op.shape(3) != (0,)
    given = [data[axis] for axis in axes]
    policy = op.attr("keep_aspect_ratio_policy", "stretch")
    if not by_sizes:
        made = _scaled(op, given)
    elif policy == "stretch":
        made = items(op, 3, len(axes))
    else:
        made = _fitted(given, items(op, 3, len(axes)), policy)
    for axis, size in zip(axes, made, strict=True):
        data[axis] = size
    return [tuple(data)]


def _scaled(op: NodeView, sizes: Sequence[Dim | None]) -> Sequence[Dim | None]:
    """The sizes, each times its scale and rounded down."""
    index = 1 if op.node.op_type == "Upsample" or op.opset < 11 else 2
    try:
        scales = op.attr("scales", []) or op.floats(index)
    except NotKnownError:
        return [None] * len(sizes)
    if not all(0 < scale < _LARGEST_SCALE for scale in scales):
        raise NotKnownError
    return [
        None if size is None else _times(size, float(scale))
        for size, scale in zip(sizes, scales, strict=True)
    ]


_LARGEST_SCALE = 2**40
_TRIED_SIZES = 2**14


def _times(size: Dim, scale: float) -> Dim | None:
    """A size times its scale, rounded down, in float32 as ONNX's inference and onnxruntime compute it."""
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    ratio = _ratio(scale)
    return None if ratio is None else floordiv(size * ratio.numerator, ratio.denominator)


@lru_cache(maxsize=256)
def _ratio(scale: float) -> Fraction | None:
    """A fraction by which sizes are what they are in float32, in which 10 * 0.7 is 7; None if there is none.

    By 2.1, sizes have no such rule: 10 times it is 21, and 30 times it is less than 63.
    """
    sizes = np.arange(_TRIED_SIZES)
    made = np.floor(sizes.astype(np.float32) * np.float32(scale)).tolist()
    for most in (10, 100, 1000, 10_000, 2**60):
        ratio = Fraction(scale).limit_denominator(most)
        top, bottom = ratio.numerator, ratio.denominator
        if all(size * top // bottom == whole for size, whole in enumerate(made)):
            return ratio
    return None


def _fitted(given: Sequence[Dim | None], wanted: Sequence[Dim | None], policy: str) -> Sequence[Dim | None]:
    """The sizes, all times the smallest or the largest scale that one of them needs."""
    pairs = [(a, b) for a, b in zip(given, wanted, strict=True) if isinstance(a, int) and isinstance(b, int)]
    if len(pairs) < len(given) or not all(a for a, _ in pairs):
        return [None] * len(given)
    ratios = [b / a for a, b in pairs]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [int(scale * size + 0.5) for size, _ in pairs]


@rule("NonZero")
def _nonzero(op: NodeView) -> Sequence[PartialDims]:
    return [(len(op.shape(0)), None)]


@rule("Compress")
def _compress(op: NodeView) -> Sequence[PartialDims]:
    chosen = computed(op, 1)
    count = None if chosen is None else sum(item != 0 for item in chosen.tolist())
    if "axis" not in op.node.attributes:
        return [(count,)]
    data = op.shape(0)
    axis = positive_axis(op.attr("axis", 0), len(data))
    return [(*data[:axis], count, *data[axis + 1 :])]


@rule("Unique")
def _unique(op: NodeView) -> Sequence[PartialDims]:
    data = op.shape(0)
    if "axis" not in op.node.attributes:
        return [(None,), (None,), (product(data),), (None,)]
    axis = positive_axis(op.attr("axis", 0), len(data))
    return [(*data[:axis], None, *data[axis + 1 :]), (None,), (data[axis],), (None,)]


@rule("NonMaxSuppression")
def _non_max_suppression(op: NodeView) -> Sequence[PartialDims]:
    batch, count, corners = op.shape(0)
    op.equate(corners, 4)
    for dim, wanted in zip(op.shape(1)[::2], (batch, count), strict=True):
        op.equate(dim, wanted)
    return [(None, 3)]


def same_late_dim(value: ir.Value, axis: int) -> tuple[ir.Value, int]:
    """The first output of the value's node, and an axis of it, of the size that ``axis`` of the value has.

    The value itself, and ``axis``, if no operator says that two of its outputs have that size.
    """
    node = value.producer()
    if node is None or node.op_type not in ("Unique", "TopK") or value is node.outputs[0]:
        return value, axis
    if node.op_type == "TopK":
        return node.outputs[0], axis
    shape = node.outputs[0].shape
    if shape is None:
        return value, axis
    given = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    return node.outputs[0], positive_axis(given, len(shape))
