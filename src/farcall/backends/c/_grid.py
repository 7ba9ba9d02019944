"""GridSample and AffineGrid: images sampled at positions that are data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import onnx_ir as ir

from farcall.backends._ctext import ALL, FLOATS, c_type
from farcall.backends.c._elements import verify_same, want_same
from farcall.backends.c._kernel import Kernel, Step
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
from farcall.backends.c._registry import allocating, always, loops
from farcall.graph.dims import Dim, dims, product

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}  # elements along an axis of which a sample is made
_OLDER_NAMES = {"bilinear": "linear", "bicubic": "cubic"}  # of opset 16
_TILE = 32  # points whose places and weights are kept while a loop runs over the channels
_MOST_TAPS = 4096  # of a sample


def _mode(node: ir.Node) -> str:
    mode = str_attr(node, "mode", "linear")
    return _OLDER_NAMES.get(mode, mode)


def _padding(node: ir.Node) -> str:
    return str_attr(node, "padding_mode", "zeros")


def _check_grid_sample(node: ir.Node) -> None:
    x, grid = operand(node, 0), operand(node, 1)
    mode = _mode(node)
    if mode not in _TAPS:
        raise Unsupported(f"mode={mode}; expected nearest, linear or cubic")
    if _padding(node) not in ("zeros", "border", "reflection"):
        raise Unsupported(f"padding_mode={_padding(node)}; expected zeros, border or reflection")
    want_dtypes(node, ALL if mode == "nearest" else FLOATS, 0)
    want_dtypes(node, FLOATS, 1)
    axes = rank(x) - 2
    if axes < 1 or rank(grid) != rank(x):
        raise Unsupported(f"an input of rank {rank(x)}, and a grid of rank {rank(grid)}")
    if _TAPS[mode] ** axes > _MOST_TAPS:
        raise Unsupported(f"{_TAPS[mode]}**{axes} elements for a sample; at most {_MOST_TAPS} are read")
    want_same("the batch and of the coordinates of the grid", *_ends(node))


def _ends(node: ir.Node) -> tuple[tuple[Dim, Dim], tuple[Dim, Dim]]:
    """The first and last dim of the grid, and what they must be."""
    x, grid = dims(operand(node, 0)), dims(operand(node, 1))
    return (grid[0], grid[-1]), (x[0], len(x) - 2)


def _place_text(kind: str) -> str:
    """C functions that turn a coordinate of the grid into a position in elements.

    For float, products are rounded by a conversion from double, because a compiler may otherwise leave out
    the rounding, and `nearest` then takes another element than ONNX's arithmetic does. A NaN is a position
    before all elements. ``fmod`` has no rounding error, so that far positions are reflected exactly.
    """
    times = "(float)((double)({a}) * (double)({b}))" if kind == "float" else "({a}) * ({b})"
    suffix = "f" if kind == "float" else ""
    corners = times.format(a="(n + 1) / 2", b=f"({kind})(size - 1)")
    edges = times.format(a="n + 1", b=f"({kind})size")
    return f"""static inline {kind} farcall_corner_{kind}({kind} n, int64_t size) {{ return {corners}; }}
static inline {kind} farcall_edge_{kind}({kind} n, int64_t size) {{ return ({edges} - 1) / 2; }}
static inline {kind} farcall_bounded_{kind}({kind} x) {{
  return x > -0x1p100{suffix} ? (x < 0x1p100{suffix} ? x : 0x1p100{suffix}) : -0x1p100{suffix};
}}
static inline {kind} farcall_reflected_{kind}({kind} x, {kind} low, {kind} high) {{
  if (x >= low && x <= high) return x;
  const {kind} range = high - low, rest = fmod{suffix}(x < low ? low - x : x - high, 2 * range);
  if (!(range > 0)) return 0;
  const {kind} inside = rest < range ? rest : 2 * range - rest;
  return x < low ? low + inside : high - inside;
}}
static inline int64_t farcall_index_{kind}({kind} x, int64_t size) {{
  return (int64_t)(x < -8 ? -8 : x > ({kind})(size + 8) ? ({kind})(size + 8) : x);
}}"""


# The element that is read for index i; -1: none, the value is 0.
_ZEROS = """static inline int64_t farcall_zeros(int64_t i, int64_t size) {
  return i >= 0 && i < size ? i : -1;
}"""
_BORDER = """static inline int64_t farcall_border(int64_t i, int64_t size) {
  return i < 0 && size ? 0 : i < size ? i : size - 1;
}"""
_REFLECTION = """static inline int64_t farcall_reflection(int64_t i, int64_t size, int64_t aligned) {
  if (size < 2) return size - 1;
  const int64_t period = 2 * (size - aligned), rest = (i % period + period) % period;
  return rest < size ? rest : period - rest - !aligned;
}"""
_ELEMENTS = {"zeros": _ZEROS, "border": _BORDER, "reflection": _REFLECTION}


@dataclass(frozen=True)
class _Sample:
    """How a node turns coordinates into elements and weights."""

    mode: str
    padding: str
    aligned: bool
    kind: str  # the C type of the grid
    weight: str  # the C type of the weights

    @property
    def taps(self) -> int:
        return _TAPS[self.mode]

    def declare(self, kernel: Kernel, axis: int, coordinate: str, size: str) -> None:
        """Declare ``at<axis>[taps]`` and, unless the mode is `nearest`, ``weight<axis>[taps]``."""
        kind, suffix = self.kind, "f" if self.kind == "float" else ""
        half = f"0.5{suffix}"
        place = f"farcall_{'corner' if self.aligned else 'edge'}_{kind}({coordinate}, {size})"
        x, first = f"x{axis}", f"first{axis}"
        kernel.line(f"{kind} {x} = farcall_bounded_{kind}({place});")
        if self.mode == "nearest":  # halves to even, as numpy does
            kernel.line(f"{x} = rint{suffix}({x});")
        bounds = f"0, ({kind})({size} - 1)" if self.aligned else f"({kind})-0.5, ({kind}){size} - ({kind})0.5"
        if self.padding == "reflection":
            bounds = f"0, ({kind})({size} - 1)" if self.aligned else f"-{half}, ({kind}){size} - {half}"
            kernel.line(f"{x} = farcall_reflected_{kind}({x}, {bounds});")
        kernel.line(f"const int64_t {first} = farcall_index_{kind}(floor{suffix}({x}), {size});")
        before = 1 if self.mode == "cubic" else 0
        at = [self._element(f"{first} + {tap - before}", size) for tap in range(self.taps)]
        kernel.line(f"const int64_t at{axis}[] = {{{', '.join(at)}}};")
        if self.mode != "nearest":
            kernel.line(f"const {self.weight} t{axis} = ({self.weight})({x} - floor{suffix}({x}));")
            weights = ", ".join(_weights(self.mode, f"t{axis}"))
            kernel.line(f"const {self.weight} weight{axis}[] = {{{weights}}};")

    def _element(self, index: str, size: str) -> str:
        extra = f", {int(self.aligned)}" if self.padding == "reflection" else ""
        return f"farcall_{self.padding}({index}, {size}{extra})"


def _weights(mode: str, t: str) -> list[str]:
    """Linear weights, or those of cubic convolution with a = -3/4 (Keys 1981, equation 5)."""
    if mode == "linear":
        return [f"1 - {t}", t]

    def near(x: str) -> str:
        return f"(5 * ({x}) - 9) * ({x}) * ({x}) / 4 + 1"

    def far(x: str) -> str:
        return f"((15 - 3 * ({x})) * ({x}) - 24) * ({x}) / 4 + 3"

    return [far(f"{t} + 1"), near(t), near(f"1 - {t}"), far(f"2 - {t}")]


@loops("GridSample", check=_check_grid_sample)
def _grid_sample(node: ir.Node) -> Iterator[Step]:
    """Find the elements and weights of a tile of points once, then add them up for every channel."""
    x, grid, out = operand(node, 0), operand(node, 1), node.outputs[0]
    sizes, points = dims(x)[2:], product(dims(grid)[1:-1])
    kernel = Kernel()
    sample = _Sample(
        _mode(node),
        _padding(node),
        bool(int_attr(node, "align_corners", 0)),
        c_type(grid.dtype),
        c_type(x.dtype),
    )
    kernel.file_scope(_place_text(sample.kind))
    kernel.file_scope(_ELEMENTS[sample.padding])
    verify_same(kernel, node, "the batch and of the coordinates of the grid", *_ends(node))
    g, p, q = kernel.read(grid), kernel.read(x), kernel.write(out)
    count = sample.taps ** len(sizes)
    places = kernel.scratch(ir.DataType.INT64, _TILE * count)
    weights = "" if count == 1 else kernel.scratch(_dtype(x), _TILE * count)
    total, plane = kernel.dim(points), kernel.dim(product(sizes))
    with kernel.loop("n", dims(x)[0]), kernel.loop("first", total, step=_TILE):
        kernel.line(f"const int64_t tile = {total} - first < {_TILE} ? {total} - first : {_TILE};")
        with kernel.loop("o", "tile"):
            origin = f"(n * {total} + first + o) * {len(sizes)}"
            kernel.line(f"const {sample.kind}* const point = {g} + {origin};")
            _find(kernel, sample, list(map(kernel.dim, sizes)), places, weights)
        with kernel.loop("c", dims(x)[1]):
            kernel.line(f"const int64_t row = n * {kernel.dim(dims(x)[1])} + c;")
            kernel.line(f"const {sample.weight}* const image = {p} + row * {plane};")
            with kernel.loop("o", "tile"):
                _add_up(kernel, sample, count, f"{q}[row * {total} + first + o]", places, weights)
    yield kernel.step()


def _dtype(value: ir.Value) -> ir.DataType:
    assert value.dtype is not None  # noqa: S101 - checked before
    return value.dtype


def _find(kernel: Kernel, sample: _Sample, sizes: Sequence[str], places: str, weights: str) -> None:
    """Store the elements of the sample ``o`` of the tile, and their weights; its last coordinate is first."""
    last = len(sizes) - 1
    for axis, size in enumerate(sizes):
        sample.declare(kernel, axis, f"point[{last - axis}]", size)
    kernel.line(f"int64_t k = o * {sample.taps ** len(sizes)};")
    with ExitStack() as stack:
        place, missing = "0", []
        for axis, size in enumerate(sizes):
            stack.enter_context(kernel.loop(f"k{axis}", str(sample.taps)))
            at = f"at{axis}[k{axis}]"
            place = at if axis == 0 else f"({place}) * {size} + {at}"
            missing.append(f"{at} < 0")
        kernel.line(f"{places}[k] = {' || '.join(missing)} ? -1 : {place};")
        if weights:
            factors = " * ".join(f"weight{axis}[k{axis}]" for axis in range(len(sizes)))
            kernel.line(f"{weights}[k] = {factors};")
        kernel.line("++k;")


def _add_up(kernel: Kernel, sample: _Sample, count: int, target: str, places: str, weights: str) -> None:
    def element(k: str) -> str:
        return f"({places}[{k}] < 0 ? 0 : image[{places}[{k}]])"

    if not weights:
        kernel.line(f"{target} = {element('o')};")
        return
    kernel.line(f"{sample.weight} sum = 0;")
    with kernel.loop("k", str(count)):
        at = f"o * {count} + k"
        kernel.line(f"sum += {weights}[{at}] * {element(at)};")
    kernel.line(f"{target} = sum;")


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
    is_aligned = bool(int_attr(node, "align_corners", 0))
    with ExitStack() as stack:
        stack.enter_context(kernel.loop("n", images))
        for axis, length in enumerate(lengths):
            stack.enter_context(kernel.loop(f"i{axis}", length))
            kernel.line(f"const double x{axis} = {_coordinate(f'i{axis}', length, is_aligned)};")
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
