"""Convolutions of several images whose planes are small: blocks of images are one matrix.

A plane of 3x3 fills 9 of the 16 or 32 columns that a product computes at once, and each image reads all
weights again. So the windows of several images stand beside each other in one matrix; what the product makes
is then copied to the planes. A block of one image needs no copy of the product, nor of an input that is the
matrix.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from farcall.backends._ctext import itemsize
from farcall.backends.c._gemm import call_gemm, gemm_type, plain_right
from farcall.backends.c._gemm_tile_text import NARROW, PAIRED
from farcall.graph.dims import ceildiv

if TYPE_CHECKING:
    from farcall.backends.c._convolution import Convolution

_MOST_COLUMNS = 256  # of a block

# A product of so many columns takes as long as:
_WEIGHTS = 8  # reading the weights of a product
_ELEMENT = 6  # copying an element, where the product has one row and one step

_VECTOR = 16  # columns that the product computes at once
# Up to so many columns behind the last whole vector take this part of the time of one.
_LAST = ((NARROW, 0.5), (PAIRED, 0.75), (_VECTOR, 1.0))
_GAIN = 0.9  # the part of the time of a product for each image from which it pays


class Joined:
    """Writes the loops of one convolution."""

    def __init__(self, conv: Convolution) -> None:
        self.conv, self.plane = conv, int(conv.out_plane)
        self.each = max(1, _MOST_COLUMNS // self.plane)  # images of a block
        if isinstance(conv.images, int):
            self.each = -(-conv.images // -(-conv.images // self.each))

    @staticmethod
    def is_possible(conv: Convolution) -> bool:
        """Whether there may be several images, of small planes of a fixed size."""
        if not (conv.splits and isinstance(conv.plane, int) and isinstance(conv.out_plane, int)):
            return False
        return conv.images not in (0, 1) and conv.depth > 0 and 0 < 2 * conv.out_plane <= _MOST_COLUMNS

    @property
    def pays(self) -> bool:
        """Whether it is faster than a product for each image. Their number, if it is not known, is large."""
        conv = self.conv
        images = conv.images if isinstance(conv.images, int) else self.each
        blocks, rest = divmod(images, self.each)
        joined = blocks * _cost(self.each * self.plane) + (_cost(rest * self.plane) if rest else 0)
        copied = 1 / conv.depth + (1 / conv.outs if conv.is_plain else 0)
        joined += images * self.plane * _ELEMENT * copied
        return joined <= _GAIN * images * _cost(self.plane)

    def write(self) -> None:
        """Write the loops; threads share the blocks and the output channels."""
        conv, kernel, kind = self.conv, self.conv.kernel, gemm_type(self.conv.dtype)
        assert conv.dtype is not None  # noqa: S101 - checked before
        matrix, made = (
            kernel.scratch(conv.dtype, count * self.each * self.plane) for count in (conv.depth, conv.outs)
        )
        blocks = kernel.dim(ceildiv(conv.images, self.each))
        with ExitStack() as stack:
            are_equal = isinstance(conv.images, int) and conv.images % self.each == 0
            channels = conv.open_blocks(stack, [("g", conv.group), ("block", blocks)], are_equal)
            first, end = channels or ("0", str(conv.outs))
            rest = f"{conv.batch} - block * {self.each}"
            kernel.line(f"const int64_t image = block * {self.each};")
            kernel.line(f"const int64_t image_end = image + ({rest} < {self.each} ? {rest} : {self.each});")
            kernel.line(f"const int64_t columns = (image_end - image) * {self.plane};")
            kernel.line("const int is_one = image_end - image == 1;")
            right, target = self._operands(kind, matrix, made)
            with kernel.loop("n", "image_end", start="image"):
                self._fill(kind, f"({matrix} + (n - image) * {self.plane})")
            sizes, b = [str(conv.outs), "columns", str(conv.depth)], plain_right(conv.dtype, right, "columns")
            c, start = (target, "columns"), conv.start_of_group()
            call_gemm(kernel, conv.dtype, sizes, conv.weights(), b, c, start, rows=channels)
            with kernel.loop("n", "image_end", start="image"):
                self._scatter(kind, made, first, end)

    def _operands(self, kind: str, matrix: str, made: str) -> tuple[str, str]:
        """C of pointers to the matrix of windows, and to the product."""
        conv, kernel = self.conv, self.conv.kernel
        own = f"{conv.y} + (image * {conv.group} + g) * {conv.outs * self.plane}"
        kernel.line(f"{kind}* const target = is_one ? {own} : {made};")
        if not conv.is_plain:
            return matrix, "target"
        source = f"{conv.x} + (image * {conv.group} + g) * {conv.ins * self.plane}"
        kernel.line(f"const {kind}* const right = is_one ? {source} : {matrix};")
        return "right", "target"

    def _fill(self, kind: str, to: str) -> None:
        """Write the columns of image ``n``."""
        conv, kernel = self.conv, self.conv.kernel
        conv.declare_group()
        if conv.is_plain:
            size = self.plane * itemsize(conv.dtype)
            with kernel.loop("c", f"(is_one ? 0 : {conv.ins})"):
                kernel.line(f"memcpy({to} + c * columns, in + c * {self.plane}, {size});")
            return
        kernel.line(f"const int64_t r0 = 0, r1 = {self.plane // int(conv.axes[-1].out)};")
        kernel.line(f"const int64_t o0 = 0, o1 = {int(conv.axes[-1].out)};")
        conv.fill(kind, to, kernel.dim(conv.plane))

    def _scatter(self, kind: str, made: str, first: str, end: str) -> None:
        """Write some output channels of image ``n``, which lie together."""
        conv, kernel = self.conv, self.conv.kernel
        size = self.plane * itemsize(conv.dtype)
        kernel.line(f"const int64_t place = ((n * {conv.group} + g) * {conv.outs} + {first}) * {self.plane};")
        kernel.line(f"{kind}* const group = {conv.y} + place;")
        kernel.line(f"const {kind}* const from = {made} + {first} * columns + (n - image) * {self.plane};")
        with kernel.loop("m", f"(is_one ? 0 : {end} - {first})"):
            kernel.line(f"memcpy(group + m * {self.plane}, from + m * columns, {size});")
        conv.finish("place", f"({end} - {first}) * {self.plane}")


def _cost(columns: int) -> float:
    """What the product of an image, or of a block of images, costs."""
    whole, rest = divmod(columns, _VECTOR)
    last = next(part for most, part in _LAST if rest <= most) if rest else 0
    return _VECTOR * (whole + last) + _WEIGHTS
