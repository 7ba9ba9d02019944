"""GridSample and AffineGrid: images sampled at positions that are data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import onnx_ir as ir

from farcall.backends._ctext import ALL, FLOATS, c_type
from farcall.backends.c._elements import verify_same, want_same
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import shared
from farcall.backends.c._node import (
    Unsupported,
    int_attr,
    known_dims,
    label,
    operand,
    rank,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import allocating, always, loops
from farcall.backends.c._sampling import TAPS, TILE, Sample
from farcall.graph.dims import Dim, dims, product

_OLDER_NAMES = {"bilinear": "linear", "bicubic": "cubic"}  # of opset 16
_MOST_TAPS = 4096  # of a sample


def _mode(node: ir.Node) -> str:
    mode = str_attr(node, "mode", "linear")
    return _OLDER_NAMES.get(mode, mode)


def _padding(node: ir.Node) -> str:
    return str_attr(node, "padding_mode", "zeros")


def _is_aligned(node: ir.Node) -> bool:
    return bool(int_attr(node, "align_corners", 0))


def _check_grid_sample(node: ir.Node) -> None:
    x, grid = operand(node, 0), operand(node, 1)
    mode = _mode(node)
    if mode not in TAPS:
        raise Unsupported(f"mode={mode}; expected nearest, linear or cubic")
    if _padding(node) not in ("zeros", "border", "reflection"):
        raise Unsupported(f"padding_mode={_padding(node)}; expected zeros, border or reflection")
    want_dtypes(node, ALL if mode == "nearest" else FLOATS, 0)
    want_dtypes(node, FLOATS, 1)
    axes = rank(x) - 2
    if axes < 1 or rank(grid) != rank(x):
        raise Unsupported(f"an input of rank {rank(x)}, and a grid of rank {rank(grid)}")
    if TAPS[mode] ** axes > _MOST_TAPS:
        raise Unsupported(f"{TAPS[mode]}**{axes} elements for a sample; at most {_MOST_TAPS} are read")
    want_same("the batch and of the coordinates of the grid", *_ends(node))


def _ends(node: ir.Node) -> tuple[tuple[Dim, Dim], tuple[Dim, Dim]]:
    """The first and last dim of the grid, and what they must be."""
    x, grid = dims(operand(node, 0)), dims(operand(node, 1))
    return (grid[0], grid[-1]), (x[0], len(x) - 2)


def _scaling(kind: str) -> str:
    """C functions that turn a coordinate, of which -1 and 1 are the ends of an image, into a position.

    For float, products are rounded by a conversion from double, because a compiler may otherwise leave out
    the rounding, and `nearest` then takes another element than ONNX's arithmetic does.
    """
    times = "(float)((double)({a}) * (double)({b}))" if kind == "float" else "({a}) * ({b})"
    corners = times.format(a="(n + 1) / 2", b=f"({kind})(size - 1)")
    edges = times.format(a="n + 1", b=f"({kind})size")
    return f"""static inline {kind} farcall_corner_{kind}({kind} n, int64_t size) {{ return {corners}; }}
static inline {kind} farcall_edge_{kind}({kind} n, int64_t size) {{ return ({edges} - 1) / 2; }}"""


@loops("GridSample", check=_check_grid_sample)
def _grid_sample(node: ir.Node) -> Iterator[Step]:
    """Find the elements and weights of a tile of points once, then add them up for every channel."""
    x, grid, out = operand(node, 0), operand(node, 1), node.outputs[0]
    sizes, points = dims(x)[2:], product(dims(grid)[1:-1])
    kernel = Kernel()
    g, p, q = kernel.read(grid), kernel.read(x), kernel.write(out)
    shape, kinds = list(map(kernel.dim, sizes)), (c_type(grid.dtype), c_type(x.dtype))
    sample = Sample(kernel, _mode(node), _padding(node), _is_aligned(node), *kinds, shape)
    verify_same(kernel, node, "the batch and of the coordinates of the grid", *_ends(node))
    kernel.file_scope(_scaling(kinds[0]))
    sample.keep(TILE)
    total, plane = kernel.dim(points), kernel.dim(product(sizes))
    scale = f"farcall_{'corner' if _is_aligned(node) else 'edge'}_{kinds[0]}"
    cost = product((TILE, 2 * ELEMENT, dims(x)[1] + 2))
    with shared(kernel, [("n", dims(x)[0], 1), ("first", points, TILE)], cost):
        kernel.line(f"const int64_t tile = {total} - first < {TILE} ? {total} - first : {TILE};")
        with kernel.loop("o", "tile"):
            kernel.line(f"const {kinds[0]}* const point = {g} + (n * {total} + first + o) * {len(sizes)};")
            sample.find([f"{scale}(point[{len(sizes) - 1 - i}], {size})" for i, size in enumerate(shape)])
        with kernel.loop("c", dims(x)[1]):
            kernel.line(f"const int64_t row = n * {kernel.dim(dims(x)[1])} + c;")
            kernel.line(f"const {kinds[1]}* const image = {p} + row * {plane};")
            with kernel.loop("o", "tile"):
                kernel.line(f"{q}[row * {total} + first + o] = {sample.value()};")
    yield kernel.step()


def _check_affine_grid(node: ir.Node) -> None:
    want_dtypes(node, FLOATS, 0)
    want_dtypes(node, {ir.DataType.INT64}, 1)
    size = known_dims(operand(node, 1))
    if size not in ((4,), (5,)):
        raise Unsupported(
            f"a size of dims {list(size)}; expected 4 or 5 elements: N, C, the axes of the image"
        )
    axes = rank(node.outputs[0]) - 2
    if axes + 2 != size[0]:
        raise Unsupported(f"an output of rank {axes + 2} for a size of {size[0]} elements")
    theta = dims(operand(node, 0))
    want_same("theta", theta, (theta[0], axes, axes + 1))


@allocating("AffineGrid", check=_check_affine_grid, when=always)
def _affine_grid(node: ir.Node) -> Iterator[Step]:
    """The products of theta with the coordinates of every element, which go from -1 to 1."""
    theta, out = operand(node, 0), node.outputs[0]
    axes = rank(out) - 2
    kernel = Kernel()
    p, size = kernel.read(theta), kernel.read(operand(node, 1))
    verify_same(kernel, node, "theta", dims(theta), (dims(theta)[0], axes, axes + 1))
    images = kernel.dim(dims(theta)[0])
    parts = (f"{label(node)}: its size is of ", f"{size}[0]", " images, and theta of ", images, "")
    kernel.line(f"if ({size}[0] != {images}) {kernel.fail_with('ValueError', *parts)}")
    lengths = [f"{size}[{axis + 2}]" for axis in range(axes)]
    q = kernel.allocate(out, [images, *lengths, str(axes)], label(node))
    kernel.line("int64_t to = 0;")
    with ExitStack() as stack:
        stack.enter_context(kernel.loop("n", images))
        for axis, length in enumerate(lengths):
            stack.enter_context(kernel.loop(f"i{axis}", length))
            kernel.line(f"const double x{axis} = {_coordinate(f'i{axis}', length, _is_aligned(node))};")
        stack.enter_context(kernel.loop("r", str(axes)))
        row = f"{p} + (n * {axes} + r) * {axes + 1}"
        kernel.line(f"const {c_type(theta.dtype)}* const row = {row};")
        terms = [f"row[{axes - 1 - axis}] * x{axis}" for axis in reversed(range(axes))]
        kernel.line(f"{q}[to++] = ({c_type(out.dtype)})({' + '.join([*terms, f'row[{axes}]'])});")
    yield kernel.step()


def _coordinate(index: str, length: str, is_aligned: bool) -> str:
    """The coordinate of an element: of its middle, or such that the first is at -1 and the last at 1."""
    if is_aligned:
        return f"{length} > 1 ? (2.0 * {index} - ({length} - 1)) / ({length} - 1) : -1"
    return f"(2.0 * {index} + 1 - {length}) / {length}"
