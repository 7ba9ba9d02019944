"""The output dims of operators that address elements by index. See :mod:`farcall.graph._shape_rules`."""

from __future__ import annotations

from farcall.graph._equation import equation_of
from farcall.graph._operand_rules import items
from farcall.graph._shape_rules import rule
from farcall.graph._view import Dims, NodeView, NotKnownError, PartialDims
from farcall.graph.dims import Dim


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


@rule("ScatterND")
def _scatter_nd(op: NodeView) -> list[Dims]:
    """The shape of the data, if the updates have the rank of the slices that they replace."""
    data = op.shape(0)
    try:
        indices, updates = op.shape(1), op.shape(2)
    except NotKnownError:
        return [data]
    count = indices[-1]
    if isinstance(count, int) and len(updates) != len(indices) - 1 + len(data) - count:
        wanted = (*indices[:-1], *data[count:])
        raise ValueError(f"its updates must have the dims [{', '.join(map(str, wanted))}]")
    return [data]


@rule("CenterCropPad")
def _center_crop_pad(op: NodeView) -> list[PartialDims]:
    data: list[Dim | None] = list(op.shape(0))
    axes = op.attr("axes", list(range(len(data))))
    for axis, size in zip(axes, items(op, 1, len(axes)), strict=True):
        data[axis] = size
    return [tuple(data)]


@rule("TopK")
def _top_k(op: NodeView) -> list[PartialDims]:
    data: list[Dim | None] = list(op.shape(0))
    (kept,) = items(op, 1, 1) if op.opset >= 10 else (op.attr("k", 0),)
    data[op.attr("axis", -1)] = kept
    return [tuple(data), tuple(data)]


@rule("OneHot")
def _one_hot(op: NodeView) -> list[PartialDims]:
    indices: list[Dim | None] = list(op.shape(0))
    axis, given = op.attr("axis", -1), op.node.inputs[1]
    tensor = None if given is None else given.const_value
    (depth,) = items(op, 1, 1) if tensor is None else (int(tensor.numpy().ravel()[0]),)  # of any dtype
    indices.insert(axis if axis >= 0 else axis + len(indices) + 1, depth)
    return [tuple(indices)]


@rule("Det")
def _det(op: NodeView) -> list[Dims]:
    data = op.shape(0)
    op.equate(data[-1], data[-2])
    return [data[:-2]]


@rule("TfIdfVectorizer")
def _tf_idf(op: NodeView) -> list[Dims]:
    places: list[int] = op.attr("ngram_indexes", [0])
    return [(*op.shape(0)[:-1], max(places) + 1)]


@rule("Einsum")
def _einsum(op: NodeView) -> list[Dims]:
    shapes = op.shapes()
    try:
        equation = equation_of(op.attr("equation", ""), [len(shape) for shape in shapes])
    except ValueError as error:
        raise NotKnownError from error
    sizes: dict[str, Dim] = {}
    for labels, shape in zip(equation.operands, shapes, strict=True):
        for label, dim in zip(labels, shape, strict=True):
            known = sizes.get(label, 1)
            sizes[label] = dim if known == 1 else known if dim == 1 else op.equate(known, dim)
    return [tuple(sizes[label] for label in equation.result)]
