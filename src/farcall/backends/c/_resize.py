"""Resize and Upsample: one pass over each axis that changes, by tables of source elements and their weights.

The tables are made once a call, in double precision. Axes that keep their size cost nothing: those before the
first one that changes are a loop around all passes, and the others are part of the rows that a pass adds up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import ALL, FLOATS, c_expr, c_literal, c_type, itemsize
from farcall.backends.c._kernel import Kernel, Step
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
from farcall.backends.c._registry import loops
from farcall.backends.c._resize_text import pass_source, rounded, weights_source
from farcall.graph.dims import Dim, dims, product, same

_D = ir.DataType
_CROP = "tf_crop_and_resize"
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_POLICIES = ("stretch", "not_larger", "not_smaller")
_REPEATS = 8  # an integer scale up to this is written out

# The place on the input of element `o`: `size` and `count` are the lengths of the axis, `width` that of the
# output before it is rounded down.
_PLACES = {
    "half_pixel": "(o + 0.5) / scale - 0.5",
    "half_pixel_symmetric": "size / 2.0 * (1 - count / width) + (o + 0.5) / scale - 0.5",
    "pytorch_half_pixel": "count > 1 ? (o + 0.5) / scale - 0.5 : 0.0",
    "align_corners": "width == 1 ? 0.0 : o * (size - 1.0) / (width - 1)",
    "asymmetric": "o / scale",
    _CROP: "(width == 1 ? (stop - start) / 2 * (size - 1.0) "
    ": o * (stop - start) * (size - 1.0) / (width - 1)) + start * (size - 1.0)",
}
_NEAREST = {
    "round_prefer_floor": "ceil(x - 0.5)",
    "round_prefer_ceil": "floor(x + 0.5)",
    "floor": "floor(x)",
    "ceil": "ceil(x)",
    "simple": "scale < 1 ? ceil(x) : floor(x)",  # of Resize in opset 10
}


@dataclass(frozen=True)
class _Way:
    """How a node finds elements: its attributes, with what older versions of the operator mean."""

    mode: str
    place: str
    nearest: str
    antialias: bool
    policy: str
    sizes: int | None  # which input has the sizes, or the scales
    scales: int | None

    @classmethod
    def of(cls, node: ir.Node) -> _Way:
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


def _scales(node: ir.Node, way: _Way) -> list[float] | None:
    """The scales of the axes, if they are known before the model runs."""
    if "scales" in node.attributes:
        return list(node.attributes["scales"].as_floats())
    data = None if way.scales is None else constant(operand(node, way.scales))
    return None if data is None else data.ravel().astype(np.float64).tolist()


def _check(node: ir.Node) -> None:
    way, axes = _Way.of(node), _axes(node)
    _check_words(node, way)
    if way.sizes is not None and way.scales is not None:
        raise Unsupported("both scales and sizes")
    if way.sizes is not None:
        want_dtypes(node, {_D.INT64}, way.sizes)
    elif way.scales is not None:
        want_dtypes(node, {_D.FLOAT}, way.scales)
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


def _check_words(node: ir.Node, way: _Way) -> None:
    for what, word, known in (
        ("mode", way.mode, _TAPS),
        ("coordinate_transformation_mode", way.place, _PLACES),
        ("nearest_mode", way.nearest, _NEAREST),
        ("keep_aspect_ratio_policy", way.policy, _POLICIES),
    ):
        if word not in known:
            raise Unsupported(f"{what}={word}")
    want_dtypes(node, ALL if way.mode == "nearest" else ALL - {_D.BOOL}, 0)
    if way.antialias and way.mode == "nearest":
        raise Unsupported("antialias, where elements are not mixed")


def _roi(way: _Way) -> int | None:
    """Which input has the part of each axis that is resized."""
    return 1 if way.place == _CROP else None


@dataclass(frozen=True)
class _Axis:
    """An axis of the output. ``number`` is its place among those that scales and sizes name."""

    size: Dim
    count: Dim
    number: int
    scale: float | None  # if it is known before the model runs
    is_kept: bool

    @property
    def shrinks(self) -> bool:
        return self.scale is not None and self.scale < 1


def _groups(node: ir.Node, way: _Way) -> list[_Axis]:
    """The axes; neighbours that keep their size are one."""
    x, y, named = dims(operand(node, 0)), dims(node.outputs[0]), _axes(node)
    scales = _scales(node, way)
    found: list[_Axis] = []
    for axis, (size, count) in enumerate(zip(x, y, strict=True)):
        number = named.index(axis) if axis in named else -1
        scale = _known_scale(way, scales, number, size, count)
        item = _Axis(size, count, number, scale, number < 0 or (scale == 1 and way.place != _CROP))
        if found and found[-1].is_kept and item.is_kept:
            whole = product((found[-1].size, size))
            found[-1] = _Axis(whole, whole, -1, 1, True)
        else:
            found.append(item)
    return found


def _known_scale(
    way: _Way, scales: Sequence[float] | None, number: int, size: Dim, count: Dim
) -> float | None:
    if scales is not None:
        return scales[number] if number >= 0 else 1
    if way.sizes is None or way.policy != "stretch":
        return None
    if same(size, count):
        return 1
    return count / size if isinstance(size, int) and isinstance(count, int) and size else None


@loops("Resize", "Upsample", check=_check)
def _resize(node: ir.Node) -> Iterator[Step]:
    yield _Resize(node).write()


class _Resize:
    """Writes the kernel of one node."""

    def __init__(self, node: ir.Node) -> None:
        self.node, self.way, self.kernel = node, _Way.of(node), Kernel()
        self.dtype = operand(node, 0).dtype
        groups = _groups(node, self.way)
        self.planes = groups.pop(0).size if groups and groups[0].is_kept and len(groups) > 1 else 1
        self.axes = groups
        self.p, self.q = self.kernel.read(operand(node, 0)), self.kernel.write(node.outputs[0])
        self.place = product(item.size for item in groups)
        self.made = product(item.count for item in groups)

    def write(self) -> Step:
        kernel = self.kernel
        self._verify()
        if all(item.is_kept for item in self.axes):
            kernel.line(f"memcpy({self.q}, {self.p}, (size_t){kernel.dim(self.made)} * sizeof *{self.q});")
            return kernel.step()
        with kernel.block(f"if ({kernel.dim(product((self.planes, self.made)))})"):
            if self.way.mode == "nearest":
                self._choose()
            else:
                self._mix()
        return kernel.step()

    def _verify(self) -> None:
        """Refuse sizes and scales that are computed and do not make the output that the graph declares."""
        node, way, kernel = self.node, self.way, self.kernel
        index = way.scales if way.sizes is None else way.sizes
        if index is None or constant(operand(node, index)) is not None:
            return
        sizes = list(map(kernel.dim, dims(operand(node, 0))))
        for number, axis in enumerate(_axes(node)):
            given = f"{kernel.read(operand(node, index))}[{number}]"
            if way.sizes is None:
                wrong = kernel.fail("ValueError", f"{label(node)}: scale {number} is not above 0")
                kernel.line(f"if (!({given} > 0 && {given} < INFINITY)) {wrong}")
                sizes[axis] = f"farcall_f2i64(floor({sizes[axis]} * (double){given}))"
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

    def _scale(self, item: _Axis) -> str:
        """The scale of an axis, as C."""
        if item.scale is not None:
            return c_literal(item.scale, _D.DOUBLE)
        if self.way.sizes is None:
            assert self.way.scales is not None  # noqa: S101 - one of them is given
            return f"(double){self.kernel.read(operand(self.node, self.way.scales))}[{item.number}]"
        if self.way.policy != "stretch":
            return self._common_scale()
        return f"(double){self.kernel.dim(item.count)} / {self.kernel.dim(item.size)}"

    def _places(self, item: _Axis) -> ExitStack:
        """Open the loop over the elements ``o`` of an axis; ``x`` is the place of each on the input."""
        kernel, stack = self.kernel, ExitStack()
        stack.enter_context(kernel.block())
        size = kernel.dim(item.size)
        empty = kernel.fail("ValueError", f"{label(self.node)}: an axis without elements to resize")
        kernel.line(f"if ({size} == 0) {empty}")
        kernel.line(f"const int64_t size = {size}, count = {kernel.dim(item.count)};")
        kernel.line(f"const double scale = {self._scale(item)}, width = scale * size;\n(void)width;")
        if self.way.place == _CROP:
            roi = kernel.read(operand(self.node, 1))
            end = item.number + len(_axes(self.node))
            kernel.line(f"const double start = {roi}[{item.number}], stop = {roi}[{end}];")
        return stack

    def _each_place(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(self.kernel.loop("o", "count"))
        self.kernel.line(f"const double x = {_PLACES[self.way.place]};")
        return stack

    def _mark_outside(self, first: str) -> None:
        if self.way.place == _CROP:
            self.kernel.line(f"if (!(x >= 0 && x <= size - 1)) {first}[o] = -1;")

    def _outside(self, kind: ir.DataType | None) -> str:
        """The element for places outside of the input."""
        value = float_attr(self.node, "extrapolation_value", 0.0)
        if kind not in FLOATS:
            return rounded(kind, c_literal(value, _D.DOUBLE))
        return c_literal(value, kind)

    # -- nearest: elements are copied

    def _choose(self) -> None:
        kernel, kind = self.kernel, c_type(self.dtype)
        tables = [None if item.is_kept else self._indices(item) for item in self.axes[:-1]]
        last = self.axes[-1]
        repeats = 0 if last.is_kept else self._repeats(last)
        tables.append(None if last.is_kept or repeats else self._indices(last))
        if self.way.place == _CROP:
            kernel.line(f"const {kind} outside = {self._outside(self.dtype)};")
        with ExitStack() as stack:
            stack.enter_context(kernel.loop("n", self.planes))
            kernel.line(f"const {kind}* in0 = {self.p} + n * {kernel.dim(self.place)};")
            kernel.line(f"{kind}* out0 = {self.q} + n * {kernel.dim(self.made)};")
            for number, table in enumerate(tables[:-1]):
                self._choose_row(stack, number, table)
            self._choose_run(len(tables) - 1, tables[-1], repeats)

    def _indices(self, item: _Axis) -> str:
        """A table with the element of the input for each one of the output; -1 is outside of the input."""
        kernel = self.kernel
        table = kernel.scratch(_D.INT64, item.count)
        with self._places(item), self._each_place():
            kernel.line(f"const double near = {_NEAREST[self.way.nearest]};")
            kernel.line(f"{table}[o] = near > 0 ? near < size - 1 ? (int64_t)near : size - 1 : 0;")
            self._mark_outside(table)
        return table

    def _repeats(self, item: _Axis) -> int:
        """How often each element stands in the output, one copy behind the other; 0 if there is no rule."""
        scale = item.scale or 0
        way = self.way
        even = way.place.startswith("half_pixel") and way.nearest.startswith("round")
        if not (even or (way.place == "asymmetric" and way.nearest in ("floor", "simple"))):
            return 0
        times = int(scale) if scale == int(scale) <= _REPEATS else 0
        return times if times and same(item.count, times * item.size) else 0

    def _choose_row(self, stack: ExitStack, number: int, table: str | None) -> None:
        """Open the loop over an axis before the last one. Equal rows are copied as a whole."""
        kernel, kind, o = self.kernel, c_type(self.dtype), f"o{number}"
        item = self.axes[number]
        behind = kernel.dim(product(item.count for item in self.axes[number + 1 :]))
        step = kernel.dim(product(item.size for item in self.axes[number + 1 :]))
        stack.enter_context(kernel.loop(o, item.count))
        kernel.line(f"{kind}* out{number + 1} = out{number} + {o} * {behind};")
        source = o
        if table is not None:
            source = f"{table}[{o}]"
            to = f"out{number + 1}"
            if self.way.place == _CROP:
                fill = f"for (int64_t i = 0; i < {behind}; ++i) {to}[i] = outside;"
                kernel.line(f"if ({source} < 0) {{ {fill} continue; }}")
            copy = f"memcpy({to}, {to} - {behind}, (size_t){behind} * sizeof *{to});"
            kernel.line(f"if ({o} && {source} == {table}[{o} - 1]) {{ {copy} continue; }}")
        kernel.line(f"const {kind}* in{number + 1} = in{number} + {source} * {step};")

    def _choose_run(self, number: int, table: str | None, repeats: int) -> None:
        """Copy along the last axis."""
        kernel, item = self.kernel, self.axes[number]
        to, origin, count = f"out{number}", f"in{number}", kernel.dim(item.count)
        if item.is_kept:
            kernel.line(f"memcpy({to}, {origin}, (size_t){count} * sizeof *{to});")
        elif repeats:
            with kernel.loop("i", item.size):
                for k in range(repeats):
                    kernel.line(f"{to}[i * {repeats} + {k}] = {origin}[i];")
        else:
            with kernel.loop("i", count):
                at = f"{table}[i]"
                inside = f"{origin}[{at}]"
                is_crop = self.way.place == _CROP
                kernel.line(f"{to}[i] = {f'{at} < 0 ? outside : {inside}' if is_crop else inside};")

    # -- linear and cubic: one pass for each axis

    def _mix(self) -> None:
        kernel = self.kernel
        wide = _computes_in(self.dtype)
        kind = c_type(wide)
        kernel.file_scope(weights_source(kind))
        kernel.file_scope(pass_source(kind))
        tables = {i: self._weights(item, wide) for i, item in enumerate(self.axes) if not item.is_kept}
        shape = [item.size for item in self.axes]
        order = sorted(tables, key=lambda i: (not self.axes[i].shrinks, i if self.axes[i].shrinks else -i))
        with kernel.loop("n", self.planes):
            source = self._load(wide)
            for i in order:
                last = i == order[-1]
                before, size, behind = shape[:i], shape[i], shape[i + 1 :]
                shape[i] = self.axes[i].count
                place = f"({self.q} + n * {kernel.dim(self.made)})"
                target = place if last and wide == self.dtype else kernel.scratch(wide, product(shape))
                sizes = [kernel.dim(d) for d in (product(before), size, shape[i], product(behind))]
                fill = self._outside(wide)
                kernel.line(
                    f"farcall_resize_{kind}({source}, {target}, {', '.join(sizes)}, {tables[i]}, {fill});"
                )
                source = target
            if wide != self.dtype:
                self._store(source)

    def _load(self, wide: ir.DataType) -> str:
        """The plane ``n`` of the input, as numbers that are mixed."""
        kernel = self.kernel
        plane = f"({self.p} + n * {kernel.dim(self.place)})"
        if wide == self.dtype:
            return plane
        copy = kernel.scratch(wide, self.place)
        with kernel.loop("i", self.place):
            kernel.line(f"{copy}[i] = ({c_type(wide)}){plane}[i];")
        return copy

    def _store(self, source: str) -> None:
        with self.kernel.loop("i", self.made):
            to = f"{self.q}[n * {self.kernel.dim(self.made)} + i]"
            self.kernel.line(f"{to} = {rounded(self.dtype, f'{source}[i]')};")

    def _weights(self, item: _Axis, wide: ir.DataType) -> str:
        """Make the tables of an axis; returns the arguments that pass them: ``taps, first, weights``."""
        kernel, way = self.kernel, self.way
        number, reach = self.axes.index(item), way.taps // 2
        first = kernel.scratch(_D.INT64, item.count)
        kernel.line(f"int64_t taps{number};")
        with self._places(item):
            if not way.antialias:
                most: Dim = item.count * way.taps
                kernel.line(f"const int64_t half = {reach};\nconst double shrink = 1;")
            else:
                most = self._most_weights(item, reach)
                kernel.line("const double shrink = scale < 1 ? scale : 1;")
                kernel.line(f"const int64_t half = farcall_f2i64(ceil({reach} / shrink));")
            table = kernel.scratch(wide, most)
            kernel.line(f"taps{number} = size <= half || size - half <= half ? size : 2 * half;")
            if way.antialias and item.scale is None:
                wrong = kernel.fail("ValueError", f"{label(self.node)}: sizes that its scales do not make")
                kernel.line(f"if (taps{number} > {kernel.dim(most)} / count) {wrong}")
            with self._each_place():
                a = c_literal(float_attr(self.node, "cubic_coeff_a", -0.75), _D.DOUBLE)
                options = f"{int(way.mode == 'cubic')}, {a}, {int_attr(self.node, 'exclude_outside', 0)}"
                place = f"taps{number}, &{first}[o], &{table}[o * taps{number}]"
                kernel.line(f"farcall_weigh_{c_type(wide)}(x, size, half, shrink, {options}, {place});")
                self._mark_outside(first)
        taps = f"taps{number}"
        if isinstance(item.size, int) and not way.antialias:
            taps = str(min(item.size, way.taps))
        return f"{taps}, {first}, {table}"

    def _most_weights(self, item: _Axis, reach: int) -> Dim:
        """At least as many weights as an antialiased axis has: no more than all elements for each output."""
        if item.scale is None:
            return 4 * reach * (item.size + item.count)
        return item.count * 2 * math.ceil(reach / min(item.scale, 1))


def _computes_in(dtype: ir.DataType | None) -> ir.DataType:
    """The type in which elements are mixed."""
    return _D.DOUBLE if itemsize(dtype) > 2 and dtype != _D.FLOAT else _D.FLOAT
