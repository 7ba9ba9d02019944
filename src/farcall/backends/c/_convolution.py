"""Convolutions over one or more spatial axes, without Winograd's method.

Many output channels: the input windows of some output rows are copied into a matrix, which is multiplied
(im2col; a 1x1 kernel multiplies the input directly). Few channels in a group (depthwise): one loop over a row
for each tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from math import prod

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import itemsize
from farcall.backends._kernels import HIDDEN
from farcall.backends.c._depthwise_text import depthwise_declaration, depthwise_function, depthwise_kernels
from farcall.backends.c._epilogue import Epilogue
from farcall.backends.c._finished import call_finished
from farcall.backends.c._gemm import (
    ZERO,
    Left,
    Start,
    call_gemm,
    declare_indices,
    gemm_type,
    open_parts,
    packed_left,
    packed_right,
    plain_left,
    plain_right,
)
from farcall.backends.c._gemm_tile_text import GROUP
from farcall.backends.c._joined import Joined
from farcall.backends.c._kernel import Kernel
from farcall.backends.c._node import (
    int_attr,
    operand,
)
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._planes import Planes
from farcall.backends.c._window import (
    Axis,
    axes_of,
    declare_bounds,
    position,
    rows_of_windows,
    tap_number,
    taps_of_row,
)
from farcall.graph.dims import Dim, ceildiv, dims, product

_FEW_CHANNELS = 4  # fewer output channels in a group than this do not fill a tile of the matrix product
_COLUMNS = 128  # fewest columns of the matrix, unless the output has fewer
_MOST_COLUMNS = 256  # most columns, if they are of several output rows
_BLOCKS = {"windows": _MOST_COLUMNS, "narrow windows": 96, "wide windows": 512}  # most columns of a way
_LONG = 512  # most columns of one output row
_CHANNELS = 4 * GROUP  # output channels of a part that one thread may compute: whole tiles of the product
_EVEN_CHANNELS = 2 * GROUP  # the same, of a share that a thread takes at once
_FINISHED = 2048  # results of small planes that are finished in one loop
_AHEAD = 4  # small planes that are copied before the first of them is read
_COPIED = 2048  # elements of their copies
_TILE = 32  # columns that the matrix product computes at once


class Convolution:
    """Writes one convolution. ``x``, ``w``, ``b`` (if not empty) and ``y`` point to elements of ``dtype``."""

    x: str
    w: str
    b: str = ""
    y: str
    packed: np.ndarray | None = None  # the weights, if they are a constant
    when = ""  # C: whether this kernel computes it, where there are two; empty: always
    epilogue: Epilogue | None = None  # what becomes of each element of the result
    splits = False  # whether the kernel does nothing else, so that threads may share its loops

    def __init__(self, node: ir.Node, dtype: ir.DataType | None, weight: int = 1) -> None:
        x, w = operand(node, 0), operand(node, weight)
        self.input, self.weight = x, w
        self.dtype = dtype
        self.axes = axes_of(node, dims(w)[2:])
        self.group = int_attr(node, "group", 1)
        self.outs, self.ins = int(dims(w)[0]) // self.group, int(dims(w)[1])  # channels of one group
        self.by_matrix = self.outs >= _FEW_CHANNELS
        self.taps = prod(axis.taps for axis in self.axes)
        self.depth = self.ins * self.taps
        self.kernel = Kernel()
        self.images = dims(x)[0]
        self.batch = self.kernel.dim(self.images)
        self.plane = product(axis.size for axis in self.axes)
        self.out_plane = product(axis.out for axis in self.axes)

    @property
    def ways(self) -> list[str]:
        """The ways to compute it, by the names of :meth:`write`; the first is usually the fastest."""
        if self.outs == 0:
            return ["nothing"]
        if self._sees_whole_images():
            return ["rows"]
        if self.by_matrix:
            windows = [name for name, most in _BLOCKS.items() if self._blocks_differ(most)]
            ways = ["matrix", *windows] if self.is_plain else windows
            if not Joined.is_possible(self):
                return ways
            return ["joined images", *ways] if Joined(self).pays else [*ways, "joined images"]
        return ["planes", "taps"] if self.ins == 1 and Planes.possible(self.axes) else ["taps"]

    def write(self, way: str = "") -> None:
        """Write the loops of the whole convolution, by one of :attr:`ways`; default: the first."""
        way = way or self.ways[0]
        if way == "rows":
            self._by_rows()
        elif way == "matrix":
            self._by_matrix()
        elif way == "joined images":
            Joined(self).write()
        elif way in _BLOCKS:
            self._windows(_BLOCKS[way])
        elif way == "planes":
            self._by_planes()
        elif way == "taps":
            self._direct()

    @property
    def is_plain(self) -> bool:
        """Whether the input is the matrix of windows: a 1x1 kernel that reads every element once."""
        return all(axis.plain for axis in self.axes)

    def _blocks_differ(self, most: int) -> bool:
        """Whether so many columns make other blocks than the usual number."""
        rows, width = product(axis.out for axis in self.axes[:-1]), self.axes[-1].out
        usual = _block_rows(width, rows, _MOST_COLUMNS)
        return most == _MOST_COLUMNS or _block_rows(width, rows, most) != usual

    def finish(self, first: str, count: str) -> None:
        """Write what becomes of ``count`` results from ``first`` on, if there is anything."""
        if self.epilogue is not None:
            self.epilogue.write(self.kernel, first, count)

    def _start(self) -> None:
        """Initialize one output plane with its bias."""
        value = f"{self.b}[m]" if self.b else "0"
        with self.kernel.loop("s", self.kernel.dim(self.out_plane)):
            self.kernel.line(f"out[s] = {value};")

    def _direct(self) -> None:
        kernel, axes = self.kernel, self.axes
        kind = gemm_type(self.dtype)
        channels = self.group * self.outs
        with self._planes("p", self.images * channels, self.depth * self.out_plane):
            kernel.line(f"const int64_t n = p / {channels}, m = p % {channels};")
            plane, out_plane = kernel.dim(self.plane), kernel.dim(self.out_plane)
            first = f"n * {self.group} + m / {self.outs}"
            kernel.line(f"{kind}* restrict out = {self.y} + (n * {channels} + m) * {out_plane};")
            self._start()
            with kernel.loop("c", str(self.ins)), rows_of_windows(kernel, axes) as row:
                kernel.line(f"const {kind}* in = {self.x} + (({first}) * {self.ins} + c) * {plane};")
                kernel.line(f"const {kind}* w = {self.w} + (m * {self.ins} + c) * {self.taps};")
                kernel.line(f"{kind}* line = out + {row};")
                with taps_of_row(kernel, axes) as start:
                    kernel.line(
                        f"const {kind} factor = w[{tap_number(axes)}];\nconst {kind}* from = in + {start};"
                    )
                    with kernel.loop("o", "hi", start="lo"):
                        kernel.line(f"line[o] += factor * from[{_strided('o', axes[-1])}];")
            self.finish(f"(n * {channels} + m) * {out_plane}", out_plane)

    def _planes(self, name: str, count: Dim, cost: Dim) -> AbstractContextManager[None]:
        """The loop over planes, which threads share if they may."""
        return self.kernel.parallel(name, count, cost) if self.splits else self.kernel.loop(name, count)

    def _by_planes(self) -> None:
        """Depthwise: a group has one input channel."""
        kernel, planes = self.kernel, Planes(self.axes)
        kind = gemm_type(self.dtype)
        assert self.dtype is not None  # noqa: S101 - checked before
        kernel.uses(depthwise_kernels(kind, itemsize(self.dtype), planes.geometry))
        kernel.file_scope(depthwise_declaration(kind, planes.geometry).replace("HIDDEN", HIDDEN) + ";")
        ahead = max(1, min(_AHEAD, _COPIED // planes.elements)) if planes.is_whole else 1
        copies = kernel.scratch(self.dtype, ahead * planes.elements)
        planes.clear(kernel, copies, ahead)
        many = max(1, _FINISHED // max(1, self.outs * int(self.out_plane))) if planes.is_whole else 1
        cost = many * (self.outs * self.taps * self.out_plane + ELEMENT * self.plane)
        made = f"{self.outs} * {kernel.dim(self.out_plane)}"
        groups = self.images * self.group
        with self._planes("part", ceildiv(groups, many), cost):
            kernel.line(f"const int64_t g0 = part * {many}, rest = {kernel.dim(groups)} - g0;")
            kernel.line(f"const int64_t g1 = g0 + (rest < {many} ? rest : {many});")
            with kernel.loop("h", "g1", start="g0", step=ahead):
                kernel.line(f"const int64_t h1 = g1 - h < {ahead} ? g1 : h + {ahead};")
                self._some_planes(planes, copies, ahead, f"g1 * {made} - place")
            if planes.is_whole:
                self.finish(f"g0 * {made}", f"(g1 - g0) * {made}")

    def _some_planes(self, planes: Planes, copies: str, ahead: int, room: str) -> None:
        """Planes ``h`` to ``h1``. Several small ones are copied before the first is read: a vector that is
        read right after its parts were written waits for them.
        """
        kernel, source = self.kernel, f"({self.x} + g * {self.kernel.dim(self.plane)})"
        copy = f"({copies} + (g - h) * {planes.elements})" if ahead > 1 else copies
        with ExitStack() as stack:
            stack.enter_context(kernel.loop("g", "h1", start="h"))
            stack.enter_context(planes.blocks(kernel))
            planes.fill(kernel, gemm_type(self.dtype), copy, source)
            if ahead > 1:
                stack.close()
                stack.enter_context(kernel.loop("g", "h1", start="h"))
                stack.enter_context(planes.blocks(kernel))
            stack.enter_context(kernel.loop("m", str(self.outs)))
            self._rows_of_plane(planes, copy, room)

    def _rows_of_plane(self, planes: Planes, copy: str, room: str) -> None:
        """Write the outputs of a block of rows. Behind whole planes, there is ``room`` for elements, which
        are made later.
        """
        kernel, kind = self.kernel, gemm_type(self.dtype)
        width, out_plane = int(self.axes[-1].out), kernel.dim(self.out_plane)
        kernel.line(f"const int64_t channel = g % {self.group} * {self.outs} + m;")
        kernel.line(f"const int64_t place = (g * {self.outs} + m) * {out_plane} + r0 * {width};")
        given = (
            f"{self.w} + channel * {self.taps}", f"{self.b}[channel]" if self.b else "0", copy,
            str(planes.pitch), str(planes.area), "count", str(width), f"{self.y} + place",
            room if planes.is_whole else f"{out_plane} - r0 * {width}",
        )  # fmt: skip
        kernel.line(f"{depthwise_function(kind, planes.geometry)}({', '.join(given)});")
        if not planes.is_whole:
            self.finish("place", f"count * {width}")

    def _sees_whole_images(self) -> bool:
        """Whether the weights are constant, and one window is the whole image."""
        return (
            self.packed is not None
            and self.splits
            and self.group == 1
            and all(axis.size == axis.taps and axis.out == axis.dilation == 1 for axis in self.axes)
            and all(axis.begin == axis.end == 0 for axis in self.axes)
        )

    def _by_rows(self) -> None:
        """Images are rows, output channels columns: weights are read once, in order, for a few images."""
        kernel, depth = self.kernel, str(self.depth)
        assert self.packed is not None  # noqa: S101 - _sees_whole_images
        right = packed_right(kernel, self.packed.reshape(self.outs, self.depth).T)
        start = Start(self.b, "0", "1") if self.b else ZERO
        with ExitStack() as stack:
            sizes = [self.batch, str(self.outs), depth]
            left, target = plain_left(self.x, depth), (self.y, str(self.outs))
            shape = self.images, self.outs, self.depth
            parts = open_parts(kernel, stack, self.dtype, shape, left, right)
            call_finished(kernel, self.dtype, sizes, left, right, target, start, parts, self.epilogue)

    def _by_matrix(self) -> None:
        groups, plane = [("n", self.images), ("g", self.group)], self.kernel.dim(self.plane)
        with ExitStack() as stack:
            if not self.splits:
                for name, count in groups:
                    stack.enter_context(self.kernel.loop(name, count))
                self.declare_group()
                self._multiply("in", plane, ("group", plane))
                return
            a, b = self.weights(), plain_right(self.dtype, "in", plane)
            parts = open_parts(
                self.kernel, stack, self.dtype, (self.outs, self.plane, self.depth), a, b, groups
            )
            self.declare_group()
            sizes, start = [str(self.outs), plane, str(self.depth)], self.start_of_group()
            target, before = ("group", plane), f"(n * {self.group} + g) * {self.outs}"
            call_finished(self.kernel, self.dtype, sizes, a, b, target, start, parts, self.epilogue, before)

    def declare_group(self) -> None:
        """Declare pointers to the planes of group ``g`` of image ``n``, in the output and in the input."""
        kernel, kind = self.kernel, gemm_type(self.dtype)
        plane, out_plane = kernel.dim(self.plane), kernel.dim(self.out_plane)
        kernel.line(f"{kind}* const group = {self.y} + (n * {self.group} + g) * {self.outs} * {out_plane};")
        kernel.line(f"const {kind}* const in = {self.x} + (n * {self.group} + g) * {self.ins} * {plane};")

    def _multiply(
        self,
        columns: str,
        width: str,
        target: tuple[str, str],
        rows: tuple[str, str] | None = None,
    ) -> None:
        sizes = [str(self.outs), width, str(self.depth)]
        b = plain_right(self.dtype, columns, width)
        start = self.start_of_group()
        call_gemm(self.kernel, self.dtype, sizes, self.weights(), b, target, start, rows=rows)

    def start_of_group(self) -> Start:
        return Start(f"{self.b} + g * {self.outs}", "1", "0") if self.b else ZERO

    def weights(self) -> Left:
        """The weights of group ``g``: a row for each output channel."""
        if self.packed is not None:
            matrices = self.packed.reshape(self.group, self.outs, self.depth)
            return packed_left(self.kernel, matrices, "g")
        return plain_left(f"{self.w} + g * {self.outs * self.depth}", str(self.depth))

    def _windows(self, most_columns: int) -> None:
        with ExitStack() as stack:
            self._blocks_of_windows(stack, most_columns)

    def _blocks_of_windows(self, stack: ExitStack, most_columns: int) -> None:
        """Blocks of whole output rows, or of a part of one long row, and of the output channels."""
        kernel, kind = self.kernel, gemm_type(self.dtype)
        assert self.dtype is not None  # noqa: S101 - checked before
        rows, width = product(axis.out for axis in self.axes[:-1]), self.axes[-1].out
        fixed = _block_rows(width, rows, most_columns)
        most = fixed * min(width, _LONG) if isinstance(width, int) else _LONG
        matrix = kernel.scratch(self.dtype, self.depth * most)
        last, long = kernel.dim(rows), kernel.dim(width)
        block = str(fixed)
        if not isinstance(width, int):
            block = f"({long} > 0 && {long} < {_COLUMNS} ? {_COLUMNS} / {long} : 1)"
        blocks = (f"(({last} + {block} - 1) / {block})", f"(({long} + {_LONG - 1}) / {_LONG})")
        places: list[tuple[str, Dim | str]] = [
            ("n", self.images), ("g", self.group), ("row_block", blocks[0]), ("part_of_row", blocks[1])
        ]  # fmt: skip
        are_equal = isinstance(width, int) and width <= _LONG and isinstance(rows, int) and rows % fixed == 0
        channels = self.open_blocks(stack, places, are_equal)
        kernel.line(f"const int64_t block = {block}, r0 = row_block * block, o0 = part_of_row * {_LONG};")
        kernel.line(f"const int64_t r1 = {last} - r0 < block ? {last} : r0 + block;")
        kernel.line(f"const int64_t o1 = {long} - o0 < {_LONG} ? {long} : o0 + {_LONG};")
        kernel.line("const int64_t columns = (r1 - r0) * (o1 - o0);")
        self.declare_group()
        plane, out_plane = kernel.dim(self.plane), kernel.dim(self.out_plane)
        self.fill(kind, matrix, plane)
        self._multiply(matrix, "columns", (f"group + r0 * {long} + o0", out_plane), rows=channels)
        if self.epilogue is not None:
            first, end = channels or ("0", str(self.outs))
            with kernel.loop("m", end, start=first):
                row = f"((n * {self.group} + g) * {self.outs} + m) * {out_plane}"
                self.finish(f"{row} + r0 * {long} + o0", "columns")

    def open_blocks(
        self, stack: ExitStack, places: Sequence[tuple[str, Dim | str]], are_equal: bool
    ) -> tuple[str, str] | None:
        """Open the loop over all blocks, and declare the variables that number them, given with their counts.

        A thread makes the matrix of a block once for all of its channels that are in one part of the loop: if
        all blocks ``are_equal``, so that shares are, it takes its share at once.

        Returns:
            C of the first and the end of the output channels; None: all.
        """
        kernel = self.kernel
        most = _EVEN_CHANNELS if are_equal else _CHANNELS
        parts = -(-self.outs // most) if self.splits else 1
        blocks = " * ".join(count if isinstance(count, str) else kernel.dim(count) for _, count in places)
        total = f"({self.when} ? {blocks} * {parts} : 0)" if self.when else f"{blocks} * {parts}"
        begin, end = "0", total
        if self.splits:
            work = product((self.images, self.group, self.outs, self.depth, self.out_plane))
            images = f"{self.batch} * {self.group}"
            each = f"{min(self.outs, most)}. * {self.depth} * {kernel.dim(self.out_plane)}"
            cost = f"{each} * (double)({images}) / (double)(1 + {blocks})"
            begin, end = kernel.split(total, cost, work, at_once=are_equal)
        stack.enter_context(kernel.block(f"for (int64_t part = {begin}, next; part < {end}; part = next)"))
        kernel.line(f"const int64_t first = part % {parts};")
        kernel.line(f"next = part - first + {parts} < {end} ? part - first + {parts} : {end};")
        declare_indices(kernel, f"part / {parts}", places)
        if parts == 1:
            return None
        kernel.line(f"int64_t m1 = (next - part + first) * {most};")
        kernel.line(f"m1 = m1 < {self.outs} ? m1 : {self.outs};")
        return f"first * {most}", "m1"

    def fill(self, kind: str, matrix: str, plane: str) -> None:
        """Write row ``(c, k0, k1, ...)`` of the matrix: the elements that the windows read by that tap."""
        kernel, last = self.kernel, self.axes[-1]
        is_fixed = last.is_fixed and int(last.out) <= _LONG
        looped = self.axes[:-1] if is_fixed else self.axes
        with ExitStack() as stack:
            stack.enter_context(kernel.loop("c", str(self.ins)))
            for i, axis in enumerate(looped):
                stack.enter_context(kernel.loop(f"k{i}", str(axis.taps)))
            if not is_fixed:
                declare_bounds(kernel, last, f"k{len(looped) - 1}")
                kernel.line("lo = lo < o0 ? o0 : lo > o1 ? o1 : lo;\nhi = hi < lo ? lo : hi > o1 ? o1 : hi;")
            row = f"c * {prod(axis.taps for axis in looped)} + {tap_number(looped) if looped else 0}"
            rows = last.taps if is_fixed else 1
            kernel.line(f"{kind}* restrict to = {matrix} + ({row}) * {rows} * columns;")
            stack.enter_context(kernel.block("for (int64_t r = r0; r < r1; ++r, to += o1 - o0)"))
            outside, place = self._source_row()
            source = f"in + c * {plane} + ({place}) * {kernel.dim(last.size)}"
            if is_fixed:
                self._fill_fixed(kind, outside, source)
                return
            if outside:
                kernel.line(f"if ({outside}) {{ memset(to, 0, (size_t)(o1 - o0) * sizeof *to); continue; }}")
            kernel.line(f"const {kind}* const from = {source} + shift;")
            for start, end, value in (
                ("o0", "lo", "0"),
                ("lo", "hi", f"from[{_strided('o', last)}]"),
                ("hi", "o1", "0"),
            ):
                kernel.line(f"for (int64_t o = {start}; o < {end}; ++o) to[o - o0] = {value};")

    def _fill_fixed(self, kind: str, outside: str, source: str) -> None:
        """Write what the taps of the last axis read of one row of the input, where all sizes are numbers."""
        kernel, last = self.kernel, self.axes[-1]
        out = int(last.out)
        if outside:
            zeros = " ".join(
                f"memset({_plus('to', k, 'columns')}, 0, {out} * sizeof *to);" for k in range(last.taps)
            )
            kernel.line(f"if ({outside}) {{ {zeros} continue; }}")
        kernel.line(f"const {kind}* const from = {source};")
        for k in range(last.taps):
            lo, hi = last.inside(k)
            first = lo * last.stride + k * last.dilation - int(last.begin)
            row = _plus("to", k, "columns")
            for at, count in ((0, lo), (hi, out - hi)):
                if count:
                    kernel.line(f"memset({_plus(row, at)}, 0, {count} * sizeof *to);")
            if last.stride == 1 and lo < hi:
                kernel.line(f"memcpy({_plus(row, lo)}, {_plus('from', first)}, {hi - lo} * sizeof *to);")
            elif lo < hi:
                element = f"from[{first} + o * {last.stride}]"
                kernel.line(f"for (int64_t o = 0; o < {hi - lo}; ++o) ({_plus(row, lo)})[o] = {element};")

    def _source_row(self) -> tuple[str, str]:
        """C: whether the tap of output row ``r`` is outside the input, and else which input row it reads."""
        kernel, outer = self.kernel, self.axes[:-1]
        outside: list[str] = []
        place = "0"
        for i, axis in enumerate(outer):
            index = _unflatten(kernel, outer, i)
            kernel.line(f"const int64_t y{i} = {position(kernel, axis, index, f'k{i}')};")
            outside.append(f"y{i} < 0 || y{i} >= {kernel.dim(axis.size)}")
            place = f"y{i}" if i == 0 else f"({place}) * {kernel.dim(axis.size)} + y{i}"
        return " || ".join(outside), place


def _unflatten(kernel: Kernel, axes: Sequence[Axis], i: int) -> str:
    """The index on axis ``i`` of the row-major position ``r``."""
    behind: Dim = product(axis.out for axis in axes[i + 1 :])
    text = "r" if behind == 1 else f"r / {kernel.dim(behind)}"
    return f"({text})" if i == 0 else f"({text}) % {kernel.dim(axes[i].out)}"


def _block_rows(width: Dim, rows: Dim, most_columns: int) -> int:
    """How many output rows make the columns of one matrix: as few partly filled tiles as possible."""
    if not isinstance(width, int) or not width:
        return 1
    most = max(1, most_columns // width)
    if not isinstance(rows, int):
        return max(1, _COLUMNS // width)
    return min(range(1, most + 1), key=lambda count: _tiles(count * width, rows * width))


def _tiles(block: int, whole: int) -> float:
    """Tiles of the matrix product for blocks of so many columns; each block costs a little more."""
    blocks, rest = divmod(whole, block)
    return blocks * (-(-block // _TILE) + 0.25) + (-(-rest // _TILE) + 0.25 if rest else 0)


def _strided(index: str, axis: Axis) -> str:
    return index if axis.stride == 1 else f"{index} * {axis.stride}"


def _plus(pointer: str, count: int, of: str = "") -> str:
    """C: a pointer moved by ``count`` elements, or by so many times ``of``."""
    return f"{pointer} + {count}{f' * {of}' if of else ''}" if count else pointer
