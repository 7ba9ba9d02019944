"""The output dims of Fourier transforms and windows. See :mod:`farcall.graph._shape_rules`."""

from __future__ import annotations

from collections.abc import Sequence

from farcall.graph._operand_rules import items
from farcall.graph._shape_rules import positive_axis, rule
from farcall.graph._view import NodeView, PartialDims
from farcall.graph.dims import Dim, floordiv, maximum


@rule("DFT")
def _dft(op: NodeView) -> Sequence[PartialDims]:
    data = op.shape(0)
    inverse, half = bool(op.attr("inverse", 0)), bool(op.attr("onesided", 0))
    parts = 1 if inverse and half else 2
    axis: Dim | None = op.attr("axis", 1)
    if op.opset >= 20:
        (axis,) = items(op, 2, 1) if op.has(2) else (-2,)
    if not isinstance(axis, int):
        keeps = not half and not op.has(1)
        return [(*(data[:-1] if keeps else [None] * (len(data) - 1)), parts)]
    at = positive_axis(axis, len(data))
    (length,) = items(op, 1, 1) if op.has(1) else (2 * (data[at] - 1) if parts == 1 else data[at],)
    if length is not None and half and not inverse:
        length = floordiv(length, 2) + 1
    return [(*data[:at], length, *data[at + 1 : -1], parts)]


@rule("STFT")
def _stft(op: NodeView) -> Sequence[PartialDims]:
    batch, signal, _ = op.shape(0)
    (step,) = items(op, 1, 1)
    length: Dim | None = op.shape(2)[0] if op.has(2) else signal
    if op.has(3):
        (length,) = items(op, 3, 1)
    if length is None:
        return [(batch, None, None, 2)]
    bins = floordiv(length, 2) + 1 if op.attr("onesided", 1) else length
    if not isinstance(step, int) or step < 1:
        return [(batch, None, bins, 2)]
    return [(batch, maximum(floordiv(signal - length, step) + 1, 0), bins, 2)]


@rule("HannWindow", "HammingWindow", "BlackmanWindow")
def _window(op: NodeView) -> Sequence[PartialDims]:
    return [tuple(items(op, 0, 1))]


@rule("MelWeightMatrix")
def _mel_weight_matrix(op: NodeView) -> Sequence[PartialDims]:
    (bands,), (length,) = items(op, 0, 1), items(op, 1, 1)
    return [(None if length is None else floordiv(length, 2) + 1, bands)]
