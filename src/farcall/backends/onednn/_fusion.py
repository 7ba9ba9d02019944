"""Makes the operators of a region: what follows a convolution or product is computed with it.

An operator that takes in a later node runs where that node stands: by then the other operand is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

import onnx_ir as ir

from farcall.backends.c._node import operand
from farcall.backends.onednn import _elements, _products, _tiles, _windows
from farcall.backends.onednn._table import BIAS, MOST_AFTERS, SUM, After, Operand, Operator, viewed, whole
from farcall.graph.dims import dims, product, same

_LIGHT = ("ELEMENTWISE", "BINARY")
_EXTENDED = ("CONVOLUTION", "DECONVOLUTION", "PRODUCT")
_PIXELS = 56 * 56  # of a result that does not stay in the second-level cache


def operators(
    nodes: Sequence[ir.Node], outputs: Container[ir.Value], has_tiles: bool = False
) -> list[tuple[Operator, list[ir.Node]]]:
    """The operators that compute the nodes, in the order in which they run, each with its nodes.

    With ``has_tiles``, convolutions may be computed by Winograd's method.
    """
    return _Fusion(nodes, outputs, has_tiles).run()


def needless(nodes: Sequence[ir.Node], outputs: Container[ir.Value]) -> set[ir.Node] | None:
    """The nodes that gain nothing here; None if all but elementwise ones would be left.

    The backend ``c`` computes elementwise nodes in one loop, and with less work. These stay only if they are
    computed with a convolution or product, or in the layout of a convolution that they follow. A convolution
    of a large image with a Swish is left to ``c`` with all that leads to it, so that the layout changes once.
    """
    made = operators(nodes, outputs)
    found = _before([node for operator, own in made if _is_slow(operator) for node in own], set(nodes))
    left = [(operator, own) for operator, own in made if own[-1] not in found]
    if all(operator.kind in _LIGHT for operator, _ in left):
        return None
    blocked: set[int] = set()
    for operator, own in left:
        reads = (id(one.value) for one in operator.operands if one.layout in ("KEPT", "LIKE_SOURCE"))
        follows = not blocked.isdisjoint(reads) and operator.kind != "SOFTMAX"
        if follows or operator.kind in ("CONVOLUTION", "DECONVOLUTION"):
            blocked.add(id(own[-1].outputs[0]))
        elif operator.kind in _LIGHT:
            found.update(own)
    return found


def _is_slow(operator: Operator) -> bool:
    """Whether the backend ``c`` is faster: it computes a Swish in about two thirds of the time."""
    has_swish = any(after.algorithm == _elements.ELEMENTWISE["Swish"] for after in operator.afters)
    pixels = product(operator.target.sizes[2:])
    return operator.kind == "CONVOLUTION" and has_swish and isinstance(pixels, int) and pixels >= _PIXELS


def _before(nodes: Iterable[ir.Node], inside: Container[ir.Node]) -> set[ir.Node]:
    """Nodes, and those inside on which they depend."""
    found: set[ir.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            makers = (value.producer() for value in node.inputs if value is not None)
            waiting += [maker for maker in makers if maker is not None and maker in inside]
    return found


class _Fusion:
    def __init__(self, nodes: Sequence[ir.Node], outputs: Container[ir.Value], has_tiles: bool) -> None:
        self._outputs, self._has_tiles = outputs, has_tiles
        self._sigmoids = _swishes(nodes, outputs)
        inside = set(self._sigmoids.values())
        self._nodes = [node for node in nodes if node not in inside]
        self._uses = Counter(value for node in self._nodes for value in self._reads(node))
        self._made: dict[ir.Value, tuple[Operator, list[ir.Node]]] = {}

    def _reads(self, node: ir.Node) -> Iterable[ir.Value]:
        if node in self._sigmoids:
            return [operand(self._sigmoids[node], 0)]
        return [value for value in node.inputs if value is not None]

    def run(self) -> list[tuple[Operator, list[ir.Node]]]:
        for node in self._nodes:
            if not self._is_taken_in(node):
                own = [self._sigmoids[node], node] if node in self._sigmoids else [node]
                self._made[node.outputs[0]] = (self._alone(node), own)
        return list(self._made.values())

    def _alone(self, node: ir.Node) -> Operator:
        if node in self._sigmoids:
            source = operand(self._sigmoids[node], 0)
            return _elements.elementwise(source, node.outputs[0], self._activation(node))
        if self._has_tiles and _tiles.pays(node):
            return _tiles.convolution(node)
        return operator(node)

    def _activation(self, node: ir.Node) -> After:
        if node in self._sigmoids:
            return After(_elements.ELEMENTWISE["Swish"], 1)
        return _elements.activation(node)

    def _is_taken_in(self, node: ir.Node) -> bool:
        """Whether an earlier operator computes the node, too."""
        if node in self._sigmoids or node.op_type in _elements.ELEMENTWISE:
            source = next(iter(self._reads(node)))
            before = self._open(source)
            if (
                before is not None
                and before.kind == "WINOGRAD"
                and node.op_type == "Relu"
                and not before.axis
            ):
                before.axis = 1
                return self._take_in(node, source, before, None)
            if before is None or before.kind not in (*_EXTENDED, "BINARY"):
                return False
            return self._take_in(node, source, before, self._activation(node))
        if node.op_type not in _elements.BINARY:
            return False
        left, right = operand(node, 0), operand(node, 1)
        ways = [(left, right), (right, left)] if node.op_type in _elements.COMMUTATIVE else [(left, right)]
        order = list(self._made)
        ways = [way for way in ways if self._open(way[0]) is not None]
        for value, other in sorted(ways, key=lambda way: -order.index(way[0])):
            before, _ = self._made[value]
            after = self._after(node, value, other, before)
            if after is not None:
                return self._take_in(node, value, before, after)
        return False

    def _open(self, value: ir.Value | None) -> Operator | None:
        """The operator whose result nothing but the node reads, if it can compute more."""
        if value is None or value not in self._made or self._uses[value] != 1 or value in self._outputs:
            return None
        operator = self._made[value][0]
        return operator if len(operator.afters) < MOST_AFTERS else None

    def _after(self, node: ir.Node, value: ir.Value, other: ir.Value, operator: Operator) -> After | None:
        """What a binary operator adds to one whose result is ``value``."""
        sizes = dims(value)
        if operator.kind not in _EXTENDED or not _elements.is_shape(value, dims(node.outputs[0])):
            return None
        algorithm = _elements.BINARY[node.op_type]
        is_whole = _elements.is_shape(other, sizes)
        if operator.kind == "PRODUCT":
            seen = operator.target.sizes
            if not is_whole:
                row = dims(other)[-1:] or (1,)
                has_columns = row == (1,) or same(seen[-1], sizes[-1])
                if product(dims(other)[:-1]) != 1 or len(dims(other)) > len(sizes) or not has_columns:
                    return None
                seen = (*([1] * (len(seen) - 1)), *row)
            return After(algorithm, operand=viewed(0, other, seen))
        if is_whole and other.const_value is None:
            first = node.op_type == "Add" and not operator.afters
            return After(SUM, operand=whole(0, other, "KEPT")) if first else None
        return (
            After(algorithm, operand=_of_channels(other, len(sizes)))
            if _is_of_channels(other, len(sizes))
            else None
        )

    def _take_in(self, node: ir.Node, value: ir.Value, operator: Operator, after: After | None) -> bool:
        _, own = self._made.pop(value)
        added = after.operand if after is not None else None
        if node.op_type == "Add" and added is not None and _is_bias(operator, added):
            added.what = BIAS
            operator.operands.append(added)
        elif after is not None:
            operator.append(after)
        operator.target.value = node.outputs[0]
        if node in self._sigmoids:
            own.append(self._sigmoids[node])
        self._made[node.outputs[0]] = (operator, [*own, node])
        return True


def _is_bias(operator: Operator, added: Operand) -> bool:
    """Whether a constant row can be the bias of a product, which costs nothing."""
    return (
        operator.kind == "PRODUCT"
        and not operator.afters
        and not any(one.what == BIAS for one in operator.operands)
        and not isinstance(added.value, ir.Value)
        and added.sizes[-1] == operator.target.sizes[-1]
        and product(added.sizes[:-1]) == 1
    )


def _is_of_channels(value: ir.Value, rank: int) -> bool:
    own = dims(value)
    places = range(rank - len(own), rank)
    return value.const_value is not None and all(
        size == 1 or place == 1 for place, size in zip(places, own, strict=True)
    )


def _of_channels(value: ir.Value, rank: int) -> Operand:
    return _elements.padded(0, value, rank)


def _swishes(nodes: Sequence[ir.Node], outputs: Container[ir.Value]) -> dict[ir.Node, ir.Node]:
    """Each Mul(x, Sigmoid(x)), with its Sigmoid."""
    known = set(nodes)
    found = {}
    for node in nodes:
        if node.op_type != "Mul":
            continue
        left, right = operand(node, 0), operand(node, 1)
        for value, other in ((left, right), (right, left)):
            before = value.producer()
            if (
                before in known
                and before is not None
                and before.op_type == "Sigmoid"
                and before.inputs[0] is other
                and len(value.uses()) == 1
                and value not in outputs
            ):
                found[node] = before
    return found


def operator(node: ir.Node) -> Operator:
    """The primitive that computes a single node."""
    match node.op_type:
        case "MatMul" | "Gemm":
            return _products.product_of(node)
        case "Softmax":
            return _elements.softmax(node)
        case "LayerNormalization":
            return _elements.layer_normalization(node)
        case "BatchNormalization":
            return _elements.batch_normalization(node)
    if node.op_type in _elements.BINARY:
        return _elements.binary(node)
    if node.op_type in _elements.ELEMENTWISE:
        return _elements.elementwise(operand(node, 0), node.outputs[0], _elements.activation(node))
    return _windows.windowed(node)
