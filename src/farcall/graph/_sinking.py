"""Moves the readers of an If into its branches where the branches give tensors of different ranks.

Behind such an If, nothing has a known shape. In a branch the rank is known, and after a few nodes it often is
the same in both: a scalar and a tensor of one element, added to a vector, are both a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

from farcall.graph._control import Control
from farcall.graph._inline import discard, rename, replace_uses
from farcall.graph._onnx_types import is_default_domain
from farcall.graph._region import reads, subgraphs

_MOST_NODES = 4096  # that the branches of an If may have in the end


def sink_readers(
    graph: ir.Graph,
    is_ranked: Callable[[ir.Value], bool],
    control: Callable[[ir.Node], Control | None],
    taken: set[str],
) -> bool:
    """Move the readers of outputs without a rank into the branches of the If that gives them.

    A call moves one layer of readers, and what lies between them and the If. Once shapes are inferred anew,
    another call may have to move the next layer.

    Args:
        graph: A graph whose shapes are inferred, and which is changed in place.
        is_ranked: Whether the number of dims of a value is known.
        control: The branches of an If of the graph as models whose shapes are inferred.
        taken: The names of the model; gets the new ones.

    Returns:
        Whether nodes were moved.
    """
    for node in list(graph):
        if node.op_type != "If" or not is_default_domain(node.domain):
            continue
        unknown = {value for value in _open_outputs(node) if not is_ranked(value)}
        if not unknown:
            continue
        known = control(node)
        moved = _between(graph, node, unknown & _ranked_inside(node, known)) if known else []
        if moved and sum(map(_size, subgraphs(node))) + 2 * sum(map(_weight, moved)) <= _MOST_NODES:
            _sink(graph, node, moved, taken)
            return True
    return False


def _open_outputs(node: ir.Node) -> list[ir.Value]:
    """The tensors that only nodes read: the rank of an output of the graph is settled by nobody."""
    return [
        value
        for value in node.outputs
        if isinstance(value.type, ir.TensorType | None) and value.uses() and not value.is_graph_output()
    ]


def _ranked_inside(node: ir.Node, known: Control) -> set[ir.Value]:
    """The outputs whose ranks the branches know: the readers of others would be as lost in a branch."""
    given = zip(*(inner.model.graph.outputs for inner in known.bodies.values()), strict=False)
    return {
        value
        for value, made in zip(node.outputs, given, strict=False)
        if all(one.shape is not None or _is_from_if(one) for one in made)
    }


def _is_from_if(value: ir.Value) -> bool:
    maker = value.producer()
    return maker is not None and maker.op_type == "If"


def _between(graph: ir.Graph, node: ir.Node, values: set[ir.Value]) -> list[ir.Node]:
    """The nodes that read the values of a node, and those on a way from it to one of them; in order."""
    made = set(node.outputs)
    behind: list[ir.Node] = []
    for item in graph:
        if not made.isdisjoint(reads(item)):
            behind.append(item)
            made.update(item.outputs)
    needed: set[ir.Value] = set()
    found = []
    for item in reversed(behind):
        read = reads(item)
        if not values.isdisjoint(read) or not needed.isdisjoint(item.outputs):
            found.append(item)
            needed.update(read)
    return found[::-1]


def _size(graph: ir.Graph) -> int:
    return sum(1 for _ in ir.traversal.RecursiveGraphIterator(graph))


def _weight(node: ir.Node) -> int:
    return 1 + sum(map(_size, subgraphs(node)))


def _sink(graph: ir.Graph, node: ir.Node, moved: Sequence[ir.Node], taken: set[str]) -> None:
    """Replace an If by one whose branches compute ``moved``, too."""
    own = set(moved)
    made = [value for item in (node, *moved) for value in item.outputs]
    kept = [value for value in made if value.is_graph_output() or any(u not in own for u, _ in value.uses())]
    for attribute in node.attributes.values():
        _extend(attribute.as_graph(), attribute.name, node, moved, kept, taken)
    attributes = [ir.Attr(item.name, item.type, item.value) for item in node.attributes.values()]
    new = ir.Node("", "If", node.inputs, attributes, num_outputs=len(kept), name=node.name)
    graph.insert_before(node, [new])
    for old, value in zip(kept, new.outputs, strict=True):
        name, value.type, value.shape = old.name, old.type, old.shape
        old.replace_all_uses_with(value, replace_graph_outputs=True)
        old.name, value.name = None, name
    node.attributes.clear()
    for item in (*reversed(moved), node):
        discard(graph, item)
    graph.sort()


def _extend(
    branch: ir.Graph,
    prefix: str,
    node: ir.Node,
    moved: Sequence[ir.Node],
    kept: Iterable[ir.Value],
    taken: set[str],
) -> None:
    """Add copies of nodes to a branch of a node, whose outputs are ``kept`` then."""
    own = {value for item in moved for value in item.outputs}
    entering = dict.fromkeys(value for item in moved for value in reads(item) if value not in own)
    inner = ir.GraphView(list(entering), list(own), nodes=moved).clone()
    copies = dict(zip(own, inner.outputs, strict=True))
    copies |= zip(node.outputs, branch.outputs, strict=True)
    rename(inner, prefix, taken)
    for value, actual in zip(list(inner.inputs), entering, strict=True):
        replace_uses(value, copies.get(actual, actual))
    for value in inner.outputs:
        value.shape = None
    nodes = list(inner)
    inner.outputs.clear()
    inner.remove(nodes)
    branch.extend(nodes)
    branch.outputs[:] = [copies[value] for value in kept]
