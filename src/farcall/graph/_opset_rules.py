"""What crosses from one opset to the next where an operator's meaning changed."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from farcall.graph._crossing import Crossing, RefusalError
from farcall.graph._opset_table import REDUCTIONS, cast, down, int64, ints, up

_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
_NEGATIVE = 11  # since this opset, axes and indices may be negative


# Broadcasting, which was an attribute.


@up(7, *_ARITHMETIC)
def _broadcasting(c: Crossing) -> str | None:
    axis, is_on = c.pop("axis"), c.pop("broadcast", 0)
    if axis is None or not is_on:
        return None
    if not -c.rank(0) <= axis <= c.rank(0):
        raise RefusalError(f"axis {axis} is outside of rank {c.rank(0)}")
    tail = c.rank(0) - (axis + c.rank(0) if axis < 0 else axis) - c.rank(1)
    if tail <= 0:
        return None
    axes = ints(range(c.rank(1), c.rank(1) + tail))
    return f"other = Unsqueeze <axes = {axes}> (i1)\no0 = {c.node.op_type}(i0, other)"


@up(7, "PRelu")
def _slope_of_channels(c: Crossing) -> str | None:
    if c.dims(1) in ((), (1,)) or c.rank(0) <= 2:
        return None
    return f"slope = Unsqueeze <axes = {ints(range(1, c.rank(0) - 1))}> (i1)\no0 = PRelu(i0, slope)"


@up(7, "Gemm")
def _gemm_7(c: Crossing) -> None:
    c.pop("broadcast")


@down(11, "Gemm")
def _gemm_bias(c: Crossing) -> None:
    if not c.has(2):
        c.put(2, np.zeros(1, c.dtype().numpy()))
    _not_negative(c)


@down(8, "Max", "Min", "Mean", "Sum")
def _equal_shapes(c: Crossing) -> None:
    shapes = {c.dims(index) for index in range(len(c.node.inputs))}
    if len(c.node.inputs) > 1 and (len(shapes) > 1 or None in next(iter(shapes))):
        raise RefusalError("its operands are broadcast, or may be")


# Axes and indices, which may be negative since opset 11.


@down(
    _NEGATIVE,
    *("ArgMax", "ArgMin", "Compress", "Concat", "Flatten", "Hardmax", "LogSoftmax", "Softmax", "Split"),
    *("Squeeze", "Unsqueeze", "ReduceSum", *(f"Reduce{name}" for name in REDUCTIONS)),
)
def _not_negative(c: Crossing) -> None:
    given = c.attr("axes") or ()
    if (axis := c.attr("axis")) is not None and axis < 0:
        c.set("axis", axis + c.rank())
    if any(item < 0 for item in given):
        rank = c.rank() + (len(given) if c.node.op_type == "Unsqueeze" else 0)
        c.set("axes", [item + rank if item < 0 else item for item in given])


def _may_be_negative(c: Crossing, index: int) -> bool:
    if not c.dtype(index).is_signed():
        return False
    known = c.array(index)
    return known is None or bool((known < 0).any())


@down(11, "TopK")
def _topk_largest(c: Crossing) -> None:
    c.pop("sorted")  # elements in any order may come in descending order
    _not_negative(c)


def _from_zero(c: Crossing, index: int, size: str) -> str:
    """Lines that bring negative indices into 0 ... size."""
    dtype = c.dtype(index)
    return (
        "zero64 = Constant <value = int64 {0}> ()\n"
        + cast("zero", "zero64", dtype)
        + cast("size", size, dtype)
        + f"is_back = Less(i{index}, zero)\nback = Add(i{index}, size)\n"
        + f"index = Where(is_back, back, i{index})\n"
    )


@down(_NEGATIVE, "Gather")
def _gather_from_front(c: Crossing) -> str | None:
    _not_negative(c)
    if not _may_be_negative(c, 1):
        return None
    axis = c.attr("axis", 0)
    lines = "dims = Shape(i0)\n" + int64("axis", [axis]) + "length = Gather(dims, axis)\n"
    return lines + _from_zero(c, 1, "length") + f"o0 = Gather <axis = {axis}> (i0, index)"


@up(_NEGATIVE, "OneHot")
def _one_hot_up(c: Crossing) -> str | None:
    """A negative index was outside; the depth is outside before and since."""
    if not _may_be_negative(c, 0):
        return None
    dtype = c.dtype(0)
    return (
        "zero64 = Constant <value = int64 {0}> ()\n"
        + cast("zero", "zero64", dtype)
        + cast("size", "i1", dtype)
        + "is_out = Less(i0, zero)\nindex = Where(is_out, size, i0)\n"
        + f"o0 = OneHot <axis = {c.attr('axis', -1)}> (index, i1, i2)"
    )


@down(_NEGATIVE, "OneHot")
def _one_hot_down(c: Crossing) -> str | None:
    if not _may_be_negative(c, 0):
        return None
    return (
        _from_zero(c, 0, "i1")
        + "is_out = Less(index, zero)\nplace = Where(is_out, size, index)\n"
        + f"o0 = OneHot <axis = {c.attr('axis', -1)}> (place, i1, i2)"
    )


@up(_NEGATIVE, "Scatter")
def _scatter_up(c: Crossing) -> str:
    return f"o0 = ScatterElements <axis = {c.attr('axis', 0)}> (i0, i1, i2)"


@down(_NEGATIVE, "ScatterElements")
def _scatter_down(c: Crossing) -> str:
    axis = c.axis("axis", 0)
    if not _may_be_negative(c, 1):
        return f"o0 = Scatter <axis = {axis}> (i0, i1, i2)"
    lines = "dims = Shape(i0)\n" + int64("axis", [axis]) + "length = Gather(dims, axis)\n"
    return lines + _from_zero(c, 1, "length") + f"o0 = Scatter <axis = {axis}> (i0, index, i2)"


@up(_NEGATIVE, "ConvTranspose")
@down(_NEGATIVE, "ConvTranspose")
def _explicit_pads(c: Crossing) -> None:
    """The uneven pad of SAME_UPPER and SAME_LOWER changed sides."""
    if c.attr("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER") or c.attr("output_shape") is not None:
        raise RefusalError("auto_pad and output_shape mean other pads there: give pads")


@up(19, "AveragePool")
@down(19, "AveragePool")
def _last_windows(c: Crossing) -> None:
    """The text says the same, but onnxruntime divides by another number of elements."""
    if c.attr("ceil_mode", 0) and c.attr("count_include_pad", 0):
        raise RefusalError("the last windows of ceil_mode with count_include_pad have no counterpart there")


@up(9, "Scan")
def _scan_9(_: Crossing) -> None:
    raise RefusalError("it scans each sequence of a batch, and has no counterpart there")


@down(11, "Scan")
def _scan_11(c: Crossing) -> None:
    for name in ("scan_input_axes", "scan_output_axes"):
        if any(item < 0 for item in c.attr(name) or ()):
            raise RefusalError(f"negative {name} have no counterpart there")


# Softmax and its relatives, which took all axes from one on as one.


@up(13, "Softmax", "LogSoftmax", "Hardmax")
def _softmax_up(c: Crossing) -> str | None:
    axis, rank = c.axis("axis", 1), c.rank()
    if axis == rank - 1:
        c.set("axis", axis)
        return None
    return (
        f"rows = Flatten <axis = {axis}> (i0)\nmade = {c.node.op_type} <axis = 1> (rows)\n"
        "dims = Shape(i0)\no0 = Reshape(made, dims)"
    )


@down(13, "Softmax", "LogSoftmax", "Hardmax")
def _softmax_down(c: Crossing) -> str | None:
    axis, rank = c.axis("axis", -1), c.rank()
    if axis == rank - 1:
        c.set("axis", axis)
        return None
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return (
        f"last = Transpose <perm = {ints(order)}> (i0)\n"
        f"made = {c.node.op_type} <axis = {rank - 1}> (last)\n"
        f"o0 = Transpose <perm = {ints(order)}> (made)"
    )


# Resize and Upsample.


@up(7, "Upsample")
def _upsample_7(c: Crossing) -> None:
    c.set("scales", [1.0, 1.0, float(c.pop("height_scale")), float(c.pop("width_scale"))])


@up(9, "Upsample")
def _upsample_9(c: Crossing) -> None:
    c.put(1, np.array(c.pop("scales"), np.float32))


@down(9, "Upsample")
def _upsample_to_attribute(c: Crossing) -> None:
    c.set("scales", c.fixed(1, "the scales").tolist())
    c.cut(1)


@up(10, "Upsample")
def _upsample_to_resize(c: Crossing) -> str:
    return f'o0 = Resize <mode = "{c.attr("mode", "nearest")}"> (i0, i1)'


@down(10, "Resize")
def _resize_to_upsample(c: Crossing) -> str:
    if any(c.fixed(1, "the scales") < 1):
        raise RefusalError("a scale below 1 has no counterpart there")
    return f'o0 = Upsample <mode = "{c.attr("mode", "nearest")}"> (i0, i1)'


@up(11, "Resize")
def _resize_11(c: Crossing) -> None:
    """Before opset 11, positions are multiplied; the nearest is above when the size shrinks, else below."""
    c.set("coordinate_transformation_mode", "asymmetric")
    if c.attr("mode", "nearest") == "nearest":
        scales = c.fixed(1, "the scales, which decide how positions are rounded,")
        if any(scales < 1) and any(scales > 1):
            raise RefusalError("scales above and below 1 at once have no counterpart there")
        c.set("nearest_mode", "ceil" if any(scales < 1) else "floor")
    scales_value = c.value(1)
    c.node.resize_inputs(3)
    c.node.replace_input_with(2, scales_value)
    c.put(1, np.zeros(0, np.float32))


@down(11, "Resize")
def _resize_10(c: Crossing) -> None:
    for name, value, default in (
        ("coordinate_transformation_mode", "asymmetric", "half_pixel"),
        ("exclude_outside", 0, 0),
    ):
        if (found := c.pop(name, default)) != value:
            raise RefusalError(f"{name} = {found} has no counterpart there")
    if c.has(3) or c.attr("mode", "nearest") == "cubic":
        raise RefusalError("sizes, and the mode cubic, have no counterpart there")
    rounding = c.pop("nearest_mode", "round_prefer_floor")
    if c.attr("mode", "nearest") == "nearest":
        scales = c.fixed(2, "the scales, which decide how positions are rounded,")
        as_before = all(scales >= 1) if rounding == "floor" else rounding == "ceil" and all(scales <= 1)
        if not as_before:
            raise RefusalError(f"nearest_mode = {rounding} has no counterpart there for these scales")
    for name in ("cubic_coeff_a", "extrapolation_value"):  # of other modes
        c.pop(name)
    c.node.replace_input_with(1, c.value(2))
    c.cut(2)


@up(13, "Resize")
def _resize_13(c: Crossing) -> None:
    if c.attr("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        raise RefusalError("the coordinates tf_half_pixel_for_nn have no counterpart there")
    for index in (1, 2):  # an empty operand was one that is left out
        if c.has(index) and 0 in c.dims(index):
            c.node.replace_input_with(index, None)


@down(13, "Resize")
def _resize_12(c: Crossing) -> None:
    for index in (1, 2):
        if not c.has(index):
            c.put(index, np.zeros(0, np.float32))


@down(18, "Resize")
def _resize_17(c: Crossing) -> None:
    axes = c.pop("axes")
    if axes is None:
        return
    index = 3 if c.has(3) else 2
    given, shape = c.fixed(index, "the scales or sizes"), c.dims()
    if index == 3 and None in shape:
        raise RefusalError("axes with sizes have no counterpart there if other dims vary")
    every = np.array(shape, np.int64) if index == 3 else np.ones(len(shape), np.float32)
    every[list(axes)] = given
    c.put(index, every)
    if c.has(1):
        raise RefusalError("axes with a roi have no counterpart there")


@down(19, "Resize")
def _resize_18(c: Crossing) -> None:
    if c.attr("coordinate_transformation_mode") == "half_pixel_symmetric":
        raise RefusalError("the coordinates half_pixel_symmetric have no counterpart there")


# Names, numbers and defaults.


@up(6, "Cast")
def _cast_6(c: Crossing) -> None:
    name = str(c.attr("to")).upper()
    if name not in ir.DataType.__members__:
        raise RefusalError(f"to = {name!r} is no name of a type")
    c.set("to", ir.DataType[name].value)


@down(15, "CastLike")
def _cast_like(c: Crossing) -> str:
    return cast("o0", "i0", c.dtype(1))


@up(4, "Concat")
def _concat_4(c: Crossing) -> None:
    c.set("axis", c.attr("axis", 1))


@up(2, "LpPool", "GlobalLpPool")
def _whole_p(c: Crossing) -> None:
    p = float(c.attr("p", 2.0))
    if not p.is_integer() or abs(p) >= 1 << 31:
        raise RefusalError(f"p = {p} is no whole number of 32 bits")
    c.set("p", int(p))


@up(3, "GRU")
def _gru_3(c: Crossing) -> None:
    c.set("direction", c.attr("direction", "forward"))


@up(7, "RNN", "GRU", "LSTM")
def _every_step(c: Crossing) -> None:
    """An output is computed if it is given a name."""
    c.pop("output_sequence")


_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@up(20, "GridSample")
def _grid_up(c: Crossing) -> None:
    mode = c.attr("mode", "bilinear")
    c.set("mode", _MODES.get(mode, mode))


@down(20, "GridSample")
def _grid_down(c: Crossing) -> None:
    mode = c.attr("mode", "linear")
    c.set("mode", {new: old for old, new in _MODES.items()}.get(mode, mode))
    if c.rank() != 4:
        raise RefusalError("images of other than two dimensions have no counterpart there")


@up(16, "RoiAlign")
def _roi_up(c: Crossing) -> None:
    c.set("coordinate_transformation_mode", "output_half_pixel")


@down(16, "RoiAlign")
def _roi_down(c: Crossing) -> None:
    if (mode := c.pop("coordinate_transformation_mode", "half_pixel")) != "output_half_pixel":
        raise RefusalError(f"coordinate_transformation_mode = {mode} has no counterpart there")


@up(21, "GroupNormalization")
def _scales_of_channels(c: Crossing) -> None:
    """Scale and bias were of the groups, and are of the channels since."""
    groups, channels = int(c.attr("num_groups")), c.dims()[1]
    if channels is None:
        raise RefusalError("the number of channels is known only when the model runs")
    for index in (1, 2):
        c.put(index, np.repeat(c.fixed(index, "scale and bias"), channels // groups))


@down(13, "QuantizeLinear", "DequantizeLinear")
def _one_scale(c: Crossing) -> None:
    if c.rank(1) and c.dims(1) != (1,):
        raise RefusalError("a scale for each channel has no counterpart there")
    c.pop("axis")


@down(21, "QuantizeLinear")
def _quantized_dtype(c: Crossing) -> None:
    wanted = c.pop("output_dtype", 0)
    if wanted and not c.has(2):
        zero = np.zeros(_known(c.dims(1)), ir.DataType(wanted).numpy())
        c.put(2, zero)


def _known(dims: tuple[int | None, ...]) -> list[int]:
    if None in dims:
        raise RefusalError("the shape of the scale is known only when the model runs")
    return [dim for dim in dims if dim is not None]


@down(23, "QuantizeLinear", "DequantizeLinear")
def _own_dtype(c: Crossing) -> None:
    if c.node.op_type == "DequantizeLinear" and c.attr("output_dtype", 0) == c.dtype(1).value:
        c.pop("output_dtype")


@down(28, "Mod")
def _whole_remainder(c: Crossing) -> str | None:
    if c.dtype().is_floating_point() and not c.attr("fmod", 0):
        raise RefusalError("floating-point operands with fmod = 0 have no counterpart there")
    return None


@down(15, "Shape")
def _shape_15(c: Crossing) -> str | None:
    start, end = c.pop("start", 0), c.pop("end")
    if not start and end is None:
        return None
    last = np.iinfo(np.int64).max if end is None else end
    return "dims = Shape(i0)\n" + int64("from", [start]) + int64("to", [last]) + "o0 = Slice(dims, from, to)"


@down(12, "Constant")
def _constant_11(c: Crossing) -> None:
    tensor = ir.convenience.get_const_tensor(c.node.outputs[0])
    if tensor is None:
        raise RefusalError("a sparse constant has no counterpart there")
    if "value" not in c.node.attributes:
        c.node.attributes.clear()
        c.node.attributes["value"] = ir.AttrTensor("value", tensor)
