"""Convolutions of bytes by constant weights: windows are copied four of K at a time, and multiplied.

The weights are the left, signed operand, a row for each output channel. If there is padding, each group of
input planes is first copied with its zero point around it, so that windows need no bounds. Four planes become
one of words, if their number allows it: K then runs over four planes, and windows are rows of these words.

The zero point is part of the sums: it times the sum of a channel's weights is subtracted, once for each
channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import onnx_ir as ir

from farcall.backends.c._bytes import TOGGLE, words
from farcall.backends.c._bytes_conv_text import HEIGHT, SCALE, conv_source
from farcall.backends.c._bytes_text import COLUMNS, COMMON, STEP
from farcall.backends.c._convolution import Convolution
from farcall.backends.c._gemm import declare_indices
from farcall.backends.c._node import constant
from farcall.backends.c._pairs_text import pairs_source
from farcall.backends.c._parallel import ELEMENT
from farcall.graph.dims import Dim, ceildiv, product

_D = ir.DataType
_BYTES = 1 << 18  # of a matrix of windows
_FEWEST, _MOST = 64, 512  # columns of it, unless the output has fewer
_UNITS, _LEAST = 8, 32  # parts of the work that threads can share, and output channels of one


def _equal(count: int, most: int) -> int:
    """The size of parts, of ``most`` at most, that are almost equal, so that threads get equal shares."""
    return -(-count // -(-count // most))


def has_byte_weights(conv: Convolution, zero: ir.Value | None) -> bool:
    """Whether weights are constant, have no zero point as signed bytes, and are enough to fill tiles."""
    zeros = weight_zeros(conv, zero)
    return zeros is not None and not zeros.any() and conv.by_matrix


def weight_zeros(conv: Convolution, zero: ir.Value | None) -> np.ndarray | None:
    """The zero points of constant weights as signed bytes, one or one for each output channel.

    None: the weights or the zero points are no constants, or the padding is negative.
    """
    data, origin = constant(conv.weight), None if zero is None else constant(zero)
    if data is None or not data.size or (zero is not None and origin is None):
        return None
    pads = [pad for axis in conv.axes for pad in (axis.begin, axis.end)]
    if any(isinstance(pad, int) and pad < 0 for pad in pads):
        return None
    move = 0 if data.dtype == np.int8 else TOGGLE
    return np.zeros(1, np.int64) - move if origin is None else origin.astype(np.int64).ravel() - move


def byte_weights(conv: Convolution) -> np.ndarray:
    """The weights as signed numbers (output channels, inputs of a window)."""
    data = constant(conv.weight)
    assert data is not None  # noqa: S101 - weight_zeros was asked before
    move = 0 if data.dtype == np.int8 else TOGGLE
    return data.astype(np.int32).reshape(-1, conv.depth) - move


def start_of_channels(
    conv: Convolution,
    values: tuple[ir.Value | None, ir.Value | None],
    flip: int,
    more: int,
    zeros: np.ndarray | int = 0,
) -> str:
    """What the sums of each channel begin with: the bias less the zero point's part; ``more`` can be read.

    ``values`` are the input's zero point and the bias; ``flip`` is toggled in the input. ``zeros`` are those
    of the weights.
    """
    kernel, sums = conv.kernel, byte_weights(conv).sum(1, np.int64) - conv.depth * zeros
    none = np.zeros(1, np.int64)
    given = [none if value is None else constant(value) for value in values]
    if all(item is not None for item in given):
        zero, bias = (item.astype(np.int64).ravel() for item in given if item is not None)
        data = words(np.broadcast_to(bias, sums.shape) - (zero + flip) * sums, len(sums) + more)
        return kernel.table(data)
    made = kernel.scratch(_D.UINT32, len(sums) + more)
    table = kernel.table(words(sums, len(sums)))
    origin, bias_of = (None if value is None else kernel.read(value) for value in values)
    zero_part = f"(uint32_t)*{origin}" if origin else "0"
    bias_part = f"(uint32_t){bias_of}[m]" if bias_of else "0"
    with kernel.loop("m", str(len(sums))):
        kernel.line(f"{made}[m] = {bias_part} - ({zero_part} + {flip}u) * {table}[m];")
    return made


class ByteConvolution:
    """Writes the loops of one convolution.

    Args:
        conv: Its geometry and its kernel.
        x: The input and its zero point.
        bias: A word for each output channel, or None.
    """

    def __init__(self, conv: Convolution, x: tuple[ir.Value, ir.Value | None], bias: ir.Value | None) -> None:
        self.conv, self.kernel = conv, conv.kernel
        self.value, self.zero = x
        self.bias = bias
        self.fours = -(-conv.depth // STEP)
        self.flip = TOGGLE if self.value.dtype == _D.INT8 else 0
        self.whole = all(axis.plain for axis in conv.axes)  # rows need not be told apart
        # Each word of the copy has the bytes of four planes, so that windows are rows of words.
        self.by_words = conv.taps > 1 and conv.ins % STEP == 0
        self.is_padded = self.by_words or any(axis.begin != 0 or axis.end != 0 for axis in conv.axes)
        self.sizes = [axis.size + axis.begin + axis.end for axis in conv.axes]
        self.kernel.file_scope(COMMON)
        self.kernel.file_scope(pairs_source())
        self.kernel.file_scope(SCALE)
        self.kernel.file_scope(conv_source())

    def write(self, y: str, scale: str = "0", first: str = "0") -> None:
        """Write the result to ``y``: sums, or bytes, if ``scale`` points to a ``farcall_bytes_scale``.

        ``first`` is the index of the factor of the channel ``channel``.
        """
        conv, kernel = self.conv, self.kernel
        weights, row = self._weights(), start_of_channels(conv, (self.zero, self.bias), self.flip, HEIGHT)
        offsets = self._offsets()
        width, rows, block = self._blocks()
        most = min(block * width, _MOST) if isinstance(width, int) and block == 1 else _MOST
        most = block * width if isinstance(width, int) and block > 1 else most
        columns = -(-most // COLUMNS) * COLUMNS + COLUMNS
        matrix = kernel.scratch(_D.UINT32, self.fours * columns)
        planes, word = (conv.ins // STEP, _D.UINT32) if self.by_words else (conv.ins, _D.UINT8)
        copy = kernel.scratch(word, product((planes, *self.sizes))) if self.is_padded else ""
        source = f"((const uint8_t*){kernel.read(self.value)})"
        plane, out_plane = kernel.dim(conv.plane), kernel.dim(conv.out_plane)
        if self.is_padded:
            kernel.line("int64_t padded = -1;  /* the planes that the copy has */")
        kernel.line("int64_t filled = -1;  /* the block whose windows the matrix has */")
        with self._each_block(width, rows, block):
            kernel.line(f"const uint8_t* in = {source} + (n * {conv.group} + g) * {conv.ins} * {plane};")
            if self.is_padded:
                with kernel.block(f"if (padded != n * {conv.group} + g)"):
                    self._pad(copy)
                    kernel.line(f"padded = n * {conv.group} + g;")
            if self.is_padded and not self.by_words:
                kernel.line(f"in = {copy};")
            with kernel.block("if (filled != columns_block)"):
                self._fill(offsets, matrix, width, copy)
                kernel.line("filled = columns_block;")
            kernel.line(f"const int64_t channel = g * {conv.outs} + m0;")
            outs = conv.group * conv.outs
            place = f"(n * {outs} + channel) * {out_plane} + r0 * {kernel.dim(width)} + o0"
            size = "sizeof(uint32_t)" if scale == "0" else "1"
            left = f"{weights} + (g * {self._tall} + m0) * {self.fours * STEP}"
            kernel.line(
                f"farcall_bytes_conv(channels, columns, {self.fours}, {left}, {matrix}, 4 * length, "
                f"{row} + channel, {scale}, {first}, {y} + {place}, {out_plane} * (int64_t){size});"
            )

    @property
    def _tall(self) -> int:
        """The rows of a group's packed weights."""
        return -(-self.conv.outs // HEIGHT) * HEIGHT

    # ---- constants ----

    def _weights(self) -> str:
        matrix = byte_weights(self.conv)
        if self.by_words:
            parts = matrix.reshape(len(matrix), self.conv.ins // STEP, STEP, self.conv.taps)
            matrix = parts.transpose(0, 1, 3, 2).reshape(len(matrix), -1)
        group, outs = self.conv.group, self.conv.outs
        data = np.zeros((group, self._tall, self.fours * STEP), np.int8)
        data[:, :outs, : self.conv.depth] = matrix.reshape(group, outs, -1)
        parts = data.reshape(group, -1, HEIGHT, self.fours, STEP).transpose(0, 1, 3, 2, 4)
        return self.kernel.table(np.ascontiguousarray(parts))

    def _offsets(self) -> str:
        """Where a window's element, or word, of each index of K is in the planes, from the first one on."""
        kernel, conv = self.kernel, self.conv
        count, planes = (self.fours, conv.ins // STEP) if self.by_words else (self.fours * STEP, conv.ins)
        made = kernel.scratch(_D.INT64, count)
        kernel.line(f"for (int64_t k = {planes * conv.taps}; k < {count}; ++k) {made}[k] = 0;")
        with ExitStack() as stack:
            stack.enter_context(kernel.loop("c", str(planes)))
            place, number = f"c * {kernel.dim(product(self.sizes))}", "c"
            for i, axis in enumerate(conv.axes):
                stack.enter_context(kernel.loop(f"k{i}", str(axis.taps)))
                place += f" + k{i} * {axis.dilation} * {kernel.dim(product(self.sizes[i + 1 :]))}"
                number = f"({number}) * {axis.taps} + k{i}"
            kernel.line(f"{made}[{number}] = {place};")
        return made

    # ---- blocks of columns ----

    def _blocks(self) -> tuple[Dim, Dim, int]:
        """The columns of a row of the output, the number of rows, and how many rows make a block."""
        conv = self.conv
        if self.whole:
            return conv.out_plane, 1, 1
        width, rows = conv.axes[-1].out, product(axis.out for axis in conv.axes[:-1])
        wanted = max(_FEWEST, min(_MOST, _BYTES // (self.fours * STEP)))
        block = max(1, wanted // width) if isinstance(width, int) and width else 1
        return width, rows, _equal(rows, block) if isinstance(rows, int) and rows else block

    @contextmanager
    def _each_block(self, width: Dim, rows: Dim, block: int) -> Iterator[None]:
        """The loop over blocks of rows, or over parts of a long row, of each group; threads share it.

        Parts of the output channels are innermost: a thread uses a block's windows for several of them.
        """
        kernel, conv = self.kernel, self.conv
        total, long = kernel.dim(rows), kernel.dim(width)
        part = self._part(width) if block == 1 else width
        counts = (ceildiv(rows, block), ceildiv(width, part) if part != 0 else 0)
        places = (conv.images, conv.group, *counts)
        channels = self._channels(places)
        parts = ceildiv(conv.outs, channels)
        cost = product((channels, self.fours + ELEMENT, block, part))
        with kernel.parallel("block", product((*places, parts)), cost, at_once=True):
            names = ("n", "g", "row_block", "row_part", "channel_part")
            declare_indices(kernel, "block", list(zip(names, (*places, parts), strict=True)))
            kernel.line(f"const int64_t columns_block = block / {parts}, m0 = channel_part * {channels};")
            rest = f"{conv.outs} - m0"
            kernel.line(f"const int64_t channels = {rest} < {channels} ? {rest} : {channels};")
            kernel.line(f"const int64_t r0 = row_block * {block}, o0 = row_part * {kernel.dim(part)};")
            kernel.line(f"const int64_t r1 = {total} - r0 < {block} ? {total} : r0 + {block};")
            kernel.line(
                f"const int64_t width = {long} - o0 < {kernel.dim(part)} ? {long} - o0 : {kernel.dim(part)};"
            )
            kernel.line("const int64_t columns = (r1 - r0) * width;")
            kernel.line(
                f"const int64_t length = (columns + {COLUMNS - 1}) / {COLUMNS} * {COLUMNS} | {COLUMNS};"
            )
            yield

    @staticmethod
    def _part(width: Dim) -> int:
        """The columns of parts of a row, which are whole vectors."""
        return -(-_equal(width, _MOST) // COLUMNS) * COLUMNS if isinstance(width, int) and width else _MOST

    def _channels(self, places: Sequence[Dim]) -> int:
        """The output channels of an iteration: fewer than all, if there are few blocks of columns."""
        known = math.prod(count for count in places if isinstance(count, int))
        wanted = ceildiv(_UNITS, max(known, 1))
        return max(_LEAST, ceildiv(ceildiv(self.conv.outs, wanted), HEIGHT) * HEIGHT)

    def _fill(self, offsets: str, matrix: str, width: Dim, copy: str) -> None:
        """Write the windows of a block: four of K of each column are one word."""
        kernel, conv = self.kernel, self.conv
        last = conv.axes[-1]
        flip = f"0x{self.flip * 0x01010101:08x}u"
        with kernel.loop("r", "r1", start="r0"):
            terms = [f"o0 * {last.stride}"]
            for i, axis in enumerate(conv.axes[:-1] if not self.whole else []):
                behind: Dim = product(one.out for one in conv.axes[i + 1 : -1])
                index = f"(r / {kernel.dim(behind)})" + (f" % {kernel.dim(axis.out)}" if i else "")
                terms.append(f"{index} * {axis.stride} * {kernel.dim(product(self.sizes[i + 1 :]))}")
            if self.by_words:
                kernel.line(f"const uint32_t* const from = {copy} + {' + '.join(terms)};")
                with kernel.loop("k", str(self.fours)):
                    to = f"{matrix} + k * length + (r - r0) * width"
                    kernel.line(f"farcall_bytes_words(width, {last.stride}, from + {offsets}[k], {to});")
                return
            kernel.line(f"const uint8_t* const from = in + {' + '.join(terms)};")
            with kernel.loop("k", str(self.fours)):
                four = ", ".join(f"from + {offsets}[4 * k + {i}]" for i in range(STEP))
                to = f"{matrix} + k * length + (r - r0) * width"
                kernel.line(f"farcall_bytes_four(width, {last.stride}, {four}, {flip}, {to});")

    def _pad(self, copy: str) -> None:
        """Copy the planes of a group, to which ``in`` points, with the zero point around each."""
        kernel, conv = self.kernel, self.conv
        axes, last = conv.axes, len(conv.axes) - 1
        planes = conv.ins // STEP if self.by_words else conv.ins
        origin = f"*{kernel.read(self.zero)}" if self.zero is not None else "0"
        count = kernel.dim(product((planes, *self.sizes)))
        flip = f"0x{self.flip * 0x01010101:08x}u"
        if self.by_words:
            kernel.line(f"const uint32_t around = (uint32_t)(uint8_t){origin} * 0x01010101u ^ {flip};")
            kernel.line(f"for (int64_t i = 0; i < {count}; ++i) {copy}[i] = around;")
        else:
            kernel.line(f"memset({copy}, (uint8_t){origin}, (size_t)({count}));")
        with ExitStack() as stack:
            stack.enter_context(kernel.loop("c", str(planes)))
            source, target = "c * 4" if self.by_words else "c", "c"
            for i, axis in enumerate(axes[:-1]):
                stack.enter_context(kernel.loop(f"i{i}", kernel.dim(axis.size)))
                source = f"({source}) * {kernel.dim(axis.size)} + i{i}"
                target = f"({target}) * {kernel.dim(self.sizes[i])} + i{i} + {kernel.dim(axis.begin)}"
            size = kernel.dim(axes[last].size)
            to = f"{copy} + ({target}) * {kernel.dim(self.sizes[last])} + {kernel.dim(axes[last].begin)}"
            if self.by_words:
                plane = kernel.dim(conv.plane)
                kernel.line(f"const uint8_t* const from = in + ({source}) * {size};")
                four = ", ".join(f"from + {i} * {plane}" for i in range(STEP))
                kernel.line(f"farcall_bytes_four({size}, 1, {four}, {flip}, {to});")
            else:
                kernel.line(f"memcpy({to}, in + ({source}) * {size}, (size_t)({size}));")
