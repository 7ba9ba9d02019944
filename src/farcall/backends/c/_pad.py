"""Pad, whose pads may be computed, and CenterCropPad, which pads or cuts off both ends of an axis alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import onnx_ir as ir

from farcall.backends._ctext import ALL, c_expr, c_literal, c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import shared
from farcall.backends.c._node import (
    Unsupported,
    constant,
    constant_operand,
    has_input,
    ints_attr,
    label,
    normalize_axis,
    operand,
    opset,
    rank,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import allocating, loops
from farcall.graph.dims import Dim, dims, product, same

_FARTHEST = 2**60  # a longer pad could overflow a sum with the size of an axis
_INT64 = {ir.DataType.INT64}
_INDICES = {ir.DataType.INT64, ir.DataType.INT32}

# For each mode: the element of an axis of n that stands at place y, which may be outside of it.
_MODES = {
    "constant": "",
    "edge": """static inline int64_t farcall_pad_edge(int64_t y, int64_t n) {
  return y < 0 ? 0 : y < n ? y : n - 1;
}""",
    "wrap": """static inline int64_t farcall_pad_wrap(int64_t y, int64_t n) {
  const int64_t rest = y % n;
  return rest < 0 ? rest + n : rest;
}""",
    "reflect": """static inline int64_t farcall_pad_reflect(int64_t y, int64_t n) {
  const int64_t period = n > 1 ? 2 * (n - 1) : 1, rest = y % period, at = rest < 0 ? rest + period : rest;
  return at < n ? at : period - at;
}""",
}


@dataclass(frozen=True)
class _Axis:
    """An axis of the input, and how many elements of the output come before its first one."""

    size: Dim
    target: Dim
    before: str  # a C expression; it is negative where elements are cut off

    @property
    def is_kept(self) -> bool:
        return self.before == "0" and same(self.size, self.target)


def _is_known(node: ir.Node) -> bool:
    """Whether the pads are known before the model runs."""
    if opset(node) < 11:
        return True
    given = [1, *([3] if has_input(node, 3) else [])]
    return all(constant(operand(node, index)) is not None for index in given)


def pads_of(node: ir.Node) -> list[int]:
    """The constant pads of a Pad, two for each axis."""
    count = rank(operand(node, 0))
    pads = ints_attr(node, "pads", []) if opset(node) < 11 else constant_operand(node, 1).ravel().tolist()
    if has_input(node, 3):
        axes = [normalize_axis(axis, count) for axis in constant_operand(node, 3).ravel().tolist()]
        given, pads = pads, [0] * (2 * count)
        if len(given) != 2 * len(axes):
            raise Unsupported(f"{len(given)} pads for {len(axes)} axes")
        for place, axis in enumerate(axes):
            pads[axis], pads[count + axis] = given[place], given[len(axes) + place]
    if len(pads) != 2 * count:
        raise Unsupported("pads must name every axis twice")
    if any(abs(pad) > _FARTHEST for pad in pads):
        raise Unsupported("a pad beyond 2**60")
    return pads


def _check_pad(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    mode = str_attr(node, "mode", "constant")
    if mode not in _MODES:
        raise Unsupported(f"mode={mode}")
    if _is_known(node):
        pads_of(node)
        return
    want_dtypes(node, _INT64, 1)
    axes = dims(operand(node, 3))[0] if has_input(node, 3) else rank(operand(node, 0))
    if not isinstance(axes, int) or dims(operand(node, 1)) != (2 * axes,):
        raise Unsupported(f"{dims(operand(node, 1))} pads for {axes} axes")


@allocating("Pad", check=_check_pad)
@loops("Pad", check=_check_pad)
def _pad(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    kind = c_type(node.outputs[0].dtype)
    if has_input(node, 2) and opset(node) >= 11:
        kernel.line(f"const {kind} fill = {kernel.read(operand(node, 2))}[0];")
    else:
        value = node.attributes["value"].as_float() if "value" in node.attributes else 0
        kernel.line(f"const {kind} fill = {c_literal(value, node.outputs[0].dtype)};")
    leading = [c_expr(pad) for pad in pads_of(node)] if _is_known(node) else _computed(kernel, node)
    _write(kernel, node, leading, str_attr(node, "mode", "constant"))
    yield kernel.step()


def _computed(kernel: Kernel, node: ir.Node) -> list[str]:
    """Allocate the output, and return the pads before each axis."""
    shape = dims(operand(node, 0))
    pads, count = kernel.read(operand(node, 1)), len(shape)
    kernel.line(f"int64_t before[{max(count, 1)}] = {{0}}, after[{max(count, 1)}] = {{0}};")
    given = dims(operand(node, 3))[0] if has_input(node, 3) else count
    with kernel.loop("i", given):
        if has_input(node, 3):
            kernel.index("axis", f"{kernel.read(operand(node, 3))}[i]", str(count), label(node), "the axes")
        else:
            kernel.line("const int64_t axis = i;")
        kernel.line(f"before[axis] = {pads}[i];\nafter[axis] = {pads}[i + {kernel.dim(given)}];")
        for name in ("before", "after"):
            far = kernel.fail_with("ValueError", f"{label(node)}: a pad of ", f"{name}[axis]", " elements")
            limit = c_expr(_FARTHEST)
            kernel.line(f"if ({name}[axis] > {limit} || {name}[axis] < -{limit}) {far}")
    sizes = [f"({kernel.dim(size)} + before[{axis}] + after[{axis}])" for axis, size in enumerate(shape)]
    kernel.allocate(node.outputs[0], sizes, label(node))
    return [f"before[{axis}]" for axis in range(count)]


def _crop_axes(node: ir.Node) -> list[int]:
    count = rank(operand(node, 0))
    return [normalize_axis(axis, count) for axis in ints_attr(node, "axes", range(count))]


def _check_crop(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    want_dtypes(node, _INDICES, 1)
    if dims(operand(node, 1)) != (len(_crop_axes(node)),):
        raise Unsupported(f"the shape has {dims(operand(node, 1))} elements for {len(_crop_axes(node))} axes")


@allocating("CenterCropPad", check=_check_crop)
@loops("CenterCropPad", check=_check_crop)
def _center_crop_pad(node: ir.Node) -> Iterator[Step]:
    kernel = Kernel()
    shape, target = dims(operand(node, 0)), dims(node.outputs[0])
    leading = ["0"] * len(shape)
    if constant(operand(node, 1)) is None:
        sizes = list(map(kernel.dim, shape))
        for place, axis in enumerate(_crop_axes(node)):
            sizes[axis] = f"(int64_t){kernel.read(operand(node, 1))}[{place}]"
        kernel.allocate(node.outputs[0], sizes, label(node))
    for axis in _crop_axes(node):
        size = kernel.dim(target[axis])
        if not same(shape[axis], target[axis]):  # C rounds towards 0, so that both ends are rounded alike
            leading[axis] = f"(({size} - {kernel.dim(shape[axis])}) / 2)"
    kernel.line(f"const {c_type(node.outputs[0].dtype)} fill = 0;")
    _write(kernel, node, leading, "constant")
    yield kernel.step()


def _write(kernel: Kernel, node: ir.Node, leading: Sequence[str], mode: str) -> None:
    """Loops over the rows of the output; the part of a row that the input has is one run of it."""
    x, out = operand(node, 0), node.outputs[0]
    kind, p, q = c_type(out.dtype), kernel.read(x), kernel.write(out)
    axes = _merged(list(map(_Axis, dims(x), dims(out), leading)))
    kernel.line("(void)fill;")
    if mode != "constant":
        kernel.file_scope(_MODES[mode])
        _want_elements(kernel, node, axes)
    *outer, last = axes
    size, width, before = kernel.dim(last.size), kernel.dim(last.target), last.before
    with ExitStack() as stack:
        source, place = "0", "0"
        inside: list[str] = []
        rows = [(f"i{axis}", item.target, 1) for axis, item in enumerate(outer)]
        stack.enter_context(shared(kernel, rows, product((ELEMENT, last.target))))
        for axis, item in enumerate(outer):
            source = f"({source}) * {kernel.dim(item.size)} + {_source(kernel, item, axis, mode, inside)}"
            place = f"({place}) * {kernel.dim(item.target)} + i{axis}"
        kernel.line(f"{kind}* out = {q} + ({place}) * {width};")
        if inside:
            with kernel.block(f"if (!({' && '.join(inside)}))"), kernel.loop("j", width):
                kernel.line("out[j] = fill;")
            stack.enter_context(kernel.block("else"))
        # Numbers, if sizes and pads are: then the loops are short code without branches.
        kernel.line(f"const {kind}* in = {p} + ({source}) * {size};")
        kernel.line(
            f"const int64_t first = {before} < 0 ? 0 : {before} < {width} ? {before} : {width};\n"
            f"const int64_t whole = {size} + {before} < {width} ? {size} + {before} : {width};\n"
            "const int64_t end = whole < first ? first : whole;"
        )
        outside = "fill" if mode == "constant" else f"in[farcall_pad_{mode}(j - {before}, {size})]"
        for start, stop, text in (
            ("0", "first", outside),
            ("first", "end", f"in[j - {before}]"),
            ("end", width, outside),
        ):
            with kernel.loop("j", stop, start=start):
                kernel.line(f"out[j] = {text};")


def _source(kernel: Kernel, item: _Axis, axis: int, mode: str, inside: list[str]) -> str:
    """The index along an outer axis of the input; adds to ``inside`` whether there is one."""
    if item.is_kept:
        return f"i{axis}"
    size = kernel.dim(item.size)
    if mode != "constant":
        kernel.line(f"const int64_t y{axis} = farcall_pad_{mode}(i{axis} - {item.before}, {size});")
    else:
        kernel.line(f"const int64_t y{axis} = i{axis} - {item.before};")
        inside.append(f"(uint64_t)y{axis} < (uint64_t){size}")
    return f"y{axis}"


def _want_elements(kernel: Kernel, node: ir.Node, axes: Sequence[_Axis]) -> None:
    """Refuse to repeat the elements of an axis that has none."""
    for item in axes:
        if item.is_kept or (isinstance(item.size, int) and item.size > 0):
            continue
        refusal = kernel.fail("ValueError", f"{label(node)}: an axis without elements to repeat")
        kernel.line(f"if ({kernel.dim(item.size)} == 0 && {kernel.dim(item.target)} != 0) {refusal}")


def _merged(axes: Sequence[_Axis]) -> list[_Axis]:
    """The axes, with neighbours that stay as they are in one."""
    found: list[_Axis] = []
    for item in axes:
        if found and found[-1].is_kept and item.is_kept:
            size = product((found[-1].size, item.size))
            found[-1] = replace(item, size=size, target=size)
        else:
            found.append(item)
    return found or [_Axis(1, 1, "0")]
