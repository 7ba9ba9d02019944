"""Convolutions of bytes whose channels lie together: those of :mod:`farcall.backends.c._channels_last`.

Pixels of the output are rows of a matrix product, its channels are columns. With a 1x1 kernel the input is
the left operand; other windows are copied, a row of a window at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from farcall.backends.c._bytes import TOGGLE, byte_panels, words
from farcall.backends.c._bytes_conv import byte_weights, start_of_channels, weight_zeros
from farcall.backends.c._bytes_conv_text import SCALE
from farcall.backends.c._bytes_text import COLUMNS, COMMON, LOW, STEP, TALL, bytes_source
from farcall.backends.c._channels_last_nodes import made_here
from farcall.backends.c._channels_last_text import WINDOWS, product_source
from farcall.backends.c._convolution import Convolution
from farcall.backends.c._epilogue import Epilogue
from farcall.backends.c._kernel import Step
from farcall.backends.c._node import operand
from farcall.backends.c._packed import DOMAIN
from farcall.backends.c._pairs_text import pairs_source
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._qlinear import channel_scales
from farcall.backends.c._quantized import zero_point
from farcall.backends.c._registry import finishing, loops
from farcall.graph.dims import Dim, ceildiv, minimum, product

_D = ir.DataType
_NAME = f"{DOMAIN}::QLinearConv"
_WIDE = 2 * COLUMNS  # columns of a tile
_WINDOWS, _RESULTS = 1 << 18, 1 << 17  # bytes of the rows, and of the results, that are in the caches at once
_FEWEST = 4 * TALL  # rows of such a block


@loops(_NAME, check=made_here)
def _emit(node: ir.Node) -> Iterator[Step]:
    yield _Writer(node, None).step()


@finishing(_NAME, when=lambda node, epilogue: True)
def _finish(node: ir.Node, epilogue: Epilogue) -> Iterator[Step]:
    yield _Writer(node, epilogue).step()


class _Writer:
    """Writes the kernel of one convolution."""

    def __init__(self, node: ir.Node, epilogue: Epilogue | None) -> None:
        self.conv = Convolution(node, _D.UINT32, weight=3)
        self.node, self.epilogue, self.kernel = node, epilogue, self.conv.kernel
        self.output = node.outputs[0] if epilogue is None else epilogue.output
        self.zero, self.bias = zero_point(node, 2), zero_point(node, 8)
        self.rows: Dim = product((self.conv.images, self.conv.out_plane))
        self.fours = ceildiv(self.conv.depth, STEP)
        self.flip = TOGGLE if operand(node, 0).dtype == _D.INT8 else 0
        zeros = weight_zeros(self.conv, zero_point(node, 5))
        assert zeros is not None  # noqa: S101 - asked before the node was made
        self.zeros = np.broadcast_to(zeros, self.conv.outs)
        plain = all(axis.plain for axis in self.conv.axes)
        self.direct = plain and not self.flip and self.conv.depth % STEP == 0
        self.by_columns = self._has_few_rows()

    def _has_few_rows(self) -> bool:
        """Whether threads share the channels rather than the pixels: so each reads a part of the weights."""
        most = self.conv.outs if self.direct else 2 * _FEWEST
        return isinstance(self.rows, int) and self.rows <= most

    def step(self) -> Step:
        kernel, conv = self.kernel, self.conv
        for text in (COMMON, pairs_source(), bytes_source(), SCALE, product_source(), WINDOWS):
            kernel.file_scope(text)
        source = f"((const uint8_t*){kernel.read(operand(self.node, 0))})"
        target = f"((uint8_t*){kernel.write(self.output)})"
        weights = kernel.table(self._weights())
        start = start_of_channels(conv, (self.zero, self.bias), self.flip, _WIDE, self.zeros)
        scale, _ = channel_scales(conv, self.node, _WIDE, spread=True)
        self._declare_part()
        kernel.line("scale.factors += column;")
        block = self._block()
        with kernel.loop("row", "row_end", start="first_row", step=block):
            kernel.line(f"const int64_t rows = row_end - row < {block} ? row_end - row : {block};")
            left = f"{source} + row * {conv.depth}" if self.direct else self._windows(source, block)
            zeros, sums = self._sums_of_rows(left, block)
            kernel.line(
                f"farcall_bytes_last(rows, columns, {self.fours}, {left}, {self.fours * STEP}, "
                f"{weights} + column * {self.fours * STEP}, {start} + column, {zeros}, {sums}, {scale}, "
                f"{target} + row * {conv.outs} + column, {conv.outs});"
            )
            self._finish_block()
        return kernel.step()

    def _weights(self) -> np.ndarray:
        """Columns of weights: in a column, the input channels of the first tap, of the second, and so on."""
        conv = self.conv
        taps_last = byte_weights(conv).reshape(conv.outs, conv.ins, conv.taps)
        return byte_panels(taps_last.transpose(2, 1, 0).reshape(conv.depth, conv.outs))

    def _declare_part(self) -> None:
        """Declare the rows and columns of a thread."""
        kernel, outs, rows = self.kernel, self.conv.outs, self.kernel.dim(self.rows)
        unit, shared, other = (_WIDE, outs, self.rows) if self.by_columns else (LOW, self.rows, outs)
        cost = product((unit, other, self.fours + ELEMENT))
        begin, end = kernel.split(ceildiv(shared, unit), cost, at_once=True)
        last = kernel.dim(shared)
        kernel.line(f"const int64_t first = {begin} * {unit};")
        kernel.line(f"const int64_t last = {end} * {unit} < {last} ? {end} * {unit} : {last};")
        if self.by_columns:
            kernel.line(f"const int64_t first_row = 0, row_end = {rows};")
            kernel.line("const int64_t column = first, columns = last - first;")
        else:
            kernel.line(f"const int64_t first_row = first, row_end = last, column = 0, columns = {outs};")

    def _block(self) -> int:
        """The rows that are multiplied before they are finished: whole tiles, in equal blocks."""
        fitting = min(_WINDOWS // (self.fours * STEP), _RESULTS // self.conv.outs)
        most = max(_FEWEST, fitting // TALL * TALL)
        if not isinstance(self.rows, int) or self.rows == 0:
            return most
        each = -(-self.rows // -(-self.rows // most))
        return min(most, -(-each // TALL) * TALL)

    def _windows(self, source: str, block: int) -> str:
        """Copy the windows of a block; returns where they are."""
        kernel, conv = self.kernel, self.conv
        width = self.fours * STEP
        matrix = kernel.scratch(_D.UINT8, minimum(self.rows, block) * width)
        y, x = conv.axes
        numbers = [
            str(conv.ins), *(kernel.dim(dim) for dim in (y.size, x.size, y.out, x.out)),
            *(str(number) for number in (y.taps, x.taps, y.stride, x.stride, y.dilation, x.dilation)),
            kernel.dim(y.begin), kernel.dim(x.begin),
        ]  # fmt: skip
        kernel.line(f"const struct farcall_windows windows = {{{', '.join(numbers)}}};")
        around = f"(uint8_t)*{kernel.read(self.zero)}" if self.zero is not None else "0"
        kernel.line(
            f"farcall_window_rows(&windows, {source}, row, rows, {around}, {self.flip}, {width}, {matrix});"
        )
        return matrix

    def _sums_of_rows(self, left: str, block: int) -> tuple[str, str]:
        """The weights' zero points, and the sum of each row of the left operand, by which they count."""
        if not self.zeros.any():
            return "0", "0"
        kernel = self.kernel
        zeros = kernel.table(words(self.zeros, self.conv.outs + _WIDE))
        sums = kernel.scratch(_D.UINT32, minimum(self.rows, block))
        kernel.line(f"farcall_row_sums(rows, {self.fours * STEP}, {left}, {sums});")
        return f"{zeros} + column", sums

    def _finish_block(self) -> None:
        """Write what becomes of the results of a block, if there is anything."""
        if self.epilogue is None:
            return
        kernel, outs = self.kernel, self.conv.outs
        if not self.by_columns:
            self.epilogue.write(kernel, f"row * {outs}", f"rows * {outs}")
            return
        with kernel.loop("r", "row + rows", start="row"):
            self.epilogue.write(kernel, f"r * {outs} + column", "columns", "column")
