"""DepthToSpace and SpaceToDepth: blocks of an image's places become channels, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from farcall.backends._ctext import ALL
from farcall.backends.c._kernel import Step
from farcall.backends.c._node import Unsupported, int_attr, operand, rank, str_attr, want_dtypes
from farcall.backends.c._registry import loops
from farcall.backends.c._shaping import permuted_copy
from farcall.graph.dims import Dim, dims

_MODES = ("DCR", "CRD")


def _check(node: ir.Node) -> None:
    want_dtypes(node, ALL)
    if rank(operand(node, 0)) != 4:
        raise Unsupported(f"rank {rank(operand(node, 0))}; a batch, channels, rows and columns are needed")
    if int_attr(node, "blocksize", 0) < 1:
        raise Unsupported(f"blocksize {int_attr(node, 'blocksize', 0)}")
    if (mode := str_attr(node, "mode", "DCR")) not in _MODES:
        raise Unsupported(f"mode `{mode}`")


@loops("DepthToSpace", check=_check)
def _depth_to_space(node: ir.Node) -> Iterator[Step]:
    block = int_attr(node, "blocksize", 1)
    batch, _, high, wide = dims(operand(node, 0))
    channels = dims(node.outputs[0])[1]
    if str_attr(node, "mode", "DCR") == "DCR":
        shape: Sequence[Dim] = (batch, block, block, channels, high, wide)
        order = [0, 3, 4, 1, 5, 2]
    else:
        shape, order = (batch, channels, block, block, high, wide), [0, 1, 4, 2, 5, 3]
    yield permuted_copy(operand(node, 0), node.outputs[0], shape, order)


@loops("SpaceToDepth", check=_check)
def _space_to_depth(node: ir.Node) -> Iterator[Step]:
    block = int_attr(node, "blocksize", 1)
    batch, channels, *_ = dims(operand(node, 0))
    high, wide = dims(node.outputs[0])[2:]
    shape = (batch, channels, high, block, wide, block)
    order = [0, 3, 5, 1, 2, 4] if str_attr(node, "mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    yield permuted_copy(operand(node, 0), node.outputs[0], shape, order)
