"""Operators on images: sampling, pooling, resizing, regions of interest."""

from __future__ import annotations

import numpy as np

from .building import Builder, Skip
from .registry import image, maker, since, window


@maker()
def other_pools(b: Builder) -> object:
    x = image(b)
    if b.chance(0.3):
        return b.emit("GlobalLpPool", [x], p=int(b.one((1, 2, 3))))
    taps = [int(b.one((1, 2, 3))) for _ in b.values[x].shape[2:]]
    more = window(b, b.values[x], taps, dilate=b.opset >= 18)
    return b.emit("LpPool", [x], kernel_shape=taps, p=int(b.one((1, 2, 3))), **more)


@maker()
def unpool(b: Builder) -> object:
    """MaxPool gives the places of its largest elements, and MaxUnpool puts them there."""
    x = image(b, 4)
    if min(b.values[x].shape[2:]) < 2:
        raise Skip("small")
    y, at = b.emit("MaxPool", [x], 2, kernel_shape=[2, 2], strides=[2, 2])
    return b.emit("MaxUnpool", [y, at], kernel_shape=[2, 2], strides=[2, 2])


@maker()
def columns(b: Builder) -> object:
    taps = [int(b.one((1, 2, 3))) for _ in range(2)]
    sizes = [int(b.one((3, 4, 5))) for _ in taps]
    blocks = int(np.prod([size - tap + 1 for size, tap in zip(sizes, taps, strict=True)]))
    x = b.new((int(b.one((1, 2))), 2 * int(np.prod(taps)), blocks))
    return b.emit("Col2Im", [x, b.ints(*sizes), b.ints(*taps)])


@maker()
def grid(b: Builder) -> object:
    if b.opset < 16:
        raise Skip("opset")
    x = image(b, 4)
    batch = b.values[x].shape[0]
    modes = ("linear", "nearest", "cubic") if b.opset >= 20 else ("bilinear", "nearest", "bicubic")
    more = {
        "mode": b.one(modes),
        "padding_mode": b.one(("zeros", "border", "reflection")),
        "align_corners": int(b.chance(0.5)),
    }
    if more["mode"].endswith("cubic") and more["padding_mode"] == "border":
        raise Skip("the reference moves positions instead")
    if b.opset >= 20 and b.chance(0.3):
        size = b.ints(batch, 2, int(b.one((2, 3))), int(b.one((2, 3))))
        places = b.emit("AffineGrid", [b.new((batch, 2, 3)), size], align_corners=int(b.chance(0.5)))[0]
    else:
        shape = (batch, int(b.one((1, 3))), int(b.one((2, 4))), 2)
        places = b.add(b.graph.inputs, b.name("x"), b.rng.uniform(-1.3, 1.3, shape).astype(b.dtype))
    return b.emit("GridSample", [x, places], **more)


@maker()
def regions(b: Builder) -> object:
    x = image(b, 4)
    array = b.values[x]
    count = int(b.one((1, 3)))
    corners = np.sort(b.rng.uniform(0, 6, (count, 2, 2)), 1).reshape(count, 4)
    if b.chance(0.3):
        rois = np.concatenate([b.rng.integers(0, array.shape[0], (count, 1)), corners], 1)
        return b.emit("MaxRoiPool", [x, b.const(rois, b.dtype)], pooled_shape=[2, 3], spatial_scale=0.5)
    more = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "mode": "avg"}
    if b.chance(0.5):
        more |= {"sampling_ratio": 1, "mode": "max"}  # onnxruntime takes the largest of more samples wrongly
    if b.opset >= 16:
        more["coordinate_transformation_mode"] = b.one(("half_pixel", "output_half_pixel"))
    batch = b.const(b.rng.integers(0, array.shape[0], count), np.int64)
    return b.emit("RoiAlign", [x, b.const(corners, b.dtype), batch], spatial_scale=0.5, **more)


@maker(2)
def resize_more(b: Builder) -> object:
    """Resize by sizes, of some axes, cubic, with antialiasing."""
    if b.opset < 13:
        raise Skip("opset")
    x = image(b, 4)
    array = b.values[x]
    more: dict[str, object] = {"mode": b.one(("nearest", "linear", "cubic", "linear"))}
    more["coordinate_transformation_mode"] = b.one(
        ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    )
    if more["mode"] == "cubic":
        more["cubic_coeff_a"] = float(b.one((-0.75, -0.5)))
        more["exclude_outside"] = int(b.chance(0.3))
    if more["mode"] == "nearest":
        more["nearest_mode"] = b.one(("floor", "round_prefer_floor", "ceil", "round_prefer_ceil"))
    sizes = [int(b.one((1, 2, 3, 5, 8, 9))) for _ in array.shape[2:]]
    if b.opset >= 18 and b.chance(0.3) and more["mode"] != "nearest" and array.dtype == np.float32:
        more["antialias"] = 1
    if b.opset >= 18 and b.chance(0.4):
        more["axes"] = [2, 3]
    else:
        sizes = [*array.shape[:2], *sizes]
    return b.emit("Resize", [x, "", "", b.ints(*sizes)], **more)


@maker()
def boxes(b: Builder) -> object:
    batch, count, classes = int(b.one((1, 2))), int(b.one((0, 1, 5, 9))), int(b.one((1, 3)))
    corners = np.sort(b.rng.uniform(0, 1, (batch, count, 2, 2)), 2).reshape(batch, count, 4)
    given = [
        b.add(b.graph.inputs, b.name("x"), corners.astype(np.float32)),
        b.new((batch, classes, count), np.dtype(np.float32), constant=False),
        b.const(int(b.one((1, 3, 100))), np.int64),
        b.const(float(b.one((0.1, 0.5))), np.float32),
        b.const(float(b.one((-1, 0.2))), np.float32),
    ]
    return b.emit("NonMaxSuppression", given, center_point_box=int(b.chance(0.3)))


@maker()
def crop(b: Builder) -> object:
    if b.opset < 18:
        raise Skip("opset")
    x = b.pick(low=1)
    axes = sorted(int(axis) for axis in b.rng.permutation(b.values[x].ndim)[: int(b.one((1, 2)))])
    return b.emit("CenterCropPad", [x, b.ints(*(int(b.one((1, 2, 5, 9))) for _ in axes))], axes=axes)


@maker()
def transposed(b: Builder) -> object:
    """ConvTranspose with groups, pads and dilations."""
    x = image(b)
    array = b.values[x]
    taps = [int(b.one((1, 2, 3))) for _ in array.shape[2:]]
    group = int(b.one([n for n in (1, 2, array.shape[1]) if array.shape[1] % n == 0]))
    more = {
        "strides": [int(b.one((1, 2, 3))) for _ in taps],
        "pads": [int(b.rng.integers(0, (size + 1) // 2 + 1)) for size in taps * 2],
        "dilations": [int(b.one((1, 1, 2))) for _ in taps],
    }
    if b.chance(0.3):
        more["output_padding"] = [int(b.rng.integers(0, stride)) for stride in more["strides"]]
    inputs = [x, b.weight((array.shape[1], int(b.one((1, 2))), *taps))]
    if b.chance(0.4):
        inputs.append(b.new((group * b.values[inputs[1]].shape[1],)))
    return b.emit("ConvTranspose", inputs, group=group, **more)


@maker()
def deformed(b: Builder) -> object:
    if b.opset < 19:
        raise Skip("opset")
    x = image(b, 4)
    shape = b.values[x].shape
    if len(shape) != 4 or min(shape[2:]) < 3 or b.dtype == np.float16:
        raise Skip("small")
    batch, channels, high, wide = shape
    w = b.weight((int(b.one((1, 2))), channels, 2, 2))
    offsets = b.new((batch, 8, high - 1, wide - 1))
    return b.emit("DeformConv", [x, w, offsets], kernel_shape=[2, 2], pads=[0, 0, 0, 0])


NORMS = {"LayerNormalization": 17, "RMSNormalization": 23}


@maker()
def normalize_more(b: Builder) -> object:
    op = since(b, NORMS)
    x = b.floats(1)
    array = b.values[x]
    axis = int(b.rng.integers(-array.ndim, array.ndim))
    if op == "LayerNormalization":
        return b.emit(op, [x, b.new(array.shape[axis:])], 3, axis=axis, epsilon=1e-3)
    return b.emit(op, [x, b.new(array.shape[axis:])], axis=axis, epsilon=1e-3)
