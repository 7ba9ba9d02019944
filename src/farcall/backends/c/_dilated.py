"""Convolutions whose windows are mostly outside of the input: each tap is computed where it is inside.

A kernel of 3 by 3 with a dilation of 18 reads 33 by 33 pixels with 18 around them, as in DeepLab: three of
five products are by a zero of the padding. The output is cut where a tap gets outside or inside. Each piece
is a convolution of its own, without padding, of a part of the input with the taps that are inside.

An axis without dilation is not cut, and keeps its padding: its pieces would be the borders, of single pixels.
It only loses the taps that are outside for all windows, as in the last layers of a network that sees few
frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
import onnx_ir as ir

from farcall.backends.c._copies import Copies
from farcall.backends.c._node import constant, has_input, int_attr, operand, opset
from farcall.backends.c._window import Axis, axes_of
from farcall.graph import Region
from farcall.graph.dims import dims

_MOST_OF_ALL = 0.75  # of the products are inside: of more, it does not pay to cut
_FEWEST = 16  # output channels of a group, for which parts of the input are copied
_LEAST = 1 << 22  # products of a convolution that is worth a few more kernels
_MOST_PIECES = 32
_COLUMNS = 16  # outputs of a plane for each piece: with fewer, to read the weights takes the time


@dataclass(frozen=True)
class _Piece:
    """Windows ``first`` to ``end`` of an axis, all of whose taps from ``tap`` to ``tap_end`` are inside.

    ``is_padded``: it is the whole axis, where each of these taps is inside for at least one window.
    """

    first: int
    end: int
    tap: int
    tap_end: int
    is_padded: bool = False

    @property
    def products(self) -> int:
        return (self.end - self.first) * (self.tap_end - self.tap)


def without_padding(region: Region) -> Region:
    """The region with such convolutions in pieces, or the region itself."""
    pieces = {node: found for node in region.nodes if (found := _pieces(node))}
    return _Cut(region, pieces).region(region) if pieces else region


def _pieces(node: ir.Node) -> list[list[_Piece]]:
    """The pieces along each axis; empty: the node is left as it is."""
    if node.op_type != "Conv" or node.domain not in ("", "ai.onnx") or constant(operand(node, 1)) is None:
        return []
    shape = [*dims(operand(node, 0))[1:], *dims(node.outputs[0])[1:]]
    if not all(isinstance(dim, int) for dim in shape):
        return []
    axes = axes_of(node, dims(operand(node, 1))[2:])
    outs, ins = map(int, dims(operand(node, 1))[:2])
    if outs < _FEWEST * int_attr(node, "group", 1) or not all(axis.is_fixed for axis in axes):
        return []
    whole = prod(axis.taps * int(axis.out) for axis in axes)
    found = [_along(axis) for axis in axes]
    inside = prod(sum(piece.products for piece in along) for along in found)
    pays = inside <= _MOST_OF_ALL * whole and outs * ins * whole >= _LEAST
    pieces = prod(map(len, found))
    pays = pays and pieces <= min(_MOST_PIECES, prod(int(axis.out) for axis in axes) // _COLUMNS)
    return found if pays and all(piece.products for along in found for piece in along) else []


def _along(axis: Axis) -> list[_Piece]:
    """The pieces of an axis, in their order."""
    pieces = list(_inside(axis))
    seen = [piece for piece in pieces if piece.products]
    if len(pieces) == 1 or axis.dilation > 1 or not seen:
        return pieces
    first, end = min(piece.tap for piece in seen), max(piece.tap_end for piece in seen)
    return [_Piece(0, int(axis.out), first, end, is_padded=True)]


def _inside(axis: Axis) -> Iterator[_Piece]:
    """The pieces without padding."""
    bounds = [axis.inside(tap) for tap in range(axis.taps)]
    cuts = sorted({0, int(axis.out), *(at for bound in bounds for at in bound)})
    for first, end in pairwise(cuts):
        inside = [tap for tap, (low, high) in enumerate(bounds) if low <= first < high]
        yield _Piece(first, end, *((inside[0], inside[-1] + 1) if inside else (0, 0)))


class _Cut(Copies):
    """Copies in which these convolutions are in pieces."""

    def __init__(self, region: Region, pieces: Mapping[ir.Node, list[list[_Piece]]]) -> None:
        super().__init__(region.nodes[0].graph)
        for node in region.nodes:
            self.note_late(node)
            if node in pieces:
                whole = self._join(node, pieces[node], ())
                whole.name = node.outputs[0].name
                self._values[node.outputs[0]] = whole
            else:
                inputs = [None if value is None else self.value(value) for value in node.inputs]
                self.add(node, inputs, [self.value(value) for value in node.outputs])

    def _join(
        self, node: ir.Node, pieces: Sequence[Sequence[_Piece]], chosen: tuple[_Piece, ...]
    ) -> ir.Value:
        """The output of the pieces that begin with those ``chosen``, one axis after another."""
        axis = len(chosen)
        if axis == len(pieces):
            return self._convolved(node, chosen)
        parts = [self._join(node, pieces, (*chosen, piece)) for piece in pieces[axis]]
        if len(parts) == 1:
            return parts[0]
        axes = axes_of(node, dims(operand(node, 1))[2:])
        sizes = [piece.end - piece.first for piece in chosen] + [int(one.out) for one in axes[axis:]]
        return self._made(node, "Concat", parts, sizes, [ir.AttrInt64("axis", 2 + axis)])

    def _convolved(self, node: ir.Node, pieces: Sequence[_Piece]) -> ir.Value:
        """The output of one piece."""
        weights, axes = constant(operand(node, 1)), axes_of(node, dims(operand(node, 1))[2:])
        assert weights is not None  # noqa: S101 - `_pieces` has asked
        for axis, piece in enumerate(pieces, 2):
            weights = weights.take(range(piece.tap, piece.tap_end), axis)
        inputs = [self._part(node, axes, pieces), _constant(weights)]
        inputs += [self.value(operand(node, 2))] if has_input(node, 2) else []
        pads = zip(*(_padding(axis, piece) for axis, piece in zip(axes, pieces, strict=True)), strict=True)
        attributes = [
            ir.AttrInt64("group", int_attr(node, "group", 1)),
            ir.AttrInt64s("strides", [axis.stride for axis in axes]),
            ir.AttrInt64s("dilations", [axis.dilation for axis in axes]),
            ir.AttrInt64s("pads", [pad for one in pads for pad in one]),
        ]
        return self._made(node, "Conv", inputs, [piece.end - piece.first for piece in pieces], attributes)

    def _part(self, node: ir.Node, axes: Sequence[Axis], pieces: Sequence[_Piece]) -> ir.Value:
        """What a piece reads of the input."""
        given = operand(node, 0)
        starts, sizes = [], []
        for axis, piece in zip(axes, pieces, strict=True):
            if piece.is_padded:
                starts.append(0)
                sizes.append(int(axis.size))
                continue
            windows, taps = piece.end - 1 - piece.first, piece.tap_end - 1 - piece.tap
            starts.append(piece.first * axis.stride + piece.tap * axis.dilation - int(axis.begin))
            sizes.append(windows * axis.stride + taps * axis.dilation + 1)
        if sizes == [axis.size for axis in axes]:
            return self.value(given)
        ends = [start + size for start, size in zip(starts, sizes, strict=True)]
        places = [np.array(numbers, np.int64) for numbers in (starts, ends, range(2, 2 + len(axes)))]
        return self._made(node, "Slice", [self.value(given), *map(_constant, places)], sizes, channels=given)

    def _made(
        self,
        node: ir.Node,
        op_type: str,
        inputs: Sequence[ir.Value],
        sizes: Sequence[int],
        attributes: Sequence[ir.Attr] = (),
        channels: ir.Value | None = None,
    ) -> ir.Value:
        """The output of a new node, with the images and channels of its output, or of another value."""
        whole = channels or node.outputs[0]
        assert whole.shape is not None  # noqa: S101 - of a value that has been inferred
        out = ir.Value(shape=ir.Shape([*whole.shape[:2], *sizes]), type=whole.type)
        self.nodes.append(
            ir.Node(
                "", op_type, inputs, attributes, outputs=[out], version=opset(node), name=node.name
            )
        )  # fmt: skip
        return out


def _padding(axis: Axis, piece: _Piece) -> tuple[int, int]:
    """The padding before and behind what a piece reads: without taps, the axis needs less."""
    if not piece.is_padded:
        return 0, 0
    return int(axis.begin) - piece.tap, int(axis.end) - (axis.taps - piece.tap_end)


def _constant(data: np.ndarray) -> ir.Value:
    tensor = ir.tensor(data)
    return ir.Value(shape=ir.Shape(data.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
