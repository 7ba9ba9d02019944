"""What crosses from one opset to the next where attributes became inputs: axes, sizes, bounds, ratios."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from farcall.graph._crossing import Crossing, RefusalError
from farcall.graph._opset_table import DOWN, REDUCTIONS, UP, cast, down, up

_AXES = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13} | {f"Reduce{name}": 18 for name in REDUCTIONS}
_LARGEST = 3.402823466e38


def _axes_to_input(c: Crossing) -> None:
    axes = c.pop("axes")
    if axes is not None:
        c.put(1, np.array(axes, np.int64))


def _axes_to_attribute(c: Crossing) -> str | None:
    keeps = c.pop("noop_with_empty_axes", 0)
    axes = c.fixed(1, "the axes").reshape(-1).tolist() if c.has(1) else []
    c.cut(1)
    if axes:
        c.set("axes", axes)
    elif c.node.op_type == "Unsqueeze":
        return "o0 = Identity(i0)"
    elif keeps:
        return _alone(c)
    return None


def _alone(c: Crossing) -> str:
    """A reduction over no axis."""
    kind = c.node.op_type.removeprefix("Reduce")
    if kind in ("L1", "L2"):
        return "o0 = Abs(i0)"
    if kind == "SumSquare":
        return "o0 = Mul(i0, i0)"
    return "o0 = Log(i0)" if kind == "LogSum" else "o0 = Identity(i0)"


for _operator, _since in _AXES.items():
    UP[_operator, _since] = _axes_to_input
    DOWN[_operator, _since] = _axes_to_attribute


@up(13, "Split")
def _split_to_input(c: Crossing) -> None:
    sizes = c.pop("split")
    if sizes is not None:
        c.put(1, np.array(sizes, np.int64))


@down(13, "Split")
def _split_to_attribute(c: Crossing) -> None:
    if c.has(1):
        c.set("split", c.fixed(1, "the sizes").tolist())
    c.cut(1)


@up(2, "Split")
def _split_2(c: Crossing) -> None:
    if c.has(1):
        c.set("split", c.fixed(1, "the sizes").tolist())
    c.cut(1)


@up(18, "Split")
def _split_in_equals(c: Crossing) -> None:
    if not c.has(1):
        c.set("num_outputs", len(c.node.outputs))


@down(18, "Split")
def _split_in_sizes(c: Crossing) -> None:
    count = c.pop("num_outputs")
    if c.has(1) or count is None:
        return
    size = c.dims()[c.axis("axis", 0)]
    if size is None:
        raise RefusalError("the size that is split is known only when the model runs")
    step = -(-size // count)
    c.put(1, np.array([max(min(step, size - step * k), 0) for k in range(count)], np.int64))


@up(5, "Reshape")
def _reshape_5(c: Crossing) -> None:
    c.put(1, np.array(c.pop("shape", ()), np.int64))


@down(14, "Reshape")
def _reshape_14(c: Crossing) -> None:
    if c.pop("allowzero", 0) and 0 in c.fixed(1, "the dims, of which one may be 0,"):
        raise RefusalError("a dim of 0 with allowzero has no counterpart there")


@up(6, "Tile")
def _tile_6(c: Crossing) -> None:
    counts = np.ones(c.rank(), np.int64)
    counts[int(c.fixed(2, "the axis").item())] = int(c.fixed(1, "the tiles").item())
    c.cut(1)
    c.put(1, counts)


@up(10, "Slice")
def _slice_to_inputs(c: Crossing) -> None:
    starts, ends, axes = c.pop("starts"), c.pop("ends"), c.pop("axes")
    c.put(1, np.array(starts, np.int64))
    c.put(2, np.array(ends, np.int64))
    if axes is not None:
        c.put(3, np.array(axes, np.int64))


@down(10, "Slice")
def _slice_to_attributes(c: Crossing) -> None:
    if c.has(4) and any(c.fixed(4, "the steps") != 1):
        raise RefusalError("steps other than 1 have no counterpart there")
    for index, name in enumerate(("starts", "ends", "axes"), 1):
        if c.has(index):
            c.set(name, c.fixed(index, f"the {name}").tolist())
    c.cut(1)


@down(11, "Slice")
def _slice_forward(c: Crossing) -> None:
    """Negative axes, and steps backward, came with opset 11."""
    if c.has(4) and any(c.fixed(4, "the steps, of which one may be negative,") < 0):
        raise RefusalError("negative steps have no counterpart there")
    if c.has(3):
        axes = c.fixed(3, "the axes, of which one may be negative,")
        if any(axes < 0):
            c.put(3, np.where(axes < 0, axes + c.rank(), axes))


@up(10, "TopK")
def _topk_to_input(c: Crossing) -> None:
    c.put(1, np.array([c.pop("k")], np.int64))


@down(10, "TopK")
def _topk_to_attribute(c: Crossing) -> None:
    c.set("k", int(c.fixed(1, "the number of elements").item()))
    c.cut(1)


def _no_mask(c: Crossing) -> None:
    if c.made(1):
        raise RefusalError("the mask without training is all true since opset 12, and was left open before")


@up(12, "Dropout")
def _dropout_to_input(c: Crossing) -> None:
    _no_mask(c)
    ratio = c.pop("ratio")
    if ratio is not None:
        c.put(1, np.array(ratio, np.float32))


@down(12, "Dropout")
def _dropout_to_attribute(c: Crossing) -> None:
    _no_mask(c)
    if c.has(2) and c.fixed(2, "the mode").any():
        raise RefusalError("training_mode has no counterpart there")
    c.pop("seed")  # without training, nothing is random
    if c.has(1):
        c.set("ratio", float(c.fixed(1, "the ratio").item()))
    c.cut(1)


@up(10, "Dropout")
def _dropout_mask(c: Crossing) -> str | None:
    """The mask was of the dtype of the data, and is bool since."""
    if not c.made(1):
        return None
    return f"o0, kept = Dropout <ratio = {c.attr('ratio', 0.5)!r}> (i0)\n{cast('o1', 'kept', c.dtype())}"


@down(10, "Dropout")
def _dropout_numbers(c: Crossing) -> str | None:
    if not c.made(1):
        return None
    made = f"o0, kept = Dropout <ratio = {c.attr('ratio', 0.5)!r}> (i0)\n"
    return made + cast("o1", "kept", ir.DataType.BOOL)


@up(7, "Dropout", "BatchNormalization")
def _inference_only(c: Crossing) -> None:
    if not c.pop("is_test", 0):
        raise RefusalError("is_test = 0 is training, and has no counterpart there")


@up(9, "BatchNormalization")
def _spatial(c: Crossing) -> None:
    if not c.pop("spatial", 1) and c.rank() > 2:
        raise RefusalError("spatial = 0 has no counterpart there")


@up(14, "BatchNormalization")
def _one_output(c: Crossing) -> None:
    if any(map(c.made, range(1, len(c.node.outputs)))):
        raise RefusalError("the outputs of training have no counterpart there")


@down(14, "BatchNormalization")
def _no_training(c: Crossing) -> None:
    _one_output(c)


@up(6, "Clip")
def _clip_6(c: Crossing) -> None:
    """A limit that was left out was none; since then it is the largest finite number."""
    c.set("min", float(c.attr("min", -np.inf)))
    c.set("max", float(c.attr("max", np.inf)))


@up(11, "Clip")
def _clip_to_inputs(c: Crossing) -> None:
    dtype = c.dtype().numpy()
    for index, name, default in ((1, "min", -_LARGEST), (2, "max", _LARGEST)):
        limit = c.pop(name, default)
        with np.errstate(over="ignore"):
            c.put(index, np.array(limit, np.float32).astype(dtype))


@down(11, "Clip")
def _clip_to_attributes(c: Crossing) -> str | None:
    limits = [(i, name) for i, name in ((1, "min"), (2, "max")) if c.has(i)]
    if any(c.array(index) is None for index, _ in limits):
        low = "Max(i0, i1)" if c.has(1) else "Identity(i0)"
        return f"low = {low}\no0 = " + ("Min(low, i2)" if c.has(2) else "Identity(low)")
    found = {name: np.asarray(c.array(index)).item() for index, name in limits}
    c.set("min", float(np.float32(found.get("min", -np.inf))))
    c.set("max", float(np.float32(found.get("max", np.inf))))
    if any(np.isfinite(v) and float(np.float32(v)) != v for v in found.values()):
        raise RefusalError("a limit is no float32, as attributes are")
    c.cut(1)
    return None


@up(2, "Pad")
def _pad_2(c: Crossing) -> None:
    c.set("pads", c.pop("paddings"))


@up(11, "Pad")
def _pad_to_inputs(c: Crossing) -> None:
    c.put(1, np.array(c.pop("pads"), np.int64))
    value = c.pop("value")
    if value is not None:
        c.put(2, np.array(value, np.float32).astype(c.dtype().numpy()))


@down(11, "Pad")
def _pad_to_attributes(c: Crossing) -> None:
    c.set("pads", c.fixed(1, "the pads").tolist())
    if c.has(2):
        value = float(c.fixed(2, "the number to pad with").item())
        if np.isfinite(value) and float(np.float32(value)) != value:
            raise RefusalError("the number to pad with is no float32, as attributes are")
        c.set("value", value)
    c.cut(1)


@down(18, "Pad")
def _pad_every_axis(c: Crossing) -> None:
    if not c.has(3):
        return
    axes, given = c.fixed(3, "the axes"), c.fixed(1, "the pads").reshape(2, -1)
    pads = np.zeros((2, c.rank()), np.int64)
    pads[:, axes] = given
    c.cut(3)
    c.put(1, pads.reshape(-1))


@down(19, "Pad")
def _pad_modes(c: Crossing) -> None:
    if c.attr("mode", "constant") == "wrap":
        raise RefusalError("the mode wrap has no counterpart there")


@up(20, "DFT")
def _dft_to_input(c: Crossing) -> None:
    c.put(2, np.array(c.pop("axis", 1), np.int64))


@down(20, "DFT")
def _dft_to_attribute(c: Crossing) -> None:
    axis = int(c.fixed(2, "the axis").item()) if c.has(2) else -2
    c.cut(2)
    c.set("axis", axis if axis >= 0 else axis + c.rank())
