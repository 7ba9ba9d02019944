"""The order of bytes between quantized convolutions: the channels of a pixel lie together.

A product of bytes adds up four neighbours at once, and these are channels. So a convolution of a region reads
its input as it is, where the ONNX order, plane after plane, would have to be turned for each of them. A chain
of convolutions, sums and pools is turned where it begins and where it ends.

Only the order in memory changes: values keep their dims. Nodes that know of it have the domain of
:mod:`farcall.backends.c._packed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

import onnx_ir as ir

from farcall.backends.c._bytes_conv import has_byte_weights, weight_zeros
from farcall.backends.c._convolution import Convolution
from farcall.backends.c._copies import Copies, like
from farcall.backends.c._node import constant, int_attr, ints_attr, operand, output_used, rank
from farcall.backends.c._packed import DOMAIN
from farcall.backends.c._quantized import NARROW, zero_point
from farcall.graph import Region
from farcall.graph._microsoft_calls import DOMAIN as MICROSOFT
from farcall.graph.dims import dims, late, same

_LEAST = 2  # convolutions for each tensor that is turned
_WORTH = 2 * _LEAST  # what a convolution counts that would be one of 32-bit words outside of a chain
_FEWEST = 16  # output channels of a convolution: a vector
_MOST_TAPS = 64  # of a pool, each of which is a pointer on the stack


def channels_last(region: Region) -> Region:
    """The region with its chains of quantized convolutions in this order, or the region itself."""
    chains = [chain for chain in _chains(region) if chain.pays(region)]
    if not chains:
        return region
    return _Turned(region, chains).region(region)


# ---- which nodes ----


def _conv(node: ir.Node) -> Sequence[int]:
    if rank(operand(node, 0)) != 4 or int_attr(node, "group", 1) != 1:
        return ()
    conv = Convolution(node, ir.DataType.UINT32, weight=3)
    taken = conv.outs >= _FEWEST and conv.ins > 0 and weight_zeros(conv, zero_point(node, 5)) is not None
    return (0,) if taken else ()


def _sum(node: ir.Node) -> Sequence[int]:
    left, right = dims(operand(node, 0)), dims(operand(node, 3))
    return (0, 3) if len(left) == len(right) == 4 and all(map(same, left, right)) else ()


def _pool(node: ir.Node) -> Sequence[int]:
    x, taps = operand(node, 0), prod(ints_attr(node, "kernel_shape", []))
    taken = x.dtype in NARROW and rank(x) == 4 and taps <= _MOST_TAPS and not output_used(node, 1)
    return (0,) if taken else ()


def _concat(node: ir.Node) -> Sequence[int]:
    values = [operand(node, index) for index in range(len(node.inputs))]
    axis = int_attr(node, "axis", 0)
    taken = all(value.dtype in NARROW and rank(value) == 4 and constant(value) is None for value in values)
    return range(len(values)) if taken and axis in (1, -3) else ()


def _mean(node: ir.Node) -> Sequence[int]:
    return (0,) if rank(operand(node, 0)) == 4 else ()


_KINDS: dict[tuple[str, str], Callable[[ir.Node], Sequence[int]]] = {
    ("", "QLinearConv"): _conv,
    ("", "MaxPool"): _pool,
    ("", "Concat"): _concat,
    (MICROSOFT, "QLinearAdd"): _sum,
    (MICROSOFT, "QLinearMul"): _sum,
    (MICROSOFT, "QLinearGlobalAveragePool"): _mean,
}
_ANY_ORDER = frozenset({"QLinearAdd", "QLinearMul"})  # which compute element by element
_ENDS = frozenset({"QLinearGlobalAveragePool"})  # whose result, one pixel, is the same in both orders


def _read(node: ir.Node) -> list[ir.Value]:
    """The inputs that the node can read in this order; empty: it cannot."""
    kind = _KINDS.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
    return [] if kind is None or late(node.outputs[0]) else [operand(node, index) for index in kind(node)]


def _made(node: ir.Node) -> list[ir.Value]:
    """The outputs that it then writes in this order."""
    return [] if node.op_type in _ENDS else [node.outputs[0]]


@dataclass
class _Chain:
    """Nodes that read each other's results, or the same ones, with the values that they read and write."""

    nodes: set[ir.Node] = field(default_factory=set)
    values: set[ir.Value] = field(default_factory=set)

    def join(self, other: _Chain) -> None:
        self.nodes |= other.nodes
        self.values |= other.values

    def pays(self, region: Region) -> bool:
        """Whether it has convolutions enough for the tensors that must be turned."""
        made = {value for node in self.nodes for value in _made(node)}
        leaving = [value for value in made if _is_read_outside(value, self.nodes, region)]
        borders = len(self.values - made) + len(leaving)
        return sum(map(_worth, self.nodes)) >= max(1, _LEAST * borders)


def _worth(node: ir.Node) -> int:
    """For how many convolutions of bytes a node counts."""
    if node.op_type != "QLinearConv":
        return 0
    zero = zero_point(node, 5)
    return 1 if has_byte_weights(Convolution(node, ir.DataType.UINT32, weight=3), zero) else _WORTH


def _is_read_outside(value: ir.Value, nodes: set[ir.Node], region: Region) -> bool:
    return value in region.outputs or any(use.node not in nodes for use in value.uses())


def _chains(region: Region) -> Iterator[_Chain]:
    """The chains of a region, in the order of their first nodes."""
    owner: dict[ir.Value, _Chain] = {}
    for node in region.nodes:
        if not (read := _read(node)):
            continue
        own = _Chain({node}, {*read, *_made(node)})
        for value in [*read, *_made(node)]:
            if (other := owner.get(value)) is not None and other is not own:
                own.join(other)
        owner.update(dict.fromkeys(own.values, own))
    yield from {id(chain): chain for chain in owner.values()}.values()


# ---- the rewritten region ----


class _Turned(Copies):
    """Copies in which these chains compute in the order of channels last."""

    def __init__(self, region: Region, chains: Sequence[_Chain]) -> None:
        super().__init__(region.nodes[0].graph)
        self._last: dict[ir.Value, ir.Value] = {}
        chosen = {node for chain in chains for node in chain.nodes}
        for node in region.nodes:
            self.note_late(node)
            if node in chosen:
                self._add_turned(node)
                for value in _made(node):
                    if _is_read_outside(value, chosen, region):
                        self._turn("FromChannelsLast", self._last[value], self.value(value))
            else:
                inputs = [None if value is None else self.value(value) for value in node.inputs]
                self.add(node, inputs, [self.value(value) for value in node.outputs])

    def _add_turned(self, node: ir.Node) -> None:
        read, made = set(_read(node)), set(_made(node))
        inputs = [
            value and (self._turned(value) if value in read else self.value(value)) for value in node.inputs
        ]
        outputs = [self._new(value) if value in made else self.value(value) for value in node.outputs]
        domain = node.domain if node.op_type in _ANY_ORDER else DOMAIN
        self.nodes.append(
            ir.Node(
                domain, node.op_type, inputs, node.attributes.values(), outputs=outputs, version=None,
                name=node.name,
            )
        )  # fmt: skip

    def _turned(self, value: ir.Value) -> ir.Value:
        """A value in this order, which is turned where it is first read."""
        if value not in self._last:
            self._turn("ToChannelsLast", self.value(value), self._new(value))
        return self._last[value]

    def _new(self, value: ir.Value) -> ir.Value:
        self._last[value] = like(value, value.dtype)
        return self._last[value]

    def _turn(self, op_type: str, source: ir.Value, target: ir.Value) -> None:
        self.nodes.append(ir.Node(DOMAIN, op_type, [source], outputs=[target], version=None))
