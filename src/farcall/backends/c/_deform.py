"""DeformConv: a convolution that reads its input at positions which offsets move."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import onnx_ir as ir

from farcall.backends._ctext import FLOATS, c_type
from farcall.backends.c._conv import check_shapes
from farcall.backends.c._elements import verify_same, want_same
from farcall.backends.c._gemm import ZERO, Start, call_gemm, plain_left, plain_right
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._nest import shared
from farcall.backends.c._node import Unsupported, has_input, int_attr, operand, want_dtypes
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._registry import loops
from farcall.backends.c._sampling import Sample
from farcall.backends.c._window import axes_of
from farcall.graph.dims import Dim, dims, product

_TILE = 64  # output elements whose columns are multiplied at once


def _shapes(node: ir.Node) -> dict[str, tuple[tuple[Dim, ...], tuple[Dim, ...]]]:
    """The operands after the weight that are given: name -> their dims, and what these must be."""
    x, w, out = (dims(value) for value in (operand(node, 0), operand(node, 1), node.outputs[0]))
    taps = product(w[2:])
    groups = int_attr(node, "offset_group", 1)
    wanted: dict[int, tuple[str, tuple[Dim, ...]]] = {
        2: ("the offsets", (x[0], groups * taps * (len(x) - 2), *out[2:])),
        3: ("the bias", w[:1]),
        4: ("the mask", (x[0], groups * taps, *out[2:])),
    }
    return {
        name: (dims(operand(node, index)), shape)
        for index, (name, shape) in wanted.items()
        if has_input(node, index)
    }


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    check_shapes(node)
    operand(node, 2)
    channels, groups = dims(operand(node, 0))[1], int_attr(node, "offset_group", 1)
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        raise Unsupported(f"{channels} channels are not divided by offset_group={groups}")
    for name, (given, wanted) in _shapes(node).items():
        want_same(name, given, wanted)


@loops("DeformConv", check=_check)
def _deform_conv(node: ir.Node) -> Iterator[Step]:
    """Copy the samples of a tile of output elements into a matrix, by which the weights are multiplied."""
    x, w, out = operand(node, 0), operand(node, 1), node.outputs[0]
    kernel = Kernel()
    writer = _Columns(kernel, node)
    for name, (given, wanted) in _shapes(node).items():
        verify_same(kernel, node, name, given, wanted)
    q, weight = kernel.write(out), kernel.read(w)
    bias = kernel.read(operand(node, 3)) if has_input(node, 3) else ""
    group = int_attr(node, "group", 1)
    outs, depth = int(dims(w)[0]) // group, int(product(dims(w)[1:]))
    total = kernel.dim(product(dims(out)[2:]))
    cost = _TILE * group * (outs + ELEMENT) * depth
    with shared(kernel, [("n", dims(x)[0], 1), ("first", product(dims(out)[2:]), _TILE)], cost):
        kernel.line(f"const int64_t tile = {total} - first < {_TILE} ? {total} - first : {_TILE};")
        writer.write()
        with kernel.loop("g", str(group)):
            target = f"{q} + (n * {group * outs} + g * {outs}) * {total} + first"
            call_gemm(
                kernel,
                out.dtype,
                (str(outs), "tile", str(depth)),
                plain_left(f"{weight} + g * {outs * depth}", str(depth)),
                plain_right(out.dtype, f"{writer.columns} + g * {depth * _TILE}", str(_TILE)),
                (target, total),
                Start(f"{bias} + g * {outs}", "1", "0") if bias else ZERO,
            )
    yield kernel.step()


class _Columns:
    """Writes the matrix of samples: a row for each channel and tap, a column for each output element."""

    def __init__(self, kernel: Kernel, node: ir.Node) -> None:
        x, w, out = operand(node, 0), operand(node, 1), node.outputs[0]
        self.kernel, self.kind = kernel, c_type(x.dtype)
        self.axes = axes_of(node, dims(w)[2:])
        self.taps = prod(axis.taps for axis in self.axes)
        self.channels, self.groups = int(dims(x)[1]), int_attr(node, "offset_group", 1)
        self.x, self.offsets = kernel.read(x), kernel.read(operand(node, 2))
        self.mask = kernel.read(operand(node, 4)) if has_input(node, 4) else ""
        self.plane = kernel.dim(product(dims(x)[2:]))
        self.total = kernel.dim(product(dims(out)[2:]))
        sizes = list(map(kernel.dim, dims(x)[2:]))
        self.sample = Sample(kernel, "linear", "zeros", True, self.kind, self.kind, sizes)
        self.sample.keep(_TILE)
        assert x.dtype is not None  # noqa: S101 - checked before
        self.columns = kernel.scratch(x.dtype, self.channels * self.taps * _TILE)

    def write(self) -> None:
        """Write the columns of output elements ``first`` to ``first + tile`` of image ``n``."""
        kernel, shared = self.kernel, self.channels // self.groups
        with kernel.loop("d", str(self.groups)), kernel.loop("tap", str(self.taps)):
            kernel.line(f"const int64_t at = (n * {self.groups} + d) * {self.taps} + tap;")
            with kernel.loop("o", "tile"):
                self.sample.find(self._positions())
            with kernel.loop("c", str(shared)):
                kernel.line(f"const int64_t channel = d * {shared} + c;")
                image = f"{self.x} + (n * {self.channels} + channel) * {self.plane}"
                kernel.line(f"const {self.kind}* const image = {image};")
                with kernel.loop("o", "tile"):
                    value = self.sample.value()
                    scale = f" * {self.mask}[at * {self.total} + first + o]" if self.mask else ""
                    row = f"(channel * {self.taps} + tap) * {_TILE}"
                    kernel.line(f"{self.columns}[{row} + o] = {value}{scale};")

    def _positions(self) -> list[str]:
        """Declare where tap ``tap`` of output element ``first + o`` reads; returns its place on each axis."""
        kernel, count = self.kernel, len(self.axes)
        kernel.line("int64_t left = first + o, rest = tap;")
        places = []
        for i in reversed(range(count)):
            axis = self.axes[i]
            out = kernel.dim(axis.out)
            kernel.line(f"const int64_t o{i} = left % {out}, tap{i} = rest % {axis.taps};")
            kernel.line(f"left /= {out}, rest /= {axis.taps};")
            place = f"o{i} * {axis.stride} + tap{i} * {axis.dilation} - {kernel.dim(axis.begin)}"
            offset = f"{self.offsets}[(at * {count} + {i}) * {self.total} + first + o]"
            places.append(f"({self.kind})({place}) + {offset}")
        return places[::-1]
