"""Shape inference to the end: every value gets dims over the symbols of the graph's inputs.

ONNX's own inference gives dtypes, and all dims of a static model. It keeps no arithmetic over symbols:
behind a strided Conv over ``[batch, 1, h, w]`` or a Reshape by a computed shape it knows little. This walk,
once over the nodes in order, fills that in by the rules of :mod:`farcall.graph._shape_rules`.

Who wins where several say something about a dim: an int that ONNX's inference finds, or that the model
declares for the value, against our expression: both, as an equality (:mod:`farcall.graph._constraints`).
Declared names of dims inside the graph are not used, unless nothing else is known and they are names of the
inputs' dims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.graph._constraints import Equalities
from farcall.graph._onnx_types import Found, infer_node, read_type
from farcall.graph._shape_data import DATA_RULES
from farcall.graph._shape_rules import RULES, misread_by_onnx
from farcall.graph._view import MAX_DATA, Data, Dims, NodeView, NotKnownError, elementwise
from farcall.graph.dims import (
    Dim,
    identifier,
    is_identifier,
    parse,
    product,
    set_dims,
    symbol,
    symbols,
    try_dims,
)

if TYPE_CHECKING:
    import onnx

CONSTRAINTS = "farcall.constraints"  # key in model.meta: tuple[tuple[Dim, Dim], ...]

_DATA_DTYPES = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
PartialDims = tuple["Dim | None", ...]


def infer_shapes(model: ir.Model, types: Mapping[str, onnx.TypeProto]) -> dict[ir.Value, Data]:
    """Write dtypes and dims to every value of ``model`` that they are found for.

    Args:
        model: Functions inlined, nodes in topological order. Changed in place; its meta gets the constraints.
        types: What ONNX's own inference found, by value name.

    Returns:
        The elements, as dims, of small integer tensors that nodes compute from shapes.

    Raises:
        ModelError: Dims that an operator needs to be equal are not.
    """
    names = name_inputs(model.graph)
    walk = _Walk(model, types, names)
    for node in model.graph:
        walk.visit(node)
    return walk.finish()


def constraints(model: ir.Model) -> tuple[tuple[Dim, Dim], ...]:
    """Pairs of dims, over the symbols of the inputs, that must be equal whenever the model is entered."""
    found: tuple[tuple[Dim, Dim], ...] = model.meta.get(CONSTRAINTS, ())
    return found


def name_inputs(graph: ir.Graph) -> tuple[str, ...]:
    """Make every dim of a graph input an int or a plain symbol, and return the symbols in order.

    A dim without a name is called ``{input}_dim{axis}``; so is one whose name is no identifier but an
    expression. Other names get their odd characters replaced.
    """
    declared = {dim.value for value in graph.inputs for dim in value.shape or () if not isinstance(dim, int)}
    taken = {name for name in declared if name and is_identifier(name)}
    renamed: dict[str, str] = {}
    for value in graph.inputs:
        if value.shape is None:
            continue
        result: list[Dim] = []
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, int):
                result.append(dim)
                continue
            name = dim.value or ""
            if not is_identifier(name):
                key = name or f"{value.name}\0{axis}"
                wanted = f"{value.name}_dim{axis}" if not name or _is_expression(name) else name
                name = renamed.setdefault(key, _unique(identifier(wanted), taken))
                taken.add(name)
            result.append(symbol(name))
        set_dims(value, result)
    return symbols(*(dim for value in graph.inputs for dim in try_dims(value) or ()))


def _is_expression(name: str) -> bool:
    try:
        parse(name)
    except ValueError:
        return False
    return True


def _unique(name: str, taken: set[str]) -> str:
    number = 0
    result = name
    while result in taken:
        number += 1
        result = f"{name}_{number}"
    return result


class _Walk:
    """One pass over the nodes: the dims and the small integer data known so far."""

    def __init__(self, model: ir.Model, types: Mapping[str, onnx.TypeProto], names: Iterable[str]) -> None:
        self._model = model
        self._types = types
        self._symbols = frozenset(map(symbol, names))
        self._equal = Equalities(map(symbol, names))
        self._opset = model.opset_imports.get("", 0)
        self._shapes: dict[ir.Value, Dims] = {}
        self._data: dict[ir.Value, Data] = {}
        self._read: dict[bytes, Found] = {}
        self._overruled: set[ir.Value | None] = set()  # ONNX's finding for these was wrong
        for value in (*model.graph.inputs, *model.graph.initializers.values()):
            if (known := try_dims(value)) is not None:
                self._shapes[value] = known

    def visit(self, node: ir.Node) -> None:
        """Find the dims, dtypes and data of a node's outputs."""
        reported = [self._reported(value) for value in node.outputs]
        is_known = all(map(_is_static, reported)) and self._has_static_inputs(node)
        if node.domain in ("", "ai.onnx"):
            if self._overrules(node):
                self._overrule(node, reported)
            elif not is_known:
                self._apply_rule(node, reported)
        for value, found in zip(node.outputs, reported, strict=True):
            if value not in self._shapes and found is not None:
                self._accept(value, found)
        if node.op_type in DATA_RULES and node.domain in ("", "ai.onnx"):
            self._follow_data(node)

    def _overrules(self, node: ir.Node) -> bool:
        """Whether our rule counts, and ONNX's finding does not."""
        if self._overruled and not self._overruled.isdisjoint(node.inputs):
            return True
        return node.op_type.endswith("Pool") and misread_by_onnx(self._view(node))

    def _overrule(self, node: ir.Node, reported: list[PartialDims | None]) -> None:
        said = list(reported)
        reported[:] = [None] * len(reported)
        self._apply_rule(node, reported)
        for value, dims in zip(node.outputs, said, strict=True):
            if dims is not None and dims != self._shapes.get(value):
                self._overruled.add(value)

    def _reported(self, value: ir.Value) -> PartialDims | None:
        """ONNX's finding for the model as a whole, which holds the model's own declarations too."""
        proto = self._types.get(value.name or "")
        if proto is None:
            return None
        key = proto.SerializeToString()  # a model has few different types: each is read once
        found = self._read.get(key)
        if found is None:
            found = self._read[key] = read_type(proto)
        return self._take(value, found)

    def _take(self, value: ir.Value, found: Found) -> PartialDims | None:
        """Keep a type that ONNX found, and return the dims: a name that is no input's is not known."""
        kind, dims = found
        if isinstance(kind, ir.TensorType):
            value.type = ir.TensorType(kind.dtype)  # not shared: setting a value's dtype changes its type
        elif kind is not None:
            value.type = kind
        if dims is None:
            return None
        return tuple(dim if isinstance(dim, int) else self._known(dim) for dim in dims)

    def _known(self, name: str | None) -> Dim | None:
        try:
            dim = parse(name or "")
        except ValueError:
            return None
        return dim if isinstance(dim, int) or dim.free_symbols <= self._symbols else None

    def _has_static_inputs(self, node: ir.Node) -> bool:
        return all(value is None or _is_static(self._shapes.get(value)) for value in node.inputs)

    def _view(self, node: ir.Node) -> NodeView:
        return NodeView(node, self._opset, self._shapes, self._data, self._equal)

    def _apply_rule(self, node: ir.Node, reported: list[PartialDims | None]) -> None:
        found = self._by_rule(node)
        if not found:  # a 0 that ONNX finds over symbols is its 0 for "not known" (Attention), or a rarity
            reported[:] = [None if said is None else tuple(dim or None for dim in said) for said in reported]
        if not found or any(value.dtype is None for value in node.outputs):
            reported[:] = map(_better, reported, self._ask_onnx(node))
        where = f"node `{node.name}` ({node.op_type})"
        for value, dims, said in zip(node.outputs, found, reported, strict=False):
            agreed = said if said is not None and len(said) == len(dims) else [None] * len(dims)
            self._shapes[value] = tuple(
                self._equal.equate(a, b, where) if isinstance(b, int) else a
                for a, b in zip(dims, agreed, strict=True)
            )

    def _by_rule(self, node: ir.Node) -> list[Dims]:
        rule = RULES.get(node.op_type)
        if rule is None:
            return []
        try:
            return rule(self._view(node))
        except NotKnownError:
            return []

    def _ask_onnx(self, node: ir.Node) -> list[PartialDims | None]:
        """ONNX's inference for this node alone, now that more is known of its inputs."""
        for value in node.inputs:
            if value is not None and value in self._shapes and value.const_value is None:
                set_dims(value, self._shapes[value])
        found = infer_node(node, self._model, self._data)
        asked = [self._take(value, found.get(value.name or "", (None, None))) for value in node.outputs]
        return [None if said is None else tuple(dim or None for dim in said) for said in asked]

    def _follow_data(self, node: ir.Node) -> None:
        output = node.outputs[0]
        dims = self._shapes.get(output)
        if output.dtype not in _DATA_DTYPES or dims is None or not _is_static(dims):
            return
        if product(dims) > MAX_DATA:
            return
        try:
            self._data[output] = DATA_RULES[node.op_type](self._view(node)).reshape(dims)
        except (NotKnownError, IndexError, ValueError):
            return

    def _accept(self, value: ir.Value, found: PartialDims) -> None:
        known = tuple(dim for dim in found if dim is not None)
        if len(known) == len(found):
            self._shapes[value] = known
        else:
            set_dims(value, found)

    def finish(self) -> dict[ir.Value, Data]:
        """Write what was found to the model; returns the data."""
        for value, dims in self._shapes.items():
            if value.const_value is None or value.shape is None:
                set_dims(value, map(self._equal.resolve, dims))
        self._model.meta[CONSTRAINTS] = self._equal.constraints()
        return {value: elementwise(self._equal.resolve, items) for value, items in self._data.items()}


def _better(a: PartialDims | None, b: PartialDims | None) -> PartialDims | None:
    """The two findings together: where one does not know a dim, the other's counts."""
    if a is None or b is None or len(a) != len(b):
        return b if a is None else a
    return tuple(y if x is None else x for x, y in zip(a, b, strict=True))


def _is_static(dims: PartialDims | None) -> bool:
    return dims is not None and all(isinstance(dim, int) for dim in dims)
