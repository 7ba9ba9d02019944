"""Sequences and optionals that are known when the model is loaded: their operators become those of tensors.

A sequence is known as the list of its tensors (SequenceConstruct, Split), or as one tensor whose slices along
an axis it has. The latter is what a Loop gives that appends one tensor in each step, as scripts do: the Loop
is rewritten to stack them.

What stays are sequences that come from outside, or whose tensors have shapes of their own in each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from farcall.graph._control import substitute
from farcall.graph._inline import add_constant
from farcall.graph._region import captured_by, subgraphs
from farcall.graph._unroll import unrolled
from farcall.graph._view import NodeView, NotKnownError
from farcall.graph.dims import Dim, is_object

OPERATORS = frozenset(
    (
        *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert"),
        *("SequenceLength", "SplitToSequence", "ConcatFromSequence"),
        *("Optional", "OptionalGetElement", "OptionalHasElement"),
    )
)
_MOST = 1024  # tensors of a sequence that are listed
_AXES_ARE_INPUTS = 13  # since this opset, Split, Squeeze and Unsqueeze take their numbers as an input


@dataclass(frozen=True)
class Stack:
    """The slices of a tensor along an axis, which they have with one element, or do not have."""

    tensor: ir.Value
    axis: int
    keeps: bool


Known = tuple[ir.Value, ...] | Stack


class Sequences:
    """The sequences of a graph that are known."""

    def __init__(self, graph: ir.Graph, opset: int) -> None:
        self._graph, self._opset = graph, opset
        self._known: dict[ir.Value, Known] = {}

    def resolve(self, view: NodeView) -> list[ir.Node] | None:
        """Follow the sequence that a node makes, or replace a node that reads one by nodes of tensors.

        Returns:
            The new nodes, which stand before the node's place; None if the node stays.
        """
        node = view.node
        try:
            return getattr(self, f"_{node.op_type}")(_Rewrite(self._graph, node, self._opset), view)  # type: ignore[no-any-return]
        except NotKnownError:
            return None

    def bring_inside(self, node: ir.Node) -> None:
        """Make the known sequences that graphs inside of a node read again, in these graphs."""
        for graph in subgraphs(node):
            for value in captured_by(graph, self._graph):
                if value in self._known and len(graph):
                    maker = _made_again(value, self._known[value])
                    graph.insert_before(graph[0], [maker])
                    substitute(graph, {value: maker.outputs[0]})

    def without_loop(self, node: ir.Node, taken: set[str]) -> list[ir.Node] | None:
        """Rewrite a Loop that carries a known sequence: its few steps become nodes, or stack their tensors.

        A Loop of an unknown number of steps appends a tensor to an empty sequence in each, and stacks these.

        A Loop that reads sequences of unknown tensors stays: only a package can compute it, and it may append
        tensors of several shapes.
        """
        if any(map(is_object, captured_by(node.attributes["body"].as_graph(), self._graph))):
            return None
        if any(value in self._known for value in node.inputs):
            found = unrolled(self._graph, node, taken)
            if found is not None:
                return found
        for index, value in enumerate(node.inputs):
            if value is not None and self._known.get(value) == ():
                found = _stacked(self._graph, node, index)
                if found is not None:
                    return found
        return None

    def _list(self, view: NodeView) -> Known:
        value = view.node.inputs[0]
        if value is None or value not in self._known:
            raise NotKnownError
        return self._known[value]

    def _items(self, view: NodeView) -> tuple[ir.Value, ...]:
        found = self._list(view)
        if isinstance(found, Stack):
            raise NotKnownError
        return found

    # ------------------------------------------------------------------- making sequences

    def _note(self, view: NodeView, known: Known) -> None:
        if not isinstance(known, Stack) and len(known) > _MOST:
            raise NotKnownError
        self._known[view.node.outputs[0]] = known

    def _SequenceEmpty(self, rewrite: _Rewrite, view: NodeView) -> None:  # noqa: N802 - an operator
        self._note(view, ())

    def _SequenceConstruct(self, rewrite: _Rewrite, view: NodeView) -> None:  # noqa: N802
        self._note(view, tuple(value for value in view.node.inputs if value is not None))

    def _Identity(self, rewrite: _Rewrite, view: NodeView) -> None:  # noqa: N802 - of a sequence
        self._note(view, self._list(view))

    def _SequenceInsert(self, rewrite: _Rewrite, view: NodeView) -> None:  # noqa: N802
        items, new = self._items(view), view.node.inputs[1]
        if new is None:
            raise NotKnownError
        at = _position(view, 2, len(items), is_end=True) if view.has(2) else len(items)
        self._note(view, (*items[:at], new, *items[at:]))

    def _SequenceErase(self, rewrite: _Rewrite, view: NodeView) -> None:  # noqa: N802
        items = self._items(view)
        at = _position(view, 1, len(items)) if view.has(1) else len(items) - 1
        self._note(view, (*items[:at], *items[at + 1 :]))

    def _SplitToSequence(self, rewrite: _Rewrite, view: NodeView) -> list[ir.Node] | None:  # noqa: N802
        tensor, shape = view.node.inputs[0], view.shape(0)
        axis = view.attr("axis", 0) % max(len(shape), 1)
        if tensor is None or not shape:
            raise NotKnownError
        is_single = not view.has(1) or (view.shape(1) == () and view.ints(1) == [1])
        if is_single:
            # ONNX says that keepdims does not count if a size is given. It does for TorchScript's exporter,
            # which writes unbind with the size 1, and for onnxruntime.
            self._note(view, Stack(tensor, axis, view.attr("keepdims", 1) == 1))
            return None
        sizes = _sizes(view, shape[axis])
        if not 0 < len(sizes) <= _MOST:
            raise NotKnownError
        parts = rewrite.split(tensor, axis, sizes)
        construct = rewrite.add("SequenceConstruct", parts)
        return rewrite.done(construct)

    # ------------------------------------------------------------------ reading sequences

    def _SequenceLength(self, rewrite: _Rewrite, view: NodeView) -> list[ir.Node]:  # noqa: N802
        found = self._list(view)
        if not isinstance(found, Stack):
            return rewrite.done(rewrite.add("Identity", [rewrite.constant(len(found))]))
        shape = rewrite.add("Shape", [found.tensor])
        return rewrite.done(rewrite.add("Gather", [shape, rewrite.constant(found.axis)], axis=0))

    def _SequenceAt(self, rewrite: _Rewrite, view: NodeView) -> list[ir.Node]:  # noqa: N802
        found, index = self._list(view), view.node.inputs[1]
        if not isinstance(found, Stack):
            item = found[_position(view, 1, len(found))]
            return rewrite.done(rewrite.add("Identity", [item]))
        if index is None or view.shape(1) != ():
            raise NotKnownError
        if found.keeps:
            index = rewrite.unsqueeze(index, 0)
        return rewrite.done(rewrite.add("Gather", [found.tensor, index], axis=found.axis))

    def _ConcatFromSequence(self, rewrite: _Rewrite, view: NodeView) -> list[ir.Node]:  # noqa: N802
        found, axis = self._list(view), view.attr("axis", 0)
        is_new = view.attr("new_axis", 0) == 1
        if isinstance(found, Stack):
            return rewrite.done(self._concatenated(rewrite, found, axis, is_new, view))
        if not found:
            raise NotKnownError
        items = [rewrite.unsqueeze(item, axis) for item in found] if is_new else list(found)
        return rewrite.done(rewrite.add("Concat", items, axis=axis))

    def _concatenated(
        self, rewrite: _Rewrite, found: Stack, axis: int, is_new: bool, view: NodeView
    ) -> ir.Value:
        rank = view.rank(found.tensor)
        if found.keeps:
            if is_new or axis % rank != found.axis:
                raise NotKnownError
            return rewrite.add("Identity", [found.tensor])
        axis %= rank if is_new else rank - 1
        order = [item for item in range(rank) if item != found.axis]
        order.insert(axis, found.axis)
        result = found.tensor
        if order != list(range(rank)):
            result = rewrite.add("Transpose", [result], perm=order)
        if is_new:
            return result
        # Two axes become one: the last ones by a Reshape that copies those before, and tells no size.
        shape = rewrite.add("Shape", [result])
        before, after = rewrite.slice(shape, 0, axis), rewrite.slice(shape, axis + 2, rank)
        wanted = rewrite.add("Concat", [before, rewrite.constant([-1]), after], axis=0)
        return rewrite.add("Reshape", [result, wanted])

    # ------------------------------------------------------------------------- optionals

    def _Optional(self, rewrite: _Rewrite, view: NodeView) -> None:  # noqa: N802
        items = [value for value in view.node.inputs if value is not None]
        self._note(view, tuple(items))

    def _OptionalHasElement(self, rewrite: _Rewrite, view: NodeView) -> list[ir.Node]:  # noqa: N802
        value = view.node.inputs[0] if view.node.inputs else None
        has = value is not None and (_is_tensor(value) or bool(self._optional(view)))
        return rewrite.done(rewrite.add("Identity", [rewrite.constant(has)]))

    def _OptionalGetElement(self, rewrite: _Rewrite, view: NodeView) -> list[ir.Node]:  # noqa: N802
        value = view.node.inputs[0]
        if value is None or not _is_tensor(value):
            (value,) = self._optional(view) or (None,)
        if value is None or not _is_tensor(value):
            raise NotKnownError
        return rewrite.done(rewrite.add("Identity", [value]))

    def _optional(self, view: NodeView) -> tuple[ir.Value, ...]:
        value = view.node.inputs[0]
        maker = None if value is None else value.producer()
        if maker is None or maker.op_type != "Optional":
            raise NotKnownError
        return self._items(view)


def _made_again(value: ir.Value, known: Known) -> ir.Node:
    name = f"{value.name}/inside"
    if isinstance(known, Stack):
        attributes = {"axis": known.axis, "keepdims": int(known.keeps)}
        node = ir.node("SplitToSequence", [known.tensor], attributes, name=name)
    else:
        node = ir.node("SequenceConstruct" if known else "SequenceEmpty", known, name=name)
    node.outputs[0].name, node.outputs[0].type = name, value.type
    return node


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.TensorType)


def _position(view: NodeView, index: int, count: int, is_end: bool = False) -> int:
    """A constant position; negative ones count from the end, which ``is_end`` makes a position, too."""
    (at,) = view.ints(index)
    if not -count <= at < count + is_end:
        raise NotKnownError
    return at + count if at < 0 else at


def _sizes(view: NodeView, length: Dim) -> list[int]:
    if view.shape(1) != ():
        return view.ints(1)
    (each,) = view.ints(1)
    if not isinstance(length, int):
        raise NotKnownError
    if each < 1 or length // each > _MOST:
        raise NotKnownError
    return [min(each, length - at) for at in range(0, length, each)]


class _Rewrite:
    """Adds nodes before a node, and then replaces it by the last of them."""

    def __init__(self, graph: ir.Graph, node: ir.Node, opset: int) -> None:
        self._graph, self._node, self._opset = graph, node, opset
        self._nodes: list[ir.Node] = []

    def add(
        self, operator: str, inputs: Sequence[ir.Value], outputs: int = 1, **attributes: object
    ) -> ir.Value:
        """Add a node, and return its (first) output."""
        node = ir.node(
            operator,
            inputs,
            attributes,
            num_outputs=outputs,
            name=f"{self._node.name}/{operator}_{len(self._nodes)}",
        )
        for k, value in enumerate(node.outputs):
            value.name = f"{node.name}:{k}"
        self._nodes.append(node)
        return node.outputs[0]

    def constant(self, value: int | bool | Sequence[int]) -> ir.Value:
        """A constant of int64, or of bool."""
        array: np.ndarray[Any, Any] = np.array(value, dtype=np.bool_ if isinstance(value, bool) else np.int64)
        name = f"{self._node.name}/{'_'.join(map(str, (len(self._nodes), *array.shape, *array.ravel())))}"
        known = self._graph.initializers.get(name)
        return add_constant(self._graph, name, array) if known is None else known

    def unsqueeze(self, value: ir.Value, axis: int) -> ir.Value:
        """A value with a further axis."""
        if self._opset < _AXES_ARE_INPUTS:
            return self.add("Unsqueeze", [value], axes=[axis])
        return self.add("Unsqueeze", [value, self.constant([axis])])

    def split(self, value: ir.Value, axis: int, sizes: Sequence[int]) -> list[ir.Value]:
        """The parts of a value."""
        if self._opset < _AXES_ARE_INPUTS:
            self.add("Split", [value], len(sizes), axis=axis, split=list(sizes))
        else:
            self.add("Split", [value, self.constant(list(sizes))], len(sizes), axis=axis)
        return list(self._nodes[-1].outputs)

    def slice(self, value: ir.Value, start: int, stop: int) -> ir.Value:
        """Some elements of a value of one axis."""
        return self.add("Slice", [value, self.constant([start]), self.constant([stop])])

    def done(self, result: ir.Value) -> list[ir.Node]:
        """Put the nodes in place of the node."""
        (old,) = self._node.outputs
        self._graph.insert_before(self._node, self._nodes)
        result.type, result.shape = old.type, old.shape
        old.replace_all_uses_with(result, replace_graph_outputs=True)
        old.name, result.name = None, old.name
        self._graph.remove(self._node, safe=True)
        return self._nodes


def _stacked(graph: ir.Graph, node: ir.Node, index: int) -> list[ir.Node] | None:
    """Replace a Loop whose input ``index`` is a sequence to which each step appends; None if it does not."""
    body = node.attributes["body"].as_graph()
    own, made = body.inputs[index], body.outputs[index - 1]
    insert = made.producer()
    appends = (
        insert is not None
        and insert.op_type == "SequenceInsert"
        and insert.graph is body
        and insert.inputs[0] is own
        and all(value is None for value in insert.inputs[2:])
        and [user for user, _ in own.uses()] == [insert]
        and not made.uses()
        and list(body.outputs).count(made) == 1
    )
    item = insert.inputs[1] if insert is not None else None
    if not appends or insert is None or item is None or not _is_tensor_or_unknown(item):
        return None
    del body.inputs[index]
    body.outputs.append(item)
    del body.outputs[index - 1]
    body.remove(insert, safe=True)
    outputs = [value for k, value in enumerate(node.outputs) if k != index - 2]
    inputs = [value for k, value in enumerate(node.inputs) if k != index]
    attribute = node.attributes.pop("body")
    loop = ir.Node("", "Loop", inputs, [attribute], num_outputs=len(node.outputs), name=node.name)
    split = ir.node(
        "SplitToSequence", [loop.outputs[-1]], {"axis": 0, "keepdims": 0}, name=f"{node.name}/split"
    )
    graph.insert_before(node, [loop, split])
    loop.outputs[-1].name = f"{node.name}/stack_{index}"
    for old, new in zip(
        [*outputs, node.outputs[index - 2]], [*loop.outputs[:-1], split.outputs[0]], strict=True
    ):
        new.type, new.shape, name = old.type, old.shape, old.name
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        old.name, new.name = None, name
    for k in range(len(node.inputs)):
        node.replace_input_with(k, None)
    graph.remove(node, safe=True)
    return [loop, split]


def _is_tensor_or_unknown(value: ir.Value) -> bool:
    return value.type is None or isinstance(value.type, ir.TensorType)
