"""The geometry of convolution and pooling, and the loop skeleton that both share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import onnx_ir as ir

from farcall.backends.c._kernel import Kernel
from farcall.backends.c._node import Unsupported, ints_attr, operand, str_attr
from farcall.graph.dims import Dim, ceildiv, dims, floordiv, maximum

_FEW_TAPS = 16


@dataclass(frozen=True)
class Axis:
    """A spatial axis: ``out`` windows of ``taps`` elements, ``dilation`` apart, at ``o * stride - begin``."""

    size: Dim
    out: Dim
    taps: int
    stride: int
    dilation: int
    begin: Dim
    end: Dim

    @property
    def plain(self) -> bool:
        """Whether each output reads only the input element at the same position."""
        return self.taps == 1 and self.stride == 1 and self.begin == 0 and self.end == 0

    @property
    def is_fixed(self) -> bool:
        """Whether all is a number, of few taps: code can be written for each tap."""
        return self.taps <= _FEW_TAPS and all(
            isinstance(number, int) for number in (self.size, self.out, self.begin)
        )

    def inside(self, tap: int) -> tuple[int, int]:
        """The first and the end of the windows whose tap reads an element, of an axis of fixed sizes."""
        shift, out = tap * self.dilation - int(self.begin), int(self.out)
        low, high = (min(max(0, -(at // self.stride)), out) for at in (shift, shift - int(self.size)))
        return min(low, high), high


def axes_of(node: ir.Node, taps: Sequence[Dim]) -> list[Axis]:
    """The spatial axes of a Conv or pool.

    Raises:
        Unsupported: An attribute has the wrong number of entries, or the kernel's size is not fixed.
    """
    sizes, outs = dims(operand(node, 0))[2:], dims(node.outputs[0])[2:]
    count = len(sizes)
    strides = ints_attr(node, "strides", [1] * count)
    dilations = ints_attr(node, "dilations", [1] * count)
    pads = ints_attr(node, "pads", [0] * (2 * count))
    if not (len(taps) == len(strides) == len(dilations) == count and len(pads) == 2 * count):
        raise Unsupported("strides, dilations, pads and kernel_shape must name every spatial axis")
    auto = str_attr(node, "auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(f"auto_pad={auto}")
    axes: list[Axis] = []
    for i in range(count):
        extent = taps[i]
        if not isinstance(extent, int):
            raise Unsupported("the kernel's size is not fixed")
        begin, end = _pads(auto, sizes[i], extent, strides[i], dilations[i], (pads[i], pads[i + count]))
        axes.append(Axis(sizes[i], outs[i], extent, strides[i], dilations[i], begin, end))
    return axes


def _pads(
    auto: str, size: Dim, taps: int, stride: int, dilation: int, given: tuple[int, int]
) -> tuple[Dim, Dim]:
    if auto == "VALID":
        return 0, 0
    if auto == "NOTSET":
        return given
    total = maximum((ceildiv(size, stride) - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
    half = floordiv(total, 2)
    return (half, total - half) if auto == "SAME_UPPER" else (total - half, half)


def tap_offset(kernel: Kernel, axis: Axis, tap: str) -> str:
    """The position on the input's axis of tap ``tap`` of window 0."""
    scaled = tap if axis.dilation == 1 else f"{tap} * {axis.dilation}"
    return scaled if axis.begin == 0 else f"{scaled} - {kernel.dim(axis.begin)}"


def position(kernel: Kernel, axis: Axis, out: str, tap: str) -> str:
    """The position on the input's axis that window ``out`` reads by tap ``tap``."""
    moved = out if axis.stride == 1 else f"{out} * {axis.stride}"
    return f"{moved} + {tap_offset(kernel, axis, tap)}"


def declare_bounds(kernel: Kernel, axis: Axis, tap: str) -> None:
    """Declare ``lo``, ``hi``: on the last axis, the tap of window ``o`` is inside if ``lo <= o < hi``."""
    size, out, stride = kernel.dim(axis.size), kernel.dim(axis.out), axis.stride
    kernel.line(f"const int64_t shift = {tap_offset(kernel, axis, tap)};")
    if stride == 1:
        kernel.line(f"int64_t lo = shift < 0 ? -shift : 0, hi = {size} - shift;")
    else:
        kernel.line(f"int64_t lo = shift < 0 ? (-shift + {stride - 1}) / {stride} : 0;")
        kernel.line(f"int64_t hi = {size} > shift ? ({size} - shift + {stride - 1}) / {stride} : 0;")
    kernel.line(f"if (hi > {out}) hi = {out};")
    kernel.line("if (lo > hi) lo = hi > 0 ? hi : 0;")


@contextmanager
def rows_of_windows(kernel: Kernel, axes: Sequence[Axis]) -> Iterator[str]:
    """Open loops over the outer output axes ``o0, o1, ...``; yields the offset of the output row."""
    with ExitStack() as stack:
        row = "0"
        for i, axis in enumerate(axes[:-1]):
            stack.enter_context(kernel.loop(f"o{i}", kernel.dim(axis.out)))
            row = f"o{i}" if i == 0 else f"({row}) * {kernel.dim(axis.out)} + o{i}"
        yield f"({row}) * {kernel.dim(axes[-1].out)}"


@contextmanager
def taps_of_row(kernel: Kernel, axes: Sequence[Axis]) -> Iterator[str]:
    """Open loops over the taps ``k0, k1, ...`` that are inside the input on all outer axes.

    Inside, ``lo`` and ``hi`` bound the windows of the row, and window ``o`` reads the input plane at
    ``<yielded text> + o * stride``.
    """
    with ExitStack() as stack:
        plane = "0"
        for i, axis in enumerate(axes[:-1]):
            stack.enter_context(kernel.loop(f"k{i}", str(axis.taps)))
            kernel.line(f"const int64_t y{i} = {position(kernel, axis, f'o{i}', f'k{i}')};")
            kernel.line(f"if (y{i} < 0 || y{i} >= {kernel.dim(axis.size)}) continue;")
            plane = f"y{i}" if i == 0 else f"({plane}) * {kernel.dim(axis.size)} + y{i}"
        last = len(axes) - 1
        stack.enter_context(kernel.loop(f"k{last}", str(axes[-1].taps)))
        declare_bounds(kernel, axes[-1], f"k{last}")
        yield f"({plane}) * {kernel.dim(axes[-1].size)} + shift"


def tap_number(axes: Sequence[Axis]) -> str:
    """The index of the current tap in a row-major kernel."""
    text = "k0"
    for i, axis in enumerate(axes[1:], start=1):
        text = f"({text}) * {axis.taps} + k{i}"
    return text
