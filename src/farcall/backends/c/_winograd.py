"""Convolutions of 3x3 windows by Winograd's method, which has a fourth to a half of the products.

The inputs of some rows of tiles, perhaps of several images, are transformed, then multiplied by the weights,
which are transformed when the model is built: a product of matrices for each input of a tile. The results
are transformed back.

Axes before the last two have any windows: each of their taps is an input channel of its own, and each of
their outputs an image, called a slice.

Each output differs from the exact one by at most ``(channels + 32) * 2**-24 * amplification * 9 * channels
* max|x| * max|w|``, and usually by ``(10 + sqrt(channels)) * 2**-24`` of their standard deviation.
An infinity or NaN spreads over the tiles that read it. The backend's option ``winograd=False`` turns it off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from farcall.backends.c._gemm import ZERO, Groups, Left, Right, call_gemm, fill_groups
from farcall.backends.c._gemm_tile_text import GROUP
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._thin_text import Layout
from farcall.backends.c._window import position
from farcall.backends.c._winograd_matrices import transform
from farcall.backends.c._winograd_text import PANEL, Tile, transform_calls, transform_kernels
from farcall.graph.dims import Dim, ceildiv

if TYPE_CHECKING:
    from farcall.backends.c._convolution import Convolution

_TILES = (Tile(4), Tile(2))
_FEWEST = 8  # channels, in and out: with fewer, the transforms take the time
_MOST_TILES = 64  # of a block
_ELEMENTS = 1 << 19  # of the transformed inputs and outputs of a block: 2 MB stay in a cache
_ENABLED: ContextVar[bool] = ContextVar("winograd", default=True)

# What things cost, in multiply-adds of the product of matrices.
_WEIGHT = 8  # reading a weight
_FAR_WEIGHT = 12  # reading one of more weights than stay in the caches
_IN, _OUT = {2: 70, 4: 300}, {2: 50, 4: 200}  # transforming the inputs or outputs of a tile
_WINDOW = 6  # copying an element of a window
_GAIN = 0.9  # the part of the cost of windows from which it pays
_PART = 2 * GROUP  # output channels that a thread may compute: whole tiles of the product
_COLUMNS = 8  # that the product of matrices computes at once
_CACHED_WEIGHTS = 6 << 20  # so many, 24 MB, stay in the caches
_MANY = 64  # images, where their number is not known


@contextmanager
def winograd(enabled: bool) -> Iterator[None]:
    """Whether convolutions that are written meanwhile may use Winograd's method."""
    token = _ENABLED.set(enabled)
    try:
        yield
    finally:
        _ENABLED.reset(token)


class Winograd:
    """Writes the loops of one convolution by tiles."""

    def __init__(self, conv: Convolution, tile: Tile) -> None:
        self.conv, self.kernel, self.tile = conv, conv.kernel, tile
        self.outer, self.axes = conv.axes[:-2], conv.axes[-2:]
        self.height, self.width = (int(axis.size) for axis in self.axes)
        self.out_height, self.out_width = (int(axis.out) for axis in self.axes)
        self.ins = conv.ins * prod(axis.taps for axis in self.outer)
        self.slices = prod(int(axis.out) for axis in self.outer)  # of an image
        self.down, self.across = (-(-size // tile.outputs) for size in (self.out_height, self.out_width))
        self.total: Dim = conv.images * self.slices * self.down  # rows of tiles
        self.rows = self._rows()
        self.wide = -(-self.rows * self.across // PANEL) * PANEL  # tiles of a block, in whole panels
        # The matrices begin at different places of the caches.
        self.v_step, self.m_step = (count * self.wide + PANEL for count in (self.ins, conv.outs))

    @staticmethod
    def ways(conv: Convolution) -> list[tuple[Winograd, int | None]]:
        """Each size of tiles, the better one first, with the number of images from which on it is worth it.

        None: never. Empty: Winograd's method cannot compute ``conv``.
        """
        if not (_ENABLED.get() and _is_possible(conv)):
            return []
        images = int(conv.images) if isinstance(conv.images, int) else _MANY
        large, small = (Winograd(conv, tile) for tile in _TILES)
        if large.cost(images) < small.cost(images):
            return [(large, large._first(images, small)), (small, small._first(images))]
        return [(small, small._first(images)), (large, large._first(images))]

    @property
    def name(self) -> str:
        """Of the way, for choices."""
        return f"winograd {self.tile.outputs}"

    def _first(self, images: int, other: Winograd | None = None) -> int | None:
        """From how many of ``images`` on it is better than windows, and than another size of tiles."""
        counts = range(images if isinstance(self.conv.images, int) else 1, images + 1)
        windows = _GAIN * _cost_of_windows(self.conv)
        for count in counts:
            limit = min(count * windows, other.cost(count) if other else math.inf)
            if self.cost(count) < limit:
                return 1 if count == counts.start else count
        return None

    def cost(self, images: int) -> float:
        """Of so many images, in multiply-adds."""
        conv, tile = self.conv, self.tile
        down = images * self.slices * self.down
        blocks, rest = divmod(down, self.rows)
        filled = blocks * _filled(self.rows * self.across) + _filled(rest * self.across)
        moved = self.ins * _IN[tile.outputs] + conv.outs * _OUT[tile.outputs]
        each = tile.products * self.ins * conv.outs
        read = (blocks + (rest > 0)) * self._weight_cost()
        return conv.group * (each * (filled + read) + down * self.across * moved)

    def _rows(self) -> int:
        """The rows of tiles in a block."""
        channels = self.ins + self.conv.outs
        most = min(_MOST_TILES, _ELEMENTS // (self.tile.products * channels)) // self.across
        if isinstance(self.total, int):
            most = min(most, self.total)
        return min(range(1, max(1, most) + 1), key=self._cost_of_blocks)

    def _cost_of_blocks(self, rows: int) -> float:
        """What all tiles cost in blocks of so many rows; a row, where their number is not known."""
        if not isinstance(self.total, int):
            return self._cost_of_block(rows) / rows
        blocks, rest = divmod(self.total, rows)
        return blocks * self._cost_of_block(rows) + (self._cost_of_block(rest) if rest else 0)

    def _cost_of_block(self, rows: int) -> int:
        return -(-rows * self.across // PANEL) * PANEL + self._weight_cost()

    def _weight_cost(self) -> int:
        return _cost_of_weight(self.conv.group * self.tile.products * self.ins * self.conv.outs)

    def steps(self) -> Iterator[Step]:
        """Write the loops.

        If all tiles are one block, a step of its own transforms the inputs: threads that share the products
        of a block would each do it.
        """
        conv, kernel, tile = self.conv, self.kernel, self.tile
        for one in (kernel, first := Kernel()):
            one.file_scope(transform_calls(tile))
            one.uses(transform_kernels(tile))
        if conv.group == 1 and isinstance(self.total, int) and self.total <= self.rows:
            shape = ir.Shape([tile.products * self.v_step])
            made = ir.Value(name="tiles", type=ir.TensorType(ir.DataType.FLOAT), shape=shape)
            self._transform_inputs(first, made)
            yield first.step()
            self._multiply_in_parts(kernel.read(made))
        else:
            self._each_block()
        yield kernel.step()

    def _transform_inputs(self, kernel: Kernel, made: ir.Value) -> None:
        """Threads share the channels of the only block."""
        conv, tile = self.conv, self.tile
        x, to = kernel.read(conv.input), kernel.write(made)
        window = self._window(kernel)
        cost = self.total * self.across * (_IN[tile.outputs] + ELEMENT * tile.products)
        self._declare_block(kernel, "0")
        kernel.line("const int64_t g = 0;")
        with kernel.parallel("c", self.ins, cost):
            self._transform_channel(kernel, x, window, to)

    def _multiply_in_parts(self, made: str) -> None:
        """Threads share the output channels of the only block."""
        conv, kernel = self.conv, self.kernel
        window, sums = self._window(kernel), self._sums()
        weights = self._weights()
        cost = _PART * self.ins * self.tile.products * self.wide
        begin, end = kernel.split(ceildiv(conv.outs, _PART), cost)
        self._declare_block(kernel, "0")
        kernel.line(f"const int64_t g = 0, m0 = {begin} * {_PART};")
        kernel.line(f"const int64_t m1 = {end} * {_PART} < {conv.outs} ? {end} * {_PART} : {conv.outs};")
        self._multiply(made, weights, sums, window, ("m0", "m1"))

    def _each_block(self) -> None:
        """Threads share the blocks; those that share the channels of one transform its inputs each."""
        conv, kernel = self.conv, self.kernel
        made = kernel.scratch(ir.DataType.FLOAT, self.tile.products * self.v_step)
        window, sums = self._window(kernel), self._sums()
        weights = self._weights()
        places: list[tuple[str, Dim | str]] = [
            ("g", conv.group),
            ("block", kernel.dim(ceildiv(self.total, self.rows))),
        ]
        are_equal = isinstance(self.total, int) and self.total % self.rows == 0
        with ExitStack() as stack:
            channels = conv.open_blocks(stack, places, are_equal) or ("0", str(conv.outs))
            self._declare_block(kernel, f"block * {self.rows}")
            with kernel.loop("c", str(self.ins)):
                self._transform_channel(kernel, conv.x, window, made)
            self._multiply(made, weights, sums, window, channels)

    def _window(self, kernel: Kernel) -> str:
        """Memory for what tiles read, or make, of one channel."""
        size = self.tile.products * self.wide
        window = kernel.scratch(ir.DataType.FLOAT, size)
        kernel.line(f"memset({window}, 0, {size} * sizeof *{window});")
        return window

    def _sums(self) -> str:
        return self.kernel.scratch(ir.DataType.FLOAT, self.tile.products * self.m_step)

    def _declare_block(self, kernel: Kernel, first: str) -> None:
        """Declare the rows of tiles from ``first`` on, and the number of their tiles."""
        rows = kernel.dim(self.total)
        kernel.line(f"const int64_t r0 = {first};")
        kernel.line(f"const int64_t r1 = {rows} - r0 < {self.rows} ? {rows} : r0 + {self.rows};")
        kernel.line(f"const int64_t tiles = (r1 - r0) * {self.across};")

    def _transform_channel(self, kernel: Kernel, x: str, window: str, made: str) -> None:
        self._gather(kernel, x, window)
        kernel.line(
            f"farcall_winograd{self.tile.outputs}_in(tiles, {window}, {self.wide}, "
            f"{made} + c * {PANEL}, {self.v_step}, {self.ins * PANEL});"
        )

    def _multiply(self, made: str, weights: Left, sums: str, window: str, channels: tuple[str, str]) -> None:
        """Write the products, and the outputs of some channels."""
        conv, kernel, tile = self.conv, self.kernel, self.tile
        with kernel.loop("p", str(tile.products)):
            b = Right(f"{made} + p * {self.v_step}", str(PANEL), str(PANEL * self.ins), Layout.PANELS)
            c = (f"{sums} + p * {self.m_step}", str(self.wide))
            sizes = [str(conv.outs), "tiles", str(self.ins)]
            call_gemm(kernel, conv.dtype, sizes, weights, b, c, ZERO, rows=channels)
        with kernel.loop("m", channels[1], start=channels[0]):
            bias = f"{conv.b}[g * {conv.outs} + m]" if conv.b else "0"
            kernel.line(
                f"farcall_winograd{tile.outputs}_out(tiles, {sums} + m * {self.wide}, {self.m_step}, {bias}, "
                f"{window}, {self.wide});"
            )
            self._scatter(window)

    def _weights(self) -> Left:
        """The transformed weights of product ``p`` of group ``g``."""
        conv, tile = self.conv, self.tile
        assert conv.packed is not None  # noqa: S101 - _is_possible
        packed = Groups((conv.group * tile.products, conv.outs, self.ins), np.dtype(np.float32))
        taps = np.zeros((conv.group, *packed.data.shape[1:], 9), np.float32)
        fill_groups(taps, conv.packed.reshape(conv.group, conv.outs, self.ins, 9))
        for data, place in zip(taps, np.split(packed.data, conv.group), strict=True):
            transform(tile, data, place)
        return packed.left(self.kernel, f"g * {tile.products} + p")

    @contextmanager
    def _each_row(self, kernel: Kernel) -> Iterator[None]:
        """Open the loop over rows of tiles: ``b`` is the number of the first tile in the block."""
        with kernel.block(f"for (int64_t r = r0, b = 0; r < r1; ++r, b += {self.across})"):
            first = f"y0 = r % {self.down} * {self.tile.outputs}"
            if self.outer:
                kernel.line(f"const int64_t slice = r / {self.down}, n = slice / {self.slices}, {first};")
            else:
                kernel.line(f"const int64_t n = r / {self.down}, {first};")
            yield

    def _gather(self, kernel: Kernel, x: str, window: str) -> None:
        """Write what tiles read of channel ``c``: elements that have one place in a tile are together."""
        tile = self.tile
        outs, side, across = tile.outputs, tile.inputs, self.across
        top, left = (int(axis.begin) for axis in self.axes)
        # The tiles that read only elements of the plane. The others are at its borders.
        first = -(-left // outs)
        end = max(first, min(across, (self.width + left - side) // outs + 1))
        with self._each_row(kernel):
            place, outside = self._place(kernel)
            kernel.line(f"const float* const plane = {x} + ({place}) * {self.height * self.width};")
            with kernel.loop("i", str(side)):
                kernel.line(f"const int64_t y = y0 + i - {top};")
                kernel.line(f"float* restrict to = {window} + i * {side * self.wide} + b;")
                with kernel.block(f"if (y < 0 || y >= {self.height}{outside})"):
                    kernel.line(f"for (int64_t j = 0; j < {side}; ++j)")
                    kernel.line(f"  memset(to + j * {self.wide}, 0, {across} * sizeof *to);")
                    kernel.line("continue;")
                kernel.line(f"const float* const from = plane + y * {self.width};")
                for low, high in ((0, outs), (outs, side)) if first < end else ():
                    moves = " ".join(
                        f"to[{j * self.wide} + t] = from[t * {outs} + {j - left}];" for j in range(low, high)
                    )
                    kernel.line(f"for (int64_t t = {first}; t < {end}; ++t) {{ {moves} }}")
                for t in (*range(first), *range(end, across)):
                    self._gather_at_border(kernel, t, left)

    def _place(self, kernel: Kernel) -> tuple[str, str]:
        """C: which plane of the input is channel ``c``, and a condition that is true where it is outside."""
        taps = prod(axis.taps for axis in self.outer)
        channel = "c" if taps == 1 else f"c / {taps}"
        place, outside = f"(n * {self.conv.group} + g) * {self.conv.ins} + {channel}", ""
        for i, axis in enumerate(self.outer):
            output, tap = (
                f"{name} / {prod(behind)} % {own}"
                for name, own, behind in (
                    ("slice", axis.out, [int(other.out) for other in self.outer[i + 1 :]]),
                    ("c", axis.taps, [other.taps for other in self.outer[i + 1 :]]),
                )
            )
            kernel.line(f"const int64_t z{i} = {position(kernel, axis, output, tap)};")
            place = f"({place}) * {axis.size} + z{i}"
            outside += f" || z{i} < 0 || z{i} >= {axis.size}"
        return place, outside

    def _gather_at_border(self, kernel: Kernel, t: int, left: int) -> None:
        """Write what tile ``t`` reads of a row, which has zeros in front of it and behind it."""
        outs = self.tile.outputs
        for j in range(self.tile.inputs):
            at = t * outs + j - left
            element = f"from[{at}]" if 0 <= at < self.width else "0"
            kernel.line(f"to[{j * self.wide + t}] = {element};")

    def _scatter(self, window: str) -> None:
        """Write the outputs of channel ``m``; the last tiles may reach beyond the plane."""
        kernel, conv, tile = self.kernel, self.conv, self.tile
        outs, whole = tile.outputs, self.out_width // tile.outputs
        channel = f"((n * {conv.group} + g) * {conv.outs} + m)"
        if self.outer:
            channel = f"({channel} * {self.slices} + slice % {self.slices})"
        image = f"{conv.y} + {channel} * {self.out_height * self.out_width}"
        with self._each_row(kernel):
            kernel.line(f"float* const plane = {image};")
            kernel.line(f"const int64_t left = {self.out_height} - y0;")
            with kernel.loop("i", f"(left < {outs} ? left : {outs})"):
                kernel.line(f"float* restrict to = plane + (y0 + i) * {self.out_width};")
                kernel.line(f"const float* restrict from = {window} + i * {outs * self.wide} + b;")
                moves = " ".join(f"to[t * {outs} + {j}] = from[{j * self.wide} + t];" for j in range(outs))
                kernel.line(f"for (int64_t t = 0; t < {whole}; ++t) {{ {moves} }}")
                for j in range(self.out_width - whole * outs):
                    kernel.line(f"to[{whole * outs + j}] = from[{j * self.wide + whole}];")
        if conv.epilogue is None:
            return
        # In a loop of its own: CPUs wait where a vector is loaded of which parts were stored just before.
        with self._each_row(kernel):
            kernel.line(f"const int64_t left = {self.out_height} - y0;")
            place = f"{channel} * {self.out_height * self.out_width} + y0 * {self.out_width}"
            conv.finish(place, f"(left < {outs} ? left : {outs}) * {self.out_width}")


def _is_possible(conv: Convolution) -> bool:
    """Whether the last two axes are a 3x3 convolution of planes, of fixed sizes and by constant weights."""
    if conv.packed is None or conv.dtype != ir.DataType.FLOAT or not conv.splits or len(conv.axes) < 2:
        return False
    numbers = [n for axis in conv.axes for n in (axis.size, axis.out, axis.begin, axis.end)]
    return (
        min(conv.ins, conv.outs) >= _FEWEST
        and all(axis.taps == 3 and axis.stride == axis.dilation == 1 for axis in conv.axes[-2:])
        and all(isinstance(number, int) and number >= 0 for number in numbers)
        and all(axis.size != 0 and axis.out != 0 for axis in conv.axes)
    )


def _cost_of_windows(conv: Convolution) -> float:
    """What an image costs as a product of a matrix of windows."""
    outputs = int(conv.out_plane)
    read = _cost_of_weight(conv.group * conv.depth * conv.outs)
    return conv.group * conv.depth * (_filled(outputs) * conv.outs + outputs * _WINDOW + conv.outs * read)


def _cost_of_weight(count: int) -> int:
    """What reading one of so many weights costs."""
    return _WEIGHT if count <= _CACHED_WEIGHTS else _FAR_WEIGHT


def _filled(columns: int) -> int:
    """The columns that the product of matrices computes."""
    return -(-columns // _COLUMNS) * _COLUMNS
