"""Dims that weights and caches of operators of ``com.microsoft`` fix, before their definitions are read."""

from __future__ import annotations

from collections.abc import Callable

from farcall.graph._view import NodeView, NotKnownError


def fix_dims(op: NodeView) -> None:
    """Give named dims the sizes that other operands of the node need; those of other nodes stay."""
    try:
        if op.node.op_type in _FIXED:
            _FIXED[op.node.op_type](op)
    except NotKnownError:
        pass


def _last(op: NodeView, size: int) -> None:
    data = op.shape(0)
    if data and not isinstance(data[-1], int):
        op.equate(data[-1], size)


def _product(op: NodeView) -> None:
    if depth := op.attr("K", 0):
        _last(op, depth)


def _rotary(op: NodeView) -> None:
    """A cache has a column for each pair of elements, unless only a part of a head is rotated.

    Each row of each sample has its place, which the definition would stretch.
    """
    data, places = op.shape(0), op.shape(1)
    if len(places) == 2:
        for dim, wanted in zip(places, (data[0], data[-2]), strict=True):
            op.equate(wanted, dim)
    heads, half = op.attr("num_heads", 0), op.shape(2)[-1]
    if op.attr("rotary_embedding_dim", 0) or not isinstance(half, int):
        return
    if len(op.shape(0)) == 4:
        _last(op, 2 * half)
    elif heads:
        _last(op, heads * 2 * half)


def _attention(op: NodeView) -> None:
    """Queries, keys and values are of as many samples, and keys of as many rows as values."""
    for index in (1, 2):
        if op.has(index):
            op.equate(op.shape(0)[0], op.shape(index)[0])
    if op.has(1) and op.has(2) and len(op.shape(1)) == len(op.shape(2)):
        op.equate(op.shape(1)[-2], op.shape(2)[-2])


_FIXED: dict[str, Callable[[NodeView], None]] = {
    "MatMulNBits": _product,
    "RotaryEmbedding": _rotary,
    "MultiHeadAttention": _attention,
    "GroupQueryAttention": _attention,
}
