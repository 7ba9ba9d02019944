"""Conv: the node, and the ways to compute it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from farcall.backends._ctext import FLOATS
from farcall.backends.c._convolution import Convolution
from farcall.backends.c._epilogue import Epilogue
from farcall.backends.c._kernel import Step
from farcall.backends.c._node import (
    Unsupported,
    constant,
    differ,
    has_input,
    int_attr,
    operand,
    rank,
    want_dtypes,
)
from farcall.backends.c._registry import finishing, loops
from farcall.backends.c._ways import choose
from farcall.backends.c._window import axes_of
from farcall.backends.c._winograd import Winograd
from farcall.graph.dims import Dim, dims, product


def _check(node: ir.Node) -> None:
    want_dtypes(node, FLOATS)
    check_shapes(node)
    outs = dims(operand(node, 1))[0]
    if has_input(node, 2) and differ(product(dims(operand(node, 2))), outs):
        raise Unsupported(f"the bias has {product(dims(operand(node, 2)))} elements for {outs} channels")


def check_shapes(node: ir.Node, weight: int = 1) -> None:
    """Refuse shapes that do not fit each other, which ONNX's inference lets pass. Input ``weight`` is W."""
    if rank(operand(node, 0)) < 3:
        raise Unsupported(f"rank {rank(operand(node, 0))}; a batch, channels and spatial axes are needed")
    channels = dims(operand(node, weight))[:2]
    if not all(isinstance(dim, int) for dim in channels):
        raise Unsupported("the weight's shape is not fixed")
    _check_channels(node, channels)
    axes_of(node, dims(operand(node, weight))[2:])


def _check_channels(node: ir.Node, channels: Sequence[Dim]) -> None:
    """Refuse channel counts that do not match, which would read out of bounds."""
    group, (outs, ins) = int_attr(node, "group", 1), channels
    if group < 1 or int(outs) % group:
        raise Unsupported(f"{outs} output channels are not divided by group={group}")
    if differ(dims(operand(node, 0))[1], group * ins):
        raise Unsupported(
            f"the input has {dims(operand(node, 0))[1]} channels, the weight is for {group * ins}"
        )


@loops("Conv", check=_check)
def _conv(node: ir.Node) -> Iterator[Step]:
    return _steps(node, None)


@finishing("Conv", when=lambda _, epilogue: not epilogue.reads_rows)
def _finished_conv(node: ir.Node, epilogue: Epilogue) -> Iterator[Step]:
    return _steps(node, epilogue)


def _steps(node: ir.Node, epilogue: Epilogue | None) -> Iterator[Step]:
    conv = _of_floats(node, epilogue)
    tiles, ways = _ways(conv)
    choice = choose(_problem(node, epilogue), ways)
    for step in _steps_by(choice.way, conv, tiles, node, epilogue):
        step.choice = choice if len(ways) > 1 else None
        yield step


def _ways(conv: Convolution) -> tuple[dict[str, tuple[Winograd, int]], list[str]]:
    """The ways by Winograd's method, each with the images from which on, and all ways, the best one first."""
    plain, tiles = conv.ways, Winograd.ways(conv)
    fixed = isinstance(conv.images, int)
    worth = [way.name for way, first in tiles if first is not None]
    usable = {way.name: (way, first or 1) for way, first in tiles if first is not None or fixed}
    return usable, list(dict.fromkeys([*worth[:1], plain[0], *usable, *plain]))


def _problem(node: ir.Node, epilogue: Epilogue | None) -> str:
    """What is computed, as a text that has no names of the model."""
    shapes = [
        f"{value.dtype}{list(map(str, dims(value)))}{'' if constant(value) is None else ' constant'}"
        for value in node.inputs
        if value is not None and value.name
    ]
    attributes = sorted(f"{name}={one.value}" for name, one in node.attributes.items())
    then = [one.op_type for one in epilogue.nodes] if epilogue else []
    return " ".join([node.op_type, *shapes, *attributes, *then])


def _steps_by(
    way: str,
    conv: Convolution,
    tiles: Mapping[str, tuple[Winograd, int]],
    node: ir.Node,
    epilogue: Epilogue | None,
) -> Iterator[Step]:
    if way not in tiles:
        conv.write(way)
        yield conv.kernel.step()
        return
    winograd, images = tiles[way]
    if images > 1:
        few = _of_floats(node, epilogue)
        few.when = f"{few.batch} < {images}"
        yield from _few_steps(few, tiles)
        conv.when = f"{conv.batch} >= {images}"
    yield from winograd.steps()


def _few_steps(few: Convolution, tiles: Mapping[str, tuple[Winograd, int]]) -> Iterator[Step]:
    """Those for a few images: by smaller tiles, if these are always worth it."""
    small = next((other.tile for other, first in tiles.values() if first == 1), None)
    if small is not None:
        yield from Winograd(few, small).steps()
    else:
        few.write()
        yield few.kernel.step()


def _of_floats(node: ir.Node, epilogue: Epilogue | None = None) -> Convolution:
    conv = Convolution(node, node.outputs[0].dtype)
    conv.splits, conv.epilogue = True, epilogue
    kernel = conv.kernel
    conv.x = kernel.read(operand(node, 0))
    conv.packed = constant(operand(node, 1)) if conv.by_matrix else None
    conv.w = kernel.read(operand(node, 1)) if conv.packed is None else ""
    conv.b = kernel.read(operand(node, 2)) if has_input(node, 2) else ""
    conv.y = kernel.write(node.outputs[0] if epilogue is None else epilogue.output)
    return conv
