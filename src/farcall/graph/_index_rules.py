"""The output dims of operators that address elements by index. See :mod:`farcall.graph._shape_rules`."""

from __future__ import annotations

from farcall.graph._shape_rules import rule
from farcall.graph._view import Dims, NodeView, NotKnownError


@rule("GatherElements")
def _gather_elements(op: NodeView) -> list[Dims]:
    return [op.shape(1)]


@rule("GatherND")
def _gather_nd(op: NodeView) -> list[Dims]:
    data, indices = op.shape(0), op.shape(1)
    batch, count = op.attr("batch_dims", 0), indices[-1]
    if not isinstance(count, int):
        raise NotKnownError
    return [(*indices[:-1], *data[batch + count :])]


@rule("CenterCropPad")
def _center_crop_pad(op: NodeView) -> list[Dims]:
    data = list(op.shape(0))
    axes = op.attr("axes", list(range(len(data))))
    for axis, size in zip(axes, op.data(1).tolist(), strict=True):
        data[axis] = size
    return [tuple(data)]
