"""ConvTranspose and Col2Im: windows of an image are added up, where they overlap.

ConvTranspose multiplies its input by the weights, which gives a column of window elements for each input
element, and adds up the columns as Col2Im does. An output row is made once: for each tap that reaches it, a
row of columns is added. With a stride, the elements that are equal modulo it are together until the row is
complete, so that all sums are over contiguous memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, INTEGERS, SIGNED, c_expr, c_type
from farcall.backends.c._gemm import ZERO, Left, call_gemm, packed_left, plain_left, plain_right
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import shared
from farcall.backends.c._node import (
    Unsupported,
    constant,
    differ,
    has_input,
    int_attr,
    ints_attr,
    label,
    operand,
    rank,
    str_attr,
    want_dtypes,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.graph.dims import Dim, ceildiv, dims, floordiv, product, same

_CACHED = 2**18  # elements of columns that stay in the L2 cache
_ROWS = 48  # fewest rows of a matrix product, where the channels suffice
_FEWEST_ROWS = 16  # the same, where the channels have not enough for two such products
_SHARES = 8  # blocks that threads can share well
_LARGEST = 2**31 - 1  # of attributes and of the elements of a window: products of two fit


@dataclass(frozen=True)
class _Axis:
    """An axis of the image. Tap ``k`` of window ``i`` lies at ``i * stride + k * dilation - begin``."""

    windows: str  # a C expression, as are taps
    out: Dim
    taps: str
    stride: int
    dilation: int
    begin: Dim


class _Sum:
    """Writes the loops that add up the columns of one plane of the image."""

    def __init__(self, kernel: Kernel, dtype: ir.DataType | None, axes: Sequence[_Axis]) -> None:
        self.kernel, self.axes = kernel, axes
        self.kind = f"u{c_type(dtype)}" if dtype in SIGNED else c_type(dtype)  # sums of integers wrap around
        last = axes[-1]
        self.room = ceildiv(last.out, last.stride)
        self.line = (
            "" if last.stride == 1 else kernel.scratch(dtype or ir.DataType.FLOAT, self.room * last.stride)
        )
        kernel.file_scope(_SOURCE.replace("KIND", self.kind))

    def write(self, columns: str, target: str, start: str) -> None:
        """Write the plane at ``target``; each tap has a row of all windows in ``columns``."""
        kernel, last = self.kernel, self.axes[-1]
        width = kernel.dim(last.out)
        kernel.line(f"const {self.kind}* const columns = (const {self.kind}*)({columns});")
        kernel.line(f"{self.kind}* const plane = ({self.kind}*)({target});")
        with ExitStack() as stack:
            row = "0"
            for i, axis in enumerate(self.axes[:-1]):
                stack.enter_context(kernel.loop(f"o{i}", axis.out))
                row = f"({row}) * {kernel.dim(axis.out)} + o{i}"
            kernel.line(f"{self.kind}* const out = plane + ({row}) * {width};")
            whole = kernel.dim(self.room * last.stride) if self.line else width
            line = f"(({self.kind}*){self.line})" if self.line else "out"
            kernel.line(f"{self.kind}* const line = {line};")
            kernel.line(f"for (int64_t i = 0; i < {whole}; ++i) line[i] = {start};")
            self._taps(width)
            if self.line:
                kernel.line(
                    f"farcall_weave_{self.kind}(line, {kernel.dim(self.room)}, {last.stride}, {width}, out);"
                )

    def _taps(self, width: str) -> None:
        kernel, last = self.kernel, len(self.axes) - 1
        with ExitStack() as stack:
            tap, window = "0", "0"
            for i, axis in enumerate(self.axes):
                stack.enter_context(kernel.loop(f"k{i}", axis.taps))
                tap = f"({tap}) * {axis.taps} + k{i}"
                shift = f"k{i} * {axis.dilation} - {kernel.dim(axis.begin)}"
                if i == last:
                    kernel.line(f"const int64_t shift = {shift};")
                    continue
                kernel.line(f"const int64_t y{i} = o{i} - ({shift});")
                at = f"y{i} / {axis.stride}"
                kernel.line(f"if (y{i} < 0 || y{i} % {axis.stride} || {at} >= {axis.windows}) continue;")
                window = f"({window}) * {axis.windows} + {at}"
            axis, room = self.axes[last], kernel.dim(self.room)
            every = " * ".join(f"({axis.windows})" for axis in self.axes)
            place = f"({tap}) * ({every}) + ({window}) * {axis.windows}"
            kernel.line(f"const {self.kind}* const from = columns + {place};")
            numbers = f"{axis.windows}, {axis.stride}, shift, line, {room}, {width}"
            kernel.line(f"farcall_spread_{self.kind}(from, {numbers});")


# Element `o` of a row is at (o % stride) * room + o / stride of `line`.
_SOURCE = """static inline void farcall_spread_KIND(const KIND* restrict from, int64_t count, int64_t stride,
    int64_t shift, KIND* restrict line, int64_t room, int64_t width) {
  const int64_t rest = shift % stride, phase = rest < 0 ? rest + stride : rest;
  const int64_t move = (shift - phase) / stride;
  const int64_t end = (width - phase + stride - 1) / stride - move, low = move < 0 ? -move : 0;
  const int64_t high = end < count ? end : count;
  KIND* restrict to = line + phase * room;
  for (int64_t i = low; i < high; ++i) to[i + move] += from[i];
}
static inline void farcall_weave_KIND(const KIND* restrict line, int64_t room, int64_t stride, int64_t width,
    KIND* restrict out) {
  if (stride == 2) {
    for (int64_t i = 0; i < width / 2; ++i) out[2 * i] = line[i], out[2 * i + 1] = line[room + i];
    if (width % 2) out[width - 1] = line[width / 2];
    return;
  }
  for (int64_t phase = 0; phase < stride; ++phase)
    for (int64_t i = 0; i * stride + phase < width; ++i) out[i * stride + phase] = line[phase * room + i];
}"""


def _lists(node: ir.Node, count: int) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations and pads.

    Raises:
        Unsupported: one has the wrong number of entries, or an entry no window has.
    """
    strides, dilations = (ints_attr(node, name, [1] * count) for name in ("strides", "dilations"))
    pads = ints_attr(node, "pads", [0] * (2 * count))
    if not (len(strides) == len(dilations) == count and len(pads) == 2 * count):
        raise Unsupported(f"strides, dilations and pads must name {count} spatial axes")
    if not all(0 < item <= _LARGEST for item in (*strides, *dilations)):
        raise Unsupported(f"strides {strides}, dilations {dilations}")
    if any(abs(item) > _LARGEST for item in pads):
        raise Unsupported(f"pads {pads}")
    return strides, dilations, pads


# -- ConvTranspose


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    x, w = dims(operand(node, 0)), dims(operand(node, 1))
    if len(x) < 3 or not len(x) == len(w) == rank(node.outputs[0]):
        raise Unsupported(f"rank {len(x)}, weights of rank {len(w)}, output of rank {rank(node.outputs[0])}")
    if not all(isinstance(dim, int) for dim in w):
        raise Unsupported("the weight's shape is not fixed")
    group = int_attr(node, "group", 1)
    if group < 1 or int(w[0]) % group or differ(x[1], w[0]):
        raise Unsupported(f"the input has {x[1]} channels, the weight is for {w[0]} in {group} groups")
    if has_input(node, 2) and differ(product(dims(operand(node, 2))), int(w[1]) * group):
        raise Unsupported(f"the bias has {dims(operand(node, 2))} elements for {int(w[1]) * group} channels")
    if list(w[2:]) != ints_attr(node, "kernel_shape", [int(dim) for dim in w[2:]]):
        raise Unsupported(f"kernel_shape is not that of the weight, {w[2:]}")
    _axes(node, Kernel())


def _axes(node: ir.Node, kernel: Kernel) -> list[_Axis]:
    """The spatial axes. Where the output's shape is given, the padding follows from it."""
    x, w, y = dims(operand(node, 0))[2:], dims(operand(node, 1))[2:], dims(node.outputs[0])[2:]
    count = len(x)
    strides, dilations, pads = _lists(node, count)
    more = ints_attr(node, "output_padding", [0] * count)
    auto = str_attr(node, "auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(f"auto_pad={auto}")
    if len(more) != count:
        raise Unsupported(f"output_padding must name {count} spatial axes")
    follows = auto.startswith("SAME") or "output_shape" in node.attributes
    axes: list[_Axis] = []
    for i in range(count):
        begin: Dim = 0 if auto == "VALID" else pads[i]
        if follows:
            whole = strides[i] * (x[i] - 1) + more[i] + (int(w[i]) - 1) * dilations[i] + 1 - y[i]
            half = floordiv(whole, 2)
            begin = half if auto == "SAME_UPPER" else whole - half
        axes.append(_Axis(kernel.dim(x[i]), y[i], str(w[i]), strides[i], dilations[i], begin))
    return axes


@loops("ConvTranspose", check=_check)
def _conv_transpose(node: ir.Node) -> Iterator[Step]:
    x, w, y = operand(node, 0), operand(node, 1), node.outputs[0]
    kernel, kind = Kernel(), c_type(y.dtype)
    group = int_attr(node, "group", 1)
    ins, outs = int(dims(w)[0]) // group, int(dims(w)[1])  # channels of one group
    taps = prod(int(dim) for dim in dims(w)[2:])
    source, target, windows = kernel.read(x), kernel.write(y), product(dims(x)[2:])
    bias = kernel.read(operand(node, 2)) if has_input(node, 2) else ""
    if outs == 0 or y.dtype is None:
        yield kernel.step()
        return
    summed = _Sum(kernel, y.dtype, _axes(node, kernel))
    block = _block(outs, taps, windows, product((dims(x)[0], group)))
    left = _weights(kernel, node, (group, ins, outs, taps), block)
    columns = kernel.scratch(y.dtype, block * taps * windows)
    count, plane = kernel.dim(windows), kernel.dim(product(dims(y)[2:]))
    places: list[tuple[str, Dim, int]] = [("n", dims(x)[0], 1), ("g", group, 1), ("b", outs // block, 1)]
    with shared(kernel, places, product((block * taps * (ins + ELEMENT), windows))):
        image = f"{source} + (n * {group} + g) * {ins} * {count}"
        sizes = [str(block * taps), count, str(ins)]
        call_gemm(kernel, y.dtype, sizes, left, plain_right(y.dtype, image, count), (columns, count), ZERO)
        with kernel.loop("m", str(block)):
            kernel.line(f"const int64_t channel = g * {outs} + b * {block} + m;")
            kernel.line(f"const {kind} start = {f'{bias}[channel]' if bias else '0'};")
            to = f"{target} + (n * {group * outs} + channel) * {plane}"
            summed.write(f"{columns} + m * {taps} * {count}", to, "start")
    yield kernel.step()


def _block(outs: int, taps: int, windows: Dim, times: Dim) -> int:
    """How many output channels are made at once, in each group of each image.

    Enough for a product, as many as stay in the cache, and so few that there are blocks for all threads.
    """
    found = [block for block in range(1, outs + 1) if outs % block == 0]
    fewest = _ROWS if outs * taps >= 2 * _ROWS else _FEWEST_ROWS
    enough = [block for block in found if block * taps >= fewest] or [outs]
    if not isinstance(windows, int):
        return enough[0]
    count = times if isinstance(times, int) else 1
    fitting = [block for block in enough if block * taps * windows <= _CACHED]
    return max((block for block in fitting if count * outs // block >= _SHARES), default=enough[0])


def _weights(kernel: Kernel, node: ir.Node, sizes: tuple[int, int, int, int], block: int) -> Left:
    """Rows for the taps of the channels of block ``b`` of group ``g``; columns for the input's channels."""
    group, ins, outs, taps = sizes
    weights = constant(operand(node, 1))
    if weights is None:
        first = f"{kernel.read(operand(node, 1))} + g * {ins * outs * taps} + b * {block * taps}"
        return plain_left(first, "1", str(outs * taps))
    blocks = outs // block
    matrices = weights.reshape(group, ins, blocks, block * taps).transpose(0, 2, 3, 1)
    rows = matrices.reshape(group * blocks, block * taps, ins)
    return packed_left(kernel, rows, f"g * {blocks} + b")


# -- Col2Im


def _check_col2im(node: ir.Node) -> None:
    want_dtypes(node, FLOATS | INTEGERS, 0)
    want_dtypes(node, {ir.DataType.INT64}, 1, 2)
    if rank(operand(node, 0)) != 3 or rank(node.outputs[0]) < 3:
        raise Unsupported(f"rank {rank(operand(node, 0))}; a batch, channels and columns are needed")
    count = rank(node.outputs[0]) - 2
    for index in (1, 2):
        if dims(operand(node, index)) != (count,):
            raise Unsupported(f"input {index} has {dims(operand(node, index))} elements for {count} axes")
    _lists(node, count)


@loops("Col2Im", check=_check_col2im)
def _col2im(node: ir.Node) -> Iterator[Step]:
    x, y = operand(node, 0), node.outputs[0]
    kernel = Kernel()
    source, target = kernel.read(x), kernel.write(y)
    axes = _col2im_axes(kernel, node)
    summed = _Sum(kernel, y.dtype, axes)
    planes, columns = product(dims(y)[:2]), kernel.dim(dims(x)[2])
    plane, taps = kernel.dim(product(dims(y)[2:])), " * ".join(axis.taps for axis in axes)
    each = f"{ELEMENT}. * {kernel.dim(dims(x)[1])} * {columns} / (1 + {kernel.dim(dims(y)[1])})"
    with kernel.parallel("n", planes, each, product((ELEMENT, *dims(x)))):
        summed.write(f"{source} + n * ({taps}) * {columns}", f"{target} + n * {plane}", "0")
    yield kernel.step()


def _col2im_axes(kernel: Kernel, node: ir.Node) -> list[_Axis]:
    """Declare the numbers of taps and windows, and refuse those that do not make the columns."""
    y = dims(node.outputs[0])
    image, block = (_elements(kernel, operand(node, index)) for index in (1, 2))
    strides, dilations, pads = _lists(node, len(y) - 2)
    kernel.line("int64_t taps = 1, windows = 1;")
    axes: list[_Axis] = []
    for i, out in enumerate(y[2:]):
        size, pad, axis = kernel.dim(out), pads[i] + pads[i + len(y) - 2], f" elements along axis {i}"
        parts = (f"{label(node)}: an image of ", image[i], f"{axis}, for an output of ", size)
        kernel.line(f"if ({image[i]} != {size}) {kernel.fail_with('ValueError', *parts)}")
        few = kernel.fail_with("ValueError", f"{label(node)}: a block of ", block[i], axis)
        kernel.line(f"if ({block[i]} < 1 || {block[i]} > {_LARGEST} || taps > {_LARGEST}) {few}")
        reach = f"({block[i]} - 1) * {dilations[i]} + 1"
        kernel.line(f"const int64_t taps{i} = {block[i]}, room{i} = {size} + {c_expr(pad)} - ({reach});")
        kernel.line(
            f"const int64_t windows{i} = room{i} < 0 ? 0 : room{i} / {strides[i]} + 1;\ntaps *= taps{i};"
        )
        kernel.line(f"if (__builtin_mul_overflow(windows, windows{i}, &windows)) windows = -1;")
        axes.append(_Axis(f"windows{i}", out, f"taps{i}", strides[i], dilations[i], pads[i]))
    _verify_columns(kernel, node)
    return axes


def _verify_columns(kernel: Kernel, node: ir.Node) -> None:
    x, y = operand(node, 0), node.outputs[0]
    batch, rows, count = map(kernel.dim, dims(x))
    planes = kernel.dim(dims(y)[1])
    parts = (
        f"{label(node)}: the image has ", "windows", " windows of ", "taps", " elements; the columns are ",
        rows, " x ", count,
    )  # fmt: skip
    wrong = kernel.fail_with("ValueError", *parts)
    kernel.line(f"if (windows != {count} || {rows} / taps != {planes} || {rows} % taps) {wrong}")
    if not same(dims(x)[0], dims(y)[0]):
        other = kernel.fail("ValueError", f"{label(node)}: the output has another batch")
        kernel.line(f"if ({batch} != {kernel.dim(dims(y)[0])}) {other}")


def _elements(kernel: Kernel, value: ir.Value) -> list[str]:
    """The elements of a small operand, as C."""
    data = constant(value)
    if data is not None:
        return [c_expr(item) for item in data.ravel().tolist()]
    (count,) = dims(value)
    return [f"{kernel.read(value)}[{i}]" for i in range(int(count))]
