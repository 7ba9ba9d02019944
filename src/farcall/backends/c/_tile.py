"""Tile: a tensor repeated along each axis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import onnx_ir as ir

from farcall.backends._ctext import ALL
from farcall.backends.c._indexing import copy_broadcast
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import Unsupported, constant, label, operand, rank, want_dtypes
from farcall.backends.c._registry import allocating, loops
from farcall.graph.dims import Dim, dims, product


def _check(node: ir.Node) -> None:
    want_dtypes(node, ALL, 0)
    want_dtypes(node, {ir.DataType.INT64}, 1)
    if dims(operand(node, 1)) != (rank(operand(node, 0)),):
        raise Unsupported("repeats must name every axis")


@allocating("Tile", check=_check)
@loops("Tile", check=_check)
def _tile(node: ir.Node) -> Iterator[Step]:
    """Each axis is two, of which the outer one broadcasts."""
    kernel = Kernel()
    repeats = constant(operand(node, 1))
    if repeats is None:
        _computed(kernel, node)
    else:
        domain: list[Dim] = []
        view: list[Dim] = []
        for size, times in zip(dims(operand(node, 0)), repeats.tolist(), strict=True):
            domain += [times, size]
            view += [1, size]
        copy_broadcast(kernel, operand(node, 0), node.outputs[0], domain, view)
    yield kernel.step()


def _computed(kernel: Kernel, node: ir.Node) -> None:
    """Loops over repeats that are computed."""
    x, out = operand(node, 0), node.outputs[0]
    given, p, shape = kernel.read(operand(node, 1)), kernel.read(x), dims(x)
    for axis, size in enumerate(map(kernel.dim, shape)):
        kernel.line(f"int64_t want{axis};")
        wide = f"__builtin_mul_overflow({given}[{axis}], {size}, &want{axis})"
        kernel.line(f"if ({wide}) want{axis} = {given}[{axis}] < 0 ? -1 : INT64_MAX;")
        parts = (f"{label(node)}: ", f"{given}[{axis}]", f" repeats along axis {axis}")
        kernel.line(f"if ({given}[{axis}] < 0) {kernel.fail_with('ValueError', *parts)}")
    q = kernel.allocate(out, [f"want{axis}" for axis in range(len(shape))], label(node))
    target = dims(out)
    source, place = "0", "0"
    with kernel.block(f"if ({kernel.dim(product(target))})"), ExitStack() as stack:
        for axis, (size, dim) in enumerate(zip(map(kernel.dim, shape), map(kernel.dim, target), strict=True)):
            stack.enter_context(kernel.loop(f"t{axis}", f"{given}[{axis}]"))
            stack.enter_context(kernel.loop(f"i{axis}", size))
            source = f"({source}) * {size} + i{axis}"
            place = f"({place}) * {dim} + t{axis} * {size} + i{axis}"
        kernel.line(f"{q}[{place}] = {p}[{source}];")
