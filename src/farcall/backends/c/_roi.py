"""RoiAlign and MaxRoiPool: regions of interest of an image, each pooled to the same size."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_literal, c_type
from farcall.backends.c._elements import INDICES, verify_same, want_same
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    float_attr,
    int_attr,
    ints_attr,
    label,
    operand,
    opset,
    rank,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.graph.dims import dims, product

_MODES = ("avg", "max")
_SHIFTS = {"half_pixel": 0.5, "output_half_pixel": 0.0}  # of the image against the region


def _shift(node: ir.Node) -> float:
    """How far positions move, in elements. Before opset 16 they did not."""
    default = "half_pixel" if opset(node) >= 16 else "output_half_pixel"
    return _SHIFTS[str_attr(node, "coordinate_transformation_mode", default)]


def _check_align(node: ir.Node) -> None:
    want_dtypes(node, FLOATS, 0, 1)
    want_dtypes(node, INDICES, 2)
    _want_regions(node, 4)
    want_same("batch_indices", dims(operand(node, 2)), dims(operand(node, 1))[:1])
    mode = str_attr(node, "coordinate_transformation_mode", "half_pixel")
    if mode not in _SHIFTS:
        raise Unsupported(f"coordinate_transformation_mode={mode}; expected {' or '.join(_SHIFTS)}")
    if str_attr(node, "mode", "avg").lower() not in _MODES:
        raise Unsupported(f"mode={str_attr(node, 'mode', 'avg')}; expected {' or '.join(_MODES)}")
    for name in ("output_height", "output_width"):
        if int_attr(node, name, 1) < 1:
            raise Unsupported(f"{name}={int_attr(node, name, 1)}; expected at least 1")


def _want_regions(node: ir.Node, columns: int) -> None:
    x, regions = operand(node, 0), operand(node, 1)
    if rank(x) != 4 or rank(regions) != 2 or regions.dtype != x.dtype:
        raise Unsupported(f"an input of rank {rank(x)}, and regions of rank {rank(regions)}; or other dtypes")
    want_same("the regions", dims(regions), (dims(regions)[0], columns))


def _axis_text(kind: str) -> str:
    """C functions for one axis of a region.

    A float product is rounded by a conversion from double: a compiler may otherwise leave out the rounding,
    and the number of samples, which is rounded up, would be another than in other runtimes.
    ``farcall_roi_bound`` finds the samples that can be inside of the image, so that a huge region takes no
    more time than the image has elements.
    """
    times = "(float)((double)a * (double)b)" if kind == "float" else "a * b"
    return f"""struct farcall_roi_{kind} {{
  {kind} start, bin, step;
  double samples;
}};
static inline {kind} farcall_product_{kind}({kind} a, {kind} b) {{ return {times}; }}
static struct farcall_roi_{kind} farcall_roi_axis_{kind}(
    {kind} low, {kind} high, {kind} scale, {kind} shift, int64_t bins, int64_t ratio) {{
  struct farcall_roi_{kind} axis;
  axis.start = farcall_product_{kind}(low, scale) - shift;
  {kind} length = farcall_product_{kind}(high, scale) - shift - axis.start;
  if (shift == 0 && !(length >= 1)) length = 1;
  axis.bin = length / ({kind})bins;
  axis.samples = ratio > 0 ? (double)ratio : ceil((double)axis.bin);
  if (!(axis.samples > 0)) axis.samples = 0;
  if (axis.samples > 0x1p31) axis.samples = 0x1p31;
  axis.step = axis.bin / ({kind})axis.samples;
  return axis;
}}
static inline {kind} farcall_roi_place_{kind}(
    const struct farcall_roi_{kind}* axis, int64_t bin, int64_t i) {{
  const {kind} within = farcall_product_{kind}(({kind})i + ({kind})0.5, axis->bin) / ({kind})axis->samples;
  return axis->start + farcall_product_{kind}(({kind})bin, axis->bin) + within;
}}
static inline int64_t farcall_roi_bound_{kind}(
    const struct farcall_roi_{kind}* axis, int64_t bin, double place, double margin) {{
  const double origin = (double)axis->start + (double)bin * (double)axis->bin;
  const double i = floor((place - origin) / (double)axis->step) + margin;
  return !(i > 0) ? 0 : (int64_t)(i < axis->samples ? i : axis->samples);
}}
static inline int farcall_roi_taps_{kind}(
    {kind} place, int64_t size, int64_t* low, int64_t* high, {kind}* part) {{
  if (!(place >= -1 && place <= ({kind})size)) return 0;
  const {kind} inside = place > 0 ? place : 0;
  *low = (int64_t)inside, *high = *low + 1, *part = inside - ({kind})*low;
  if (*low >= size - 1) *low = *high = size - 1, *part = 0;
  return 1;
}}"""


@loops("RoiAlign", check=_check_align)
def _roi_align(node: ir.Node) -> Iterator[Step]:
    """Sum up the samples of each bin for all channels at once, which share the places and the weights."""
    x, regions, chosen = (operand(node, index) for index in range(3))
    images, channels, height, width = dims(x)
    kind, is_max = c_type(x.dtype), str_attr(node, "mode", "avg").lower() == "max"
    kernel = Kernel()
    verify_same(kernel, node, "the regions", dims(regions), (dims(regions)[0], 4))
    verify_same(kernel, node, "batch_indices", dims(chosen), dims(regions)[:1])
    kernel.file_scope(_axis_text(kind))
    p, r, q = kernel.read(x), kernel.read(regions), kernel.write(node.outputs[0])
    depth, sizes = kernel.dim(channels), {"y": kernel.dim(height), "x": kernel.dim(width)}
    bins = {"y": int_attr(node, "output_height", 1), "x": int_attr(node, "output_width", 1)}
    assert x.dtype is not None  # noqa: S101 - checked before
    sums = kernel.scratch(x.dtype, channels)
    kernel.line(f"const int64_t plane = {sizes['y']} * {sizes['x']};")
    with kernel.parallel("n", dims(regions)[0], product((4 * ELEMENT, channels, *bins.values()))):
        kernel.index("image", f"{kernel.read(chosen)}[n]", kernel.dim(images), label(node), "the batch")
        scale, shift = (c_literal(v, x.dtype) for v in (float_attr(node, "spatial_scale", 1.0), _shift(node)))
        for axis, column in (("y", 1), ("x", 0)):
            ends = f"{r}[n * 4 + {column}], {r}[n * 4 + {column + 2}]"
            rest = f"{scale}, {shift}, {bins[axis]}, {int_attr(node, 'sampling_ratio', 0)}"
            kernel.line(f"const struct farcall_roi_{kind} r{axis} = farcall_roi_axis_{kind}({ends}, {rest});")
        kernel.line("const double all = ry.samples * rx.samples;")
        with kernel.loop("by", str(bins["y"])), kernel.loop("bx", str(bins["x"])):
            _sum_samples(kernel, (p, sums), kind, is_max, depth, sizes)
            with kernel.loop("c", depth):
                target = f"{q}[((n * {depth} + c) * {bins['y']} + by) * {bins['x']} + bx]"
                outside = (
                    f"seen < all && !({sums}[c] > 0) ? 0 : {sums}[c]"  # a sample outside of the image is 0
                )
                kernel.line(
                    f"{target} = {outside if is_max else f'{sums}[c] / ({kind})(all > 1 ? all : 1)'};"
                )
    yield kernel.step()


def _sum_samples(
    kernel: Kernel, memory: tuple[str, str], kind: str, is_max: bool, depth: str, sizes: dict[str, str]
) -> None:
    """Write the loops over the samples of a bin; ``seen`` counts those in the image."""
    p, sums = memory
    kernel.line("double seen = 0;")
    with kernel.loop("c", depth):
        kernel.line(f"{sums}[c] = 0;")
    for axis, size in sizes.items():
        bound = f"farcall_roi_bound_{kind}(&r{axis}, b{axis}"
        kernel.line(f"const int64_t first{axis} = r{axis}.step > 0 ? {bound}, -1, -2) : 0;")
        end = f"r{axis}.step > 0 ? {bound}, (double){size}, 3) : (int64_t)r{axis}.samples"
        kernel.line(f"const int64_t end{axis} = plane > 0 ? {end} : 0;")
    with kernel.loop("iy", "endy", start="firsty"):
        _find_taps(kernel, kind, "y", sizes["y"])
        with kernel.loop("ix", "endx", start="firstx"):
            _find_taps(kernel, kind, "x", sizes["x"])
            kernel.line(f"const int64_t a = lowy * {sizes['x']}, b = highy * {sizes['x']};")
            weights = (
                "(1 - party) * (1 - partx)",
                "(1 - party) * partx",
                "party * (1 - partx)",
                "party * partx",
            )
            kernel.line(f"const {kind} w[] = {{{', '.join(weights)}}};")
            with kernel.loop("c", depth):
                kernel.line(f"const {kind}* const in = {p} + (image * {depth} + c) * plane;")
                places = ("a + lowx", "a + highx", "b + lowx", "b + highx")
                terms = [f"w[{i}] * in[{place}]" for i, place in enumerate(places)]
                if is_max:
                    kernel.line(f"{kind} best = {terms[0]};")
                    for term in terms[1:]:
                        kernel.line(f"best = best > {term} ? best : {term};")
                    kernel.line(f"{sums}[c] = seen == 0 || best > {sums}[c] ? best : {sums}[c];")
                else:
                    kernel.line(f"{sums}[c] += {' + '.join(terms)};")
            kernel.line("++seen;")


def _find_taps(kernel: Kernel, kind: str, axis: str, size: str) -> None:
    """Declare the two elements on an axis that a sample is made of, and the weight of the second one."""
    kernel.line(f"int64_t low{axis}, high{axis};\n{kind} part{axis};")
    place = f"farcall_roi_place_{kind}(&r{axis}, b{axis}, i{axis})"
    kernel.line(
        f"if (!farcall_roi_taps_{kind}({place}, {size}, &low{axis}, &high{axis}, &part{axis})) continue;"
    )


def _check_pool(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    _want_regions(node, 5)
    shape = ints_attr(node, "pooled_shape", [])
    if len(shape) != 2 or min(shape) < 1:
        raise Unsupported(f"pooled_shape={shape}; expected two positive numbers")


# A region's first element and length, and the elements `from` to `to` of bin i, which are in the image.
_POOL = """static inline int64_t farcall_roi_round(double x) {
  return x > -0x1p40 ? (int64_t)round(x < 0x1p40 ? x : 0x1p40) : -((int64_t)1 << 40);
}
static inline void farcall_roi_bin(
    int64_t first, int64_t length, int64_t i, int64_t bins, int64_t size, int64_t* from, int64_t* to) {
  const float bin = (float)length / (float)bins;
  *from = first + (int64_t)floorf((float)i * bin), *to = first + (int64_t)ceilf((float)(i + 1) * bin);
  *from = *from < 0 ? 0 : *from < size ? *from : size;
  *to = *to < 0 ? 0 : *to < size ? *to : size;
}"""


@loops("MaxRoiPool", check=_check_pool)
def _max_roi_pool(node: ir.Node) -> Iterator[Step]:
    """The largest element of each bin of a region whose corners are rounded; 0 for a bin without elements."""
    x, regions = operand(node, 0), operand(node, 1)
    images, channels, height, width = dims(x)
    kind, (rows, columns) = c_type(x.dtype), ints_attr(node, "pooled_shape", [])
    scale = c_literal(float_attr(node, "spatial_scale", 1.0), x.dtype)
    kernel = Kernel()
    verify_same(kernel, node, "the regions", dims(regions), (dims(regions)[0], 5))
    kernel.file_scope(_POOL)
    p, r, q = kernel.read(x), kernel.read(regions), kernel.write(node.outputs[0])
    depth, h, w = kernel.dim(channels), kernel.dim(height), kernel.dim(width)
    with kernel.parallel("n", dims(regions)[0], product((4 * ELEMENT, channels, rows, columns))):
        kernel.line(f"const {kind}* const region = {r} + n * 5;")
        number = "farcall_roi_round(trunc((double)region[0]))"
        kernel.index("image", number, kernel.dim(images), label(node), "the batch")
        for axis, column in (("x", 1), ("y", 2)):
            ends = (f"farcall_roi_round((double)(region[{c}] * {scale}))" for c in (column, column + 2))
            first, last = ends
            kernel.line(f"const int64_t {axis} = {first}, {axis}_last = {last};")
            kernel.line(f"const int64_t {axis}_length = {axis}_last < {axis} ? 1 : {axis}_last - {axis} + 1;")
        with kernel.loop("c", depth), kernel.loop("by", str(rows)), kernel.loop("bx", str(columns)):
            kernel.line("int64_t top, bottom, left, right;")
            kernel.line(f"farcall_roi_bin(y, y_length, by, {rows}, {h}, &top, &bottom);")
            kernel.line(f"farcall_roi_bin(x, x_length, bx, {columns}, {w}, &left, &right);")
            kernel.line(f"{kind} best = bottom > top && right > left ? -INFINITY : 0;")
            with kernel.loop("i", "bottom", start="top"), kernel.loop("j", "right", start="left"):
                kernel.line(f"const {kind} v = {p}[((image * {depth} + c) * {h} + i) * {w} + j];")
                kernel.line("best = v > best ? v : best;")
            kernel.line(f"{q}[((n * {depth} + c) * {rows} + by) * {columns} + bx] = best;")
    yield kernel.step()
