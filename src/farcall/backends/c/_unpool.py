"""MaxUnpool: elements go back to where MaxPool found them, and zeros everywhere else."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from farcall.backends._ctext import FLOATS
from farcall.backends.c._elements import verify_same, want_same
from farcall.backends.c._kernel import Kernel, Step
from farcall.backends.c._node import (
    Unsupported,
    constant,
    has_input,
    ints_attr,
    label,
    operand,
    rank,
    want_dtypes,
)
from farcall.backends.c._registry import allocating, loops
from farcall.graph.dims import Dim, dims, product, same

_INT64 = {ir.DataType.INT64}


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS, 0)
    want_dtypes(node, _INT64, 1)
    x = dims(operand(node, 0))
    if len(x) < 3 or rank(node.outputs[0]) != len(x):
        raise Unsupported(f"rank {len(x)}, with an output of rank {rank(node.outputs[0])}")
    want_same("the indices", dims(operand(node, 1)), x)
    if has_input(node, 2):
        want_dtypes(node, _INT64, 2)
        if dims(operand(node, 2)) != (len(x),):
            raise Unsupported(f"an output_shape of {dims(operand(node, 2))} elements for rank {len(x)}")
    _pooled(node)


def _pooled(node: ir.Node) -> list[Dim]:
    """The dims of what was pooled, to which the indices refer: the smallest that the windows reach."""
    x = dims(operand(node, 0))
    count = len(x) - 2
    taps, strides = ints_attr(node, "kernel_shape", []), ints_attr(node, "strides", [1] * count)
    pads = ints_attr(node, "pads", [0] * (2 * count))
    if not (len(taps) == len(strides) == count and len(pads) == 2 * count):
        raise Unsupported("strides, pads and kernel_shape must name every spatial axis")
    ends = ((x[i + 2] - 1) * strides[i] + taps[i] - pads[i] - pads[i + count] for i in range(count))
    return [*x[:2], *ends]


@allocating("MaxUnpool", check=_check)
@loops("MaxUnpool", check=_check)
def _max_unpool(node: ir.Node) -> Iterator[Step]:
    kernel, x, out = Kernel(), operand(node, 0), node.outputs[0]
    source, places = kernel.read(x), kernel.read(operand(node, 1))
    verify_same(kernel, node, "the indices", dims(operand(node, 1)), dims(x))
    if has_input(node, 2) and constant(operand(node, 2)) is None:
        given = kernel.read(operand(node, 2))
        kernel.allocate(out, [f"{given}[{axis}]" for axis in range(rank(out))], label(node))
    target, made, pooled = kernel.write(out), dims(out), _pooled(node)
    kernel.line(f"memset({target}, 0, (size_t){kernel.dim(product(made))} * sizeof *{target});")
    with kernel.loop("i", product(dims(x))):
        kernel.index("at", f"{places}[i]", kernel.dim(product(pooled)), label(node), "what was pooled")
        if all(map(same, pooled, made)):
            kernel.line(f"{target}[at] = {source}[i];")
        else:
            kernel.line(f"{target}[{_moved(kernel, node, pooled, made)}] = {source}[i];")
    yield kernel.step()


def _moved(kernel: Kernel, node: ir.Node, pooled: list[Dim], made: tuple[Dim, ...]) -> str:
    """The place in the output of the element ``at`` of what was pooled, which must be inside of it."""
    place = ""
    for axis, (size, room) in enumerate(zip(pooled, made, strict=True)):
        behind = kernel.dim(product(pooled[axis + 1 :]))
        kernel.line(f"const int64_t y{axis} = at / ({behind}) % ({kernel.dim(size)});")
        parts = (
            f"{label(node)}: place ",
            f"y{axis}",
            f" of axis {axis}, for an output of ",
            kernel.dim(room),
        )
        wrong = kernel.fail_with("IndexError", *parts)
        kernel.line(f"if ((uint64_t)y{axis} >= (uint64_t){kernel.dim(room)}) {wrong}")
        place = f"({place}) * {kernel.dim(room)} + y{axis}" if place else f"y{axis}"
    return place
