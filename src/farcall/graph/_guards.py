"""Limits on what a small model may ask for.

A file of 200 bytes can declare a tensor of 2**40 elements, or 40 functions that each call the next one twice.
ONNX's inference would hold all of the elements or calls in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, TypeVar

from farcall.errors import ModelError

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

MAX_NESTED = 16  # graphs inside of each other; models have three or four, and protobuf reads some 30
MAX_NODES = 1_000_000  # in a model with inlined functions; the largest exports have some 100,000
LARGEST_BYTES = 1 << 47  # of a tensor: what a process on a 64-bit machine can address
_Graph = TypeVar("_Graph")
_READ_WITHOUT_TYPE = {"EyeLike", "RegexFullMatch", "DictVectorizer", "LabelEncoder", "TreeEnsemble"}
_HIDDEN = "farcall.hidden"  # a domain that ONNX's inference does not know
_EXPAND_IS_BOUNDED = 13  # since this opset, Expand does not take its rank from the length of its operand


def check_inlined_size(proto: onnx.ModelProto, name: str) -> None:
    """Refuse a model that has too many nodes once its functions are inlined.

    Args:
        proto: A model that passed ONNX's checker: calls of functions form no cycle and nest at most 100 deep.
        name: The name of the model in messages.

    Raises:
        ModelError: The model is too large.
    """
    functions = {(item.domain, item.name): item for item in proto.functions}
    sizes: dict[tuple[str, str], int] = {}

    def count(nodes: Iterable[onnx.NodeProto]) -> int:
        found = walk(nodes)
        called = sum(measure((node.domain, node.op_type)) for node in found) if functions else 0
        return len(found) + called

    def measure(key: tuple[str, str]) -> int:
        if key not in sizes:
            sizes[key] = count(functions[key].node) if key in functions else 0
        return sizes[key]

    size = count(proto.graph.node)
    if size > MAX_NODES:
        raise ModelError(
            f"{name}: its functions, inlined, are {size:,} nodes; expected at most {MAX_NODES:,}: "
            "export it without functions that call each other many times"
        )


def check_sizes(nodes: Iterable[ir.Node]) -> None:
    """Refuse nodes whose outputs have impossible sizes, before anybody allocates them.

    Args:
        nodes: Nodes with inferred shapes. Sizes that are known only at run time are checked there.

    Raises:
        ModelError: An output would have a negative dim, or more bytes than any machine holds.
    """
    passed: set[tuple[int, ir.DataType | None]] = set()  # shapes, which many values share, by id
    for node in nodes:
        for value in node.outputs:
            shape, dtype = value.shape, value.dtype
            if shape is None or (id(shape), dtype) in passed:
                continue
            problem = _problem(shape.dims, dtype)
            if problem is not None:
                text = ", ".join(map(str, shape.dims))
                raise ModelError(
                    f"node `{node.name}` ({node.op_type}): its output `{value.name}` would be [{text}], "
                    f"{problem}; correct the sizes in the model"
                )
            passed.add((id(shape), dtype))


def _problem(dims: tuple[int | ir.SymbolicDim, ...], dtype: ir.DataType | None) -> str | None:
    """What is wrong with a tensor of these sizes; None if nothing is."""
    numbers = [dim for dim in dims if isinstance(dim, int)]
    if any(dim < 0 for dim in numbers):
        return "a dim cannot be negative"
    itemsize = 1 if dtype is None or dtype.name == "STRING" else dtype.itemsize
    if prod(numbers) * itemsize > LARGEST_BYTES:  # whatever the other dims are, unless one is 0
        return f"more than {LARGEST_BYTES:,} bytes"
    return None


def check_nesting(graph: _Graph, nested: Callable[[_Graph], Iterable[_Graph]], name: str) -> None:
    """Refuse graphs inside of graphs, as If and Loop have them, that are deeper than drivers call each other.

    Args:
        graph: A graph.
        nested: The graphs inside of the nodes of a graph.
        name: The name of the model in messages.

    Raises:
        ModelError: They are too deep.
    """
    graphs = [graph]
    for _ in range(MAX_NESTED + 1):
        graphs = [inner for outer in graphs for inner in nested(outer)]
    if graphs:
        raise ModelError(
            f"{name}: graphs inside of nodes are more than {MAX_NESTED} deep; expected fewer: export the "
            "model with less nested If, Loop and Scan"
        )


def nested_protos(scope: onnx.GraphProto | onnx.FunctionProto) -> Iterable[onnx.GraphProto]:
    """The graphs inside of the nodes of a graph or a function."""
    return [graph for node in scope.node if node.attribute for graph in subgraphs(node)]


def fit_for_inference(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` itself, or a copy without what makes ONNX's inference take all memory, or end the process.

    Before opset 13, the inference gives the result of Expand as many dims as its second operand has elements,
    without a limit. A Reshape of the operand to its own shape does not change it, but hides the length from
    that inference. Nodes that may end the process (:func:`may_end_inference`) get a domain that the inference
    leaves alone. farcall's rules infer both kinds instead.
    """
    import onnx

    scopes = [(proto.opset_import, proto.graph), *((item.opset_import, item) for item in proto.functions)]
    long = any(_any_takes_rank(scope, opset_of(imports)) for imports, scope in scopes)
    ending = any(may_end_inference(node) for _, scope in scopes for node in walk(scope.node))
    if not long and not ending:
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for scope in (copy.graph, *copy.functions):
        if long:
            _hide_lengths(scope, frozenset())
    if ending:
        _hide_ending(copy)
    return copy


def may_end_inference(node: onnx.NodeProto, is_typed: bool = False) -> bool:
    """Whether ONNX's inference for a node may end the process: onnx 1.23 reads a type that is not there.

    Args:
        node: A node.
        is_typed: Whether all of the node's inputs that are there have types.
    """
    return (
        node.op_type in _READ_WITHOUT_TYPE
        and node.domain in ("", "ai.onnx", "ai.onnx.ml")
        and not (is_typed and all(node.input))
    )


def _hide_ending(proto: onnx.ModelProto) -> None:
    """Give the nodes that may end ONNX's inference another domain."""
    import onnx

    for scope in (proto, *proto.functions):
        scope.opset_import.append(onnx.helper.make_opsetid(_HIDDEN, 1))
        for node in walk(scope.graph.node if isinstance(scope, onnx.ModelProto) else scope.node):
            if may_end_inference(node):
                node.domain = _HIDDEN


def takes_rank_from_length(node: onnx.NodeProto | ir.Node, opset: int) -> bool:
    """Whether ONNX's inference gives the node's result as many dims as its second operand has elements."""
    return node.op_type == "Expand" and node.domain in ("", "ai.onnx") and opset < _EXPAND_IS_BOUNDED


def _any_takes_rank(scope: onnx.GraphProto | onnx.FunctionProto, opset: int) -> bool:
    may = opset < _EXPAND_IS_BOUNDED
    return may and any(takes_rank_from_length(node, opset) for node in walk(scope.node))


def opset_of(imports: Iterable[onnx.OperatorSetIdProto]) -> int:
    """The version of ONNX's own domain; 0 if it is not imported."""
    return max((item.version for item in imports if item.domain in ("", "ai.onnx")), default=0)


def walk(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """All nodes, then those in their subgraphs, outer ones first."""
    found = list(nodes)
    for node in found:  # which grows
        if node.attribute:
            for graph in subgraphs(node):
                found += graph.node
    return found


def with_attributes(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes that have attributes: of the graph and the functions, and in their subgraphs.

    In large models most have none; what looks at attributes need not look at those again.
    """
    outer = chain(proto.graph.node, *(item.node for item in proto.functions))
    return [node for node in walk(outer) if node.attribute]


def subgraphs(node: onnx.NodeProto) -> Sequence[onnx.GraphProto]:
    """The graphs in the attributes of a node."""
    return [graph for item in node.attribute for graph in ([item.g] if item.HasField("g") else item.graphs)]


def _hide_lengths(scope: onnx.GraphProto | onnx.FunctionProto, constants: frozenset[str]) -> None:
    """Insert Shape and Reshape before each Expand whose shape is computed, or is an input."""
    import onnx

    constants |= {item.name for item in getattr(scope, "initializer", ())}
    constants |= {name for node in scope.node if node.op_type == "Constant" for name in node.output}
    nodes = []
    for node in scope.node:
        for graph in subgraphs(node):
            _hide_lengths(graph, constants)
        if takes_rank_from_length(node, 0) and node.input[1] not in constants:
            length, shape = (f"{node.output[0]}/farcall/{what}" for what in ("length", "shape"))
            nodes.append(onnx.helper.make_node("Shape", [node.input[1]], [length]))
            nodes.append(onnx.helper.make_node("Reshape", [node.input[1], length], [shape]))
            node.input[1] = shape
        nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
    del scope.node[:]
    scope.node.extend(nodes)
