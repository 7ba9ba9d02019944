"""Resize and Upsample: what the attributes of all versions mean, and where elements lie on the input."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import ALL, FLOATS, c_expr, c_literal, c_type, itemsize
from farcall.backends.c._kernel import Kernel
from farcall.backends.c._node import (
    Unsupported,
    constant,
    float_attr,
    has_input,
    int_attr,
    ints_attr,
    label,
    normalize_axis,
    operand,
    opset,
    rank,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._resize_text import rounded, weights_source
from farcall.graph.dims import Dim, dims, late, product, same

CROP = "tf_crop_and_resize"
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_POLICIES = ("stretch", "not_larger", "not_smaller")

# The place on the input of element `at`: `size` and `count` are the lengths of the axis, `width` that of the
# output before it is rounded down. `at`, `scale` and `width` are floats or doubles.
_PLACES = {
    "half_pixel": "(at + 0.5f) / scale - 0.5f",
    "half_pixel_symmetric": "size / 2.0 * (1 - count / width) + (at + 0.5f) / scale - 0.5f",
    "pytorch_half_pixel": "count > 1 ? (at + 0.5f) / scale - 0.5f : 0",
    "align_corners": "width == 1 ? 0 : at * (size - 1) / (width - 1)",
    "asymmetric": "at / scale",
    CROP: "(width == 1 ? (stop - start) / 2 * (size - 1) "
    ": at * (stop - start) * (size - 1) / (width - 1)) + start * (size - 1)",
}
# SLACK is how far a rounding error may have moved a place from the middle of two elements.
_NEAREST = {
    "round_prefer_floor": "ceil(x - (0.5 + SLACK))",
    "round_prefer_ceil": "floor(x + (0.5 + SLACK))",
    "floor": "floor(x)",
    "ceil": "ceil(x)",
    "simple": "scale < 1 ? ceil(x) : floor(x)",  # of Resize in opset 10
}


@dataclass(frozen=True)
class Way:
    """How a node finds elements: its attributes, with what older versions of the operator mean."""

    mode: str
    place: str
    nearest: str
    antialias: bool
    policy: str
    sizes: int | None  # which input has the sizes, or the scales
    scales: int | None

    @classmethod
    def of(cls, node: ir.Node) -> Way:
        mode = str_attr(node, "mode", "nearest").replace("bilinear", "linear")
        if node.op_type == "Upsample" or opset(node) < 11:
            scales = None if "scales" in node.attributes else 1
            return cls(mode, "asymmetric", "simple", False, "stretch", None, scales)
        return cls(
            mode,
            str_attr(node, "coordinate_transformation_mode", "half_pixel"),
            str_attr(node, "nearest_mode", "round_prefer_floor"),
            bool(int_attr(node, "antialias", 0)),
            str_attr(node, "keep_aspect_ratio_policy", "stretch"),
            3 if _is_given(node, 3) else None,
            2 if _is_given(node, 2) else None,
        )

    @property
    def taps(self) -> int:
        """How many elements of an axis are mixed where the input is not smaller than that."""
        return _TAPS[self.mode]


def _is_given(node: ir.Node, index: int) -> bool:
    """Whether an operand is given. Exporters write one without elements for one that is not."""
    return has_input(node, index) and dims(operand(node, index)) != (0,)


def _axes(node: ir.Node) -> list[int]:
    """The axes that scales, sizes and roi name, in their order."""
    count = rank(operand(node, 0))
    axes = [normalize_axis(axis, count) for axis in ints_attr(node, "axes", range(count))]
    if len(set(axes)) < len(axes):
        raise Unsupported("an axis is named twice")
    return axes


def _scales(node: ir.Node, way: Way) -> list[float] | None:
    """The scales of the axes, if they are known before the model runs."""
    if "scales" in node.attributes:
        return list(node.attributes["scales"].as_floats())
    data = None if way.scales is None else constant(operand(node, way.scales))
    return None if data is None else data.ravel().astype(np.float64).tolist()


def check(node: ir.Node) -> None:
    way, axes = Way.of(node), _axes(node)
    _check_words(node, way)
    if way.sizes is not None and way.scales is not None:
        raise Unsupported("both scales and sizes")
    if way.sizes is not None:
        want_dtypes(node, {ir.DataType.INT64}, way.sizes)
    elif way.scales is not None:
        want_dtypes(node, {ir.DataType.FLOAT}, way.scales)
    elif "scales" not in node.attributes:
        raise Unsupported("neither scales nor sizes")
    for index, per_axis in ((way.sizes, 1), (way.scales, 1), (_roi(way), 2)):
        if index is not None and dims(operand(node, index)) != (per_axis * len(axes),):
            raise Unsupported(f"input {index} has {dims(operand(node, index))} elements for {len(axes)} axes")
    if _roi(way) is not None:
        want_dtypes(node, FLOATS, 1)
    scales = _scales(node, way)
    if scales is not None and (len(scales) != len(axes) or not all(0 < item < np.inf for item in scales)):
        raise Unsupported(f"scales {scales} for {len(axes)} axes; expected one above 0 for each")


def _check_words(node: ir.Node, way: Way) -> None:
    for what, word, known in (
        ("mode", way.mode, _TAPS),
        ("coordinate_transformation_mode", way.place, _PLACES),
        ("nearest_mode", way.nearest, _NEAREST),
        ("keep_aspect_ratio_policy", way.policy, _POLICIES),
    ):
        if word not in known:
            raise Unsupported(f"{what}={word}")
    want_dtypes(node, ALL if way.mode == "nearest" else ALL - {ir.DataType.BOOL}, 0)
    if way.antialias and way.mode == "nearest":
        raise Unsupported("antialias, where elements are not mixed")


def _roi(way: Way) -> int | None:
    """Which input has the part of each axis that is resized."""
    return 1 if way.place == CROP else None


@dataclass(frozen=True)
class Axis:
    """An axis of the output. ``number`` is its place among those that scales and sizes name."""

    size: Dim
    count: Dim
    number: int
    scale: float | None  # if it is known before the model runs
    is_kept: bool

    @property
    def shrinks(self) -> bool:
        return self.scale is not None and self.scale < 1


def _groups(node: ir.Node, way: Way) -> list[Axis]:
    """The axes; neighbours that keep their size are one."""
    x, y, named = dims(operand(node, 0)), dims(node.outputs[0]), _axes(node)
    scales = _scales(node, way)
    found: list[Axis] = []
    for axis, (size, count) in enumerate(zip(x, y, strict=True)):
        number = named.index(axis) if axis in named else -1
        scale = _known_scale(way, scales, number, size, count)
        item = Axis(size, count, number, scale, number < 0 or (scale == 1 and way.place != CROP))
        if found and found[-1].is_kept and item.is_kept:
            whole = product((found[-1].size, size))
            found[-1] = Axis(whole, whole, -1, 1, True)
        else:
            found.append(item)
    return found


def _known_scale(
    way: Way, scales: Sequence[float] | None, number: int, size: Dim, count: Dim
) -> float | None:
    if scales is not None:
        return scales[number] if number >= 0 else 1
    if way.sizes is None or way.policy != "stretch":
        return None
    if same(size, count):
        return 1
    return count / size if isinstance(size, int) and isinstance(count, int) and size else None


class Places:
    """Finds the elements of one node: its axes, their scales, and the place of each element on the input."""

    def __init__(self, node: ir.Node) -> None:
        self.node, self.way, self.kernel = node, Way.of(node), Kernel()
        self.dtype = operand(node, 0).dtype
        self.wide = _computes_in(self.dtype)
        # The nearest element is that of a place in float32, as scales are: 3 / 0.6f is 5, and in double less.
        is_exact = self.way.mode != "nearest" or self.way.place == CROP  # crops are products of many factors
        self.real = "double" if is_exact else "float"
        groups = _groups(node, self.way)
        self.planes = groups.pop(0).size if groups and groups[0].is_kept and len(groups) > 1 else 1
        self.axes = groups
        self.place = product(item.size for item in groups)
        self.made = product(item.count for item in groups)

    def verify(self) -> None:
        """Allocate an output of unknown shape; refuse sizes and scales that do not make a known one."""
        node, way, kernel = self.node, self.way, self.kernel
        index = way.scales if way.sizes is None else way.sizes
        data = None if index is None else constant(operand(node, index))
        if index is None or (data is not None and not late(node.outputs[0])):
            return
        sizes = list(map(kernel.dim, dims(operand(node, 0))))
        for number, axis in enumerate(_axes(node)):
            given = f"{kernel.read(operand(node, index))}[{number}]"
            if way.sizes is None:
                wrong = kernel.fail("ValueError", f"{label(node)}: scale {number} is not above 0")
                kernel.line(f"if (!({given} > 0 && {given} < INFINITY)) {wrong}")
                sizes[axis] = f"farcall_f2i64(floor((float){sizes[axis]} * {given}))"  # as _times has it
            elif way.policy == "stretch":
                sizes[axis] = given
            else:
                sizes[axis] = f"farcall_f2i64({self._common_scale()} * {sizes[axis]} + 0.5)"
        kernel.allocate(node.outputs[0], sizes, label(node))

    def _common_scale(self) -> str:
        """The scale that keeps the aspect ratio: the smallest or the largest one of all axes."""
        index = self.way.sizes
        assert index is not None  # noqa: S101 - a policy is about sizes
        data = constant(operand(self.node, index))
        x, text = dims(operand(self.node, 0)), ""
        for number, axis in enumerate(_axes(self.node)):
            given = self.kernel.read(operand(self.node, index)) if data is None else ""
            size = f"{given}[{number}]" if data is None else c_expr(int(data.ravel()[number]))
            ratio = f"(double){size} / {self.kernel.dim(x[axis])}"
            pick = "fmin" if self.way.policy == "not_larger" else "fmax"
            text = f"{pick}({text}, {ratio})" if text else ratio
        return f"({text})"

    def _scale(self, item: Axis) -> str:
        """The scale of an axis, as C."""
        if item.scale is not None:
            return c_literal(item.scale, ir.DataType.DOUBLE)
        if self.way.sizes is None:
            assert self.way.scales is not None  # noqa: S101 - one of them is given
            return f"(double){self.kernel.read(operand(self.node, self.way.scales))}[{item.number}]"
        if self.way.policy != "stretch":
            return self._common_scale()
        return f"(double){self.kernel.dim(item.count)} / {self.kernel.dim(item.size)}"

    def places(self, item: Axis) -> ExitStack:
        """Open a block with the numbers of an axis, in which :meth:`find` finds places."""
        kernel, stack = self.kernel, ExitStack()
        stack.enter_context(kernel.block())
        size = kernel.dim(item.size)
        empty = kernel.fail("ValueError", f"{label(self.node)}: an axis without elements to resize")
        kernel.line(f"if ({size} == 0) {empty}")
        kernel.line(f"const int64_t size = {size}, count = {kernel.dim(item.count)};")
        is_whole = self.way.sizes is not None and self.way.policy == "stretch"
        width = "count" if is_whole else "scale * size"
        kernel.line(f"const {self.real} scale = {self._scale(item)}, width = {width};\n(void)width;")
        if self.way.place == CROP:
            roi = kernel.read(operand(self.node, 1))
            end = item.number + len(_axes(self.node))
            kernel.line(f"const double start = {roi}[{item.number}], stop = {roi}[{end}];")
        return stack

    def find(self) -> None:
        """Declare ``x``, the place of element ``o`` on the input."""
        self.kernel.line(f"const {self.real} at = o, x = {_PLACES[self.way.place]};")

    def choose(self, index: str) -> None:
        """Set ``index`` to the element that is nearest to ``x``, or to -1 outside of the input."""
        slack = "1e-6" if self.real == "float" else "0"
        self.kernel.line(f"const double near = {_NEAREST[self.way.nearest].replace('SLACK', slack)};")
        self.kernel.line(f"{index} = near > 0 ? near < size - 1 ? (int64_t)near : size - 1 : 0;")
        self._mark_outside(index)

    def filter(self) -> None:
        """Declare ``half``, the neighbours on each side of a place, and ``shrink``, the filter's scale."""
        reach, kernel = self.way.taps // 2, self.kernel
        kernel.file_scope(weights_source(c_type(self.wide)))
        kernel.line(f"const double shrink = {'scale < 1 ? scale : 1' if self.way.antialias else '1'};")
        half = f"farcall_f2i64(ceil({reach} / shrink))" if self.way.antialias else str(reach)
        kernel.line(f"const int64_t half = {half};")

    def weigh(self, taps: str, index: str, weights: str) -> None:
        """Set ``index`` to the first of the neighbours of ``x``, or to -1, and write their weights."""
        a = c_literal(float_attr(self.node, "cubic_coeff_a", -0.75), ir.DataType.DOUBLE)
        options = f"{int(self.way.mode == 'cubic')}, {a}, {int_attr(self.node, 'exclude_outside', 0)}"
        function = f"farcall_weigh_{c_type(self.wide)}"
        self.kernel.line(f"{function}(x, size, half, shrink, {options}, {taps}, &{index}, {weights});")
        self._mark_outside(index)

    def _mark_outside(self, index: str) -> None:
        if self.way.place == CROP:
            self.kernel.line(f"if (!(x >= 0 && x <= size - 1)) {index} = -1;")

    def outside(self, kind: ir.DataType | None) -> str:
        """The element for places outside of the input."""
        value = float_attr(self.node, "extrapolation_value", 0.0)
        if kind not in FLOATS:
            return rounded(kind, c_literal(value, ir.DataType.DOUBLE))
        return c_literal(value, kind)


def _computes_in(dtype: ir.DataType | None) -> ir.DataType:
    """The type in which elements are mixed."""
    return ir.DataType.DOUBLE if itemsize(dtype) > 2 and dtype != ir.DataType.FLOAT else ir.DataType.FLOAT
