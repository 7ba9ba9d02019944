"""Operators on bytes whose channels lie together, besides convolutions; and what turns other bytes into such.

Only :mod:`farcall.backends.c._channels_last` makes these nodes, in a domain of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import c_type
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._microsoft import mean_of_sum
from farcall.backends.c._node import ints_attr, operand
from farcall.backends.c._packed import DOMAIN
from farcall.backends.c._parallel import ELEMENT
from farcall.backends.c._pool_text import largest
from farcall.backends.c._registry import loops
from farcall.backends.c._window import axes_of, position
from farcall.graph.dims import ceildiv, dims, product

_PIXELS = 64  # whose channels are written while they are in the caches


def made_here(node: ir.Node) -> None:
    """Only :mod:`farcall.backends.c._channels_last` makes these nodes."""


@loops(f"{DOMAIN}::ToChannelsLast", f"{DOMAIN}::FromChannelsLast", check=made_here)
def _turned(node: ir.Node) -> Iterator[Step]:
    kernel, x = Kernel(), operand(node, 0)
    p, q = kernel.read(x), kernel.write(node.outputs[0])
    images, channels, *plane = dims(x)
    count, pixels = kernel.dim(channels), kernel.dim(product(plane))
    planes, last = f"(n * {count} + c) * {pixels} + i", f"(n * {pixels} + i) * {count} + c"
    to, source = (last, planes) if node.op_type == "ToChannelsLast" else (planes, last)
    blocks, cost = ceildiv(product(plane), _PIXELS), product((ELEMENT, channels, _PIXELS))
    with kernel.parallel("block", product((images, blocks)), cost):
        every = kernel.dim(blocks)
        kernel.line(f"const int64_t n = block / {every}, i0 = block % {every} * {_PIXELS};")
        kernel.line(f"const int64_t i1 = {pixels} - i0 < {_PIXELS} ? {pixels} : i0 + {_PIXELS};")
        with kernel.loop("c", count), kernel.loop("i", "i1", start="i0"):
            kernel.line(f"{q}[{to}] = {p}[{source}];")
    yield kernel.step()


@loops(f"{DOMAIN}::MaxPool", check=made_here)
def _max_pool(node: ir.Node) -> Iterator[Step]:
    """The rows of channels that a window has are joined."""
    kernel, x = Kernel(), operand(node, 0)
    join, kind = largest(x.dtype), c_type(x.dtype)
    kernel.file_scope(join.source())
    p, q = kernel.read(x), kernel.write(node.outputs[0])
    y_axis, x_axis = axes = axes_of(node, ints_attr(node, "kernel_shape", []))
    channels, width, height = (kernel.dim(dim) for dim in (dims(x)[1], x_axis.size, y_axis.size))
    taps = y_axis.taps * x_axis.taps
    cost = product((dims(x)[1], x_axis.out, ELEMENT + taps))
    with kernel.parallel("line", product((dims(x)[0], y_axis.out)), cost):
        kernel.line(
            f"const int64_t n = line / {kernel.dim(y_axis.out)}, o0 = line % {kernel.dim(y_axis.out)};"
        )
        with kernel.loop("o1", kernel.dim(x_axis.out)):
            kernel.line(f"const {kind}* rows[{taps}];\nint64_t count = 0;")
            with kernel.loop("k0", str(y_axis.taps)):
                kernel.line(f"const int64_t y = {position(kernel, axes[0], 'o0', 'k0')};")
                kernel.line(f"if (y < 0 || y >= {height}) continue;")
                with kernel.loop("k1", str(x_axis.taps)):
                    kernel.line(f"const int64_t x = {position(kernel, axes[1], 'o1', 'k1')};")
                    place = f"((n * {height} + y) * {width} + x) * {channels}"
                    kernel.line(f"if (x >= 0 && x < {width}) rows[count++] = {p} + {place};")
            to = f"{q} + (line * {kernel.dim(x_axis.out)} + o1) * {channels}"
            kernel.line(f"if (count) farcall_join_{join.name}(rows, count, 0, {channels}, {to});")
            kernel.line(f"else for (int64_t c = 0; c < {channels}; ++c) ({to})[c] = {join.start};")
    yield kernel.step()


@loops(f"{DOMAIN}::Concat", check=made_here)
def _concat(node: ir.Node) -> Iterator[Step]:
    """Of channels: those of the inputs follow each other in each pixel."""
    kernel, out = Kernel(), node.outputs[0]
    images, channels, *plane = dims(out)
    values = [operand(node, index) for index in range(len(node.inputs))]
    pixels = product((images, *plane))
    with kernel.parallel("block", ceildiv(pixels, _PIXELS), product((ELEMENT, channels, _PIXELS))):
        last, first = kernel.dim(pixels), f"block * {_PIXELS}"
        kernel.line(f"const int64_t end = {last} - {first} < {_PIXELS} ? {last} : {first} + {_PIXELS};")
        with kernel.loop("i", "end", start=first):
            kernel.line(f"{c_type(out.dtype)}* to = {kernel.write(out)} + i * {kernel.dim(channels)};")
            for value in values:
                count = kernel.dim(dims(value)[1])
                kernel.line(
                    f"memcpy(to, {kernel.read(value)} + i * {count}, (size_t)({count}));\nto += {count};"
                )
    yield kernel.step()


@loops(f"{DOMAIN}::QLinearGlobalAveragePool", check=made_here)
def _global_pool(node: ir.Node) -> Iterator[Step]:
    kernel, x = Kernel(), operand(node, 0)
    images, channels, *plane = dims(x)
    sums = kernel.scratch(ir.DataType.INT32, channels)
    count, pixels = kernel.dim(channels), kernel.dim(product(plane))
    with kernel.loop("n", kernel.dim(images)):
        kernel.line(f"const {c_type(x.dtype)}* const image = {kernel.read(x)} + n * {pixels} * {count};")
        kernel.line(f"for (int64_t c = 0; c < {count}; ++c) {sums}[c] = 0;")
        with kernel.loop("i", pixels), kernel.loop("c", count):
            kernel.line(f"{sums}[c] += image[i * {count} + c];")
        with kernel.loop("c", count):
            mean_of_sum(kernel, node, f"{sums}[c]", f"n * {count} + c", pixels)
    yield kernel.step()
