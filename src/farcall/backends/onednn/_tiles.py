"""3x3 convolutions by Winograd's method, which has a fourth to a half of the products.

oneDNN multiplies the matrices; ``winograd.c`` transforms inputs and outputs. Rounding errors are those of the
backend ``c``, which computes such convolutions in the same way.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from farcall.backends.c._node import constant_operand, has_input, int_attr, operand
from farcall.backends.c._window import axes_of
from farcall.backends.c._winograd_matrices import transform
from farcall.backends.c._winograd_text import Tile
from farcall.backends.onednn._table import BIAS, SOURCE, TARGET, WEIGHTS, Operator, fixed, whole
from farcall.graph.dims import dims

_CHANNELS = 64  # in and out: with fewer, the transforms take the time
_LANES = 16  # channels that winograd.c transforms at once
_FEW = 40  # tiles of an image, with fewer of which the weights of large tiles take the time


def pays(node: ir.Node) -> bool:
    """Whether a node is a convolution that Winograd's method computes in less time."""
    if node.op_type != "Conv" or any(
        value is not None and value.const_value is None for value in node.inputs[1:]
    ):
        return False
    filters, channels, *taps = dims(operand(node, 1))
    sizes = (filters, channels, *dims(operand(node, 0))[2:], *dims(node.outputs[0])[2:])
    if (
        taps != [3, 3]
        or int_attr(node, "group", 1) != 1
        or not all(isinstance(size, int) and size for size in sizes)
    ):
        return False
    is_wide = all(int(size) >= _CHANNELS and int(size) % _LANES == 0 for size in (filters, channels))
    axes = axes_of(node, [3, 3])
    return is_wide and all(
        axis.stride == axis.dilation == 1 and isinstance(axis.begin, int) and axis.begin >= 0 for axis in axes
    )


def convolution(node: ir.Node) -> Operator:
    """The operator of a convolution by tiles."""
    across = [int(size) for size in dims(node.outputs[0])[2:]]
    tile = Tile(4 if np.prod([-(-size // 4) for size in across]) >= _FEW else 2)
    data = constant_operand(node, 1)
    weights = np.empty((tile.products, *data.shape[:2]), np.float32)
    transform(tile, data.reshape(*data.shape[:2], 9), weights)
    source = operand(node, 0)
    made = Operator(
        "WINOGRAD",
        [whole(SOURCE, source, "CHANNELS_LAST"), fixed(WEIGHTS, weights.transpose(0, 2, 1), "PREFERRED")],
        whole(TARGET, node.outputs[0], "CHANNELS_LAST"),
        tile.outputs,
        window=[axis.begin for axis in axes_of(node, [3, 3])],
    )
    if has_input(node, 2):
        made.operands.append(fixed(BIAS, constant_operand(node, 2)))
    return made
