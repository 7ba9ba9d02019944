"""Writes the nodes of a model in another opset.

A node crosses the versions of its operator one by one (:mod:`farcall.graph._crossing`). Where an operator is
newer than the opset, ONNX's own definition of it takes its place. What has no counterpart is an error: the
results never change silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

import farcall.graph._opset_operands
import farcall.graph._opset_rules  # noqa: F401 - registers its rules, as the line above
from farcall.errors import ModelError
from farcall.graph._bodies import body_of
from farcall.graph._constants import Folder, is_constant, replace
from farcall.graph._crossing import Crossing, RefusalError, carry
from farcall.graph._folding import remove_unused
from farcall.graph._inline import add_constant, lift_constant, names_of, splice
from farcall.graph._onnx_types import Found, infer_node, is_default_domain, read_type
from farcall.graph._opset_table import DOWN, UP
from farcall.graph._region import subgraphs

if TYPE_CHECKING:
    import onnx

OLDEST = 7  # before it, attributes of many operators meant something else
_INITIALIZERS_ALONE = 4  # since this IR version, an initializer need not be an input, too


def write_in(target: int, model: ir.Model, types: Mapping[str, onnx.TypeProto], name: str) -> None:
    """Write a model in another opset, in place. Its functions are inlined.

    Args:
        target: The opset.
        model: The model.
        types: The inferred types of the graph's values, by name.
        name: The model's name in messages.

    Raises:
        ModelError: A node has no counterpart in that opset.
    """
    import onnx

    _inline(model)
    for node in model.graph:
        for value in node.outputs:
            if value.name is not None and value.name in types:
                _note(value, read_type(types[value.name]))
    version, size = _opset_of(model.opset_imports), len(model.graph)
    for domain in [item for item in model.opset_imports if is_default_domain(item)]:
        del model.graph.opset_imports[domain]
    model.graph.opset_imports[""] = target
    least = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", target)], ignore_unknown=True)
    model.ir_version = max(least, _INITIALIZERS_ALONE, model.ir_version if target > version else 0)
    _Writer(model, version, target, name).write(list(model.graph), version)
    if len(model.graph) != size:
        remove_unused(model.graph)


def _inline(model: ir.Model) -> None:
    """Inline the functions. Their nodes note the opset for which they are written."""
    version = _opset_of(model.opset_imports)
    for function in model.functions.values():
        own = _opset_of(function.opset_imports)
        for node in function.all_nodes():
            node.version = own
        function.opset_imports[""] = version
    if model.functions:
        common.InlinePass()(model)


def _opset_of(imports: Mapping[str, int]) -> int:
    return max((version for domain, version in imports.items() if is_default_domain(domain)), default=1)


def _note(value: ir.Value, found: Found) -> None:
    kind, dims = found
    if value.type is None:
        value.type = kind
    if value.shape is None and dims is not None:
        value.shape = ir.Shape(dims)


class _Writer:
    """Writes one model."""

    def __init__(self, model: ir.Model, version: int, target: int, name: str) -> None:
        self._model, self._version, self._target, self._name = model, version, target, name
        self._taken = names_of(model.graph)
        self._numbers = count()
        self._folder = Folder(model)

    def write(self, nodes: Iterable[ir.Node], version: int, is_body: bool = False) -> None:
        """Write nodes, and those of the graphs inside them.

        Args:
            nodes: The nodes, in topological order.
            version: The opset for which they are written, unless they note another.
            is_body: Whether they are of a definition, whose arithmetic on ranks is computed.
        """
        for node in nodes:
            for inner in subgraphs(node):
                self.write(list(inner), version)
            if self._target < version and lift_constant(_graph(node), node):
                continue  # an initializer may be of dtypes that a Constant of old may not
            if is_default_domain(node.domain) and self._arrives(node, node.version or version):
                node.version = None
                self._infer(node)
                if is_body:
                    self._fold(node)

    def _arrives(self, node: ir.Node, version: int) -> bool:
        """Whether a node is in the model's opset now; if not, others took its place."""
        while (crossing := self._next(node, version)) is not None:
            version = crossing.arrival
            try:
                body = self._cross(crossing)
            except RefusalError as error:
                raise ModelError(self._refused(crossing, str(error))) from None
            if body is not None:
                # A rule writes for the next version, ONNX's definition is for the one that is left behind.
                self._replace(node, body, version if body.domain == _DOMAIN else version + 1)
                return False
        return True

    def _infer(self, node: ir.Node) -> None:
        if all(value.type is not None and value.shape is not None for value in node.outputs):
            return
        found = infer_node(node, self._model, {})
        for value in node.outputs:
            if value.name in found:
                _note(value, found[value.name])

    def _fold(self, node: ir.Node) -> None:
        graph = _graph(node)
        given = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
        if node.op_type in ("Shape", "Size") and given is not None and given.is_static():
            dims = np.array(given.numpy(), np.int64)
            array = dims[node.attributes.get_int("start", 0) : node.attributes.get_int("end", None)]
            replace(graph, node, {node.outputs[0]: array if node.op_type == "Shape" else dims.prod()})
        elif is_constant(node):
            self._folder.fold(node, [_partial_dims(value) for value in node.outputs])

    def _next(self, node: ir.Node, version: int) -> Crossing | None:
        """The next crossing of a node that is written for ``version``; None if it has arrived."""
        import onnx

        steps = _history().get(node.op_type, ())
        now = max((item for item in steps if item <= version), default=0)
        if not now:
            raise ModelError(f"{self._name}: node `{node.name}` ({node.op_type}) is not of opset {version}")
        later = min((item for item in steps if now < item <= self._target), default=0)
        older = max((item for item in steps if item < now), default=0)
        if later:
            older, newer = now, later
        elif now > self._target:
            newer = now
        else:
            return None
        return Crossing(
            node,
            onnx.defs.get_schema(node.op_type, older, "") if older else None,
            onnx.defs.get_schema(node.op_type, newer, ""),
            bool(later),
            self._constant,
        )

    def _cross(self, crossing: Crossing) -> onnx.FunctionProto | None:
        """Carry a node over, or find what takes its place."""
        node, rules = crossing.node, UP if crossing.is_up else DOWN
        rule = rules.get((node.op_type, crossing.newer.since_version))
        text = rule(crossing) if rule is not None else None
        if text is not None:
            return _function(node, text, crossing.arrival)
        try:
            carry(crossing)
        except RefusalError:
            body = None if crossing.is_up else body_of(node, {"": crossing.newer.since_version})
            if body is None:
                raise
            return body
        return None

    def _replace(self, node: ir.Node, body: onnx.FunctionProto, version: int) -> None:
        inner: ir.Graph = ir.serde.deserialize_function(body).graph
        self.write(splice(_graph(node), node, inner, node.inputs, self._taken), version, is_body=True)

    def _constant(self, node: ir.Node, array: np.ndarray) -> ir.Value:
        name = next(name for k in self._numbers if (name := f"farcall_constant_{k}") not in self._taken)
        self._taken.add(name)
        return add_constant(_graph(node), name, array)

    def _refused(self, crossing: Crossing, reason: str) -> str:
        node, since = crossing.node, crossing.newer.since_version
        cure = f"expected at most opset {since - 1}" if crossing.is_up else f"expected opset {since} or newer"
        written = f"opset {crossing.source.since_version}"
        if crossing.is_up and self._target == OLDEST and self._version < OLDEST:
            cure = f"export the model again for opset {OLDEST} or newer"
        return (
            f"{self._name}: node `{node.name or node.outputs[0].name}` ({node.op_type} of {written}) cannot "
            f"be written in opset {self._target}: {reason}; {cure}"
        )


_DOMAIN = "farcall.opset"  # of the functions that rules write


def _function(node: ir.Node, text: str, version: int) -> onnx.FunctionProto:
    import onnx

    given = ", ".join(f"i{index}" for index in range(len(node.inputs)))
    made = ", ".join(f"o{index}" for index in range(len(node.outputs)) if f"o{index}" in text)
    head = f'<domain: "{_DOMAIN}", opset_import: ["" : {version}]> {node.op_type} ({given}) => ({made})'
    return onnx.parser.parse_function(f"{head} {{ {text} }}")


def _graph(node: ir.Node) -> ir.Graph:
    graph = node.graph
    if not isinstance(graph, ir.Graph):
        raise TypeError(f"node `{node.name}` is in no graph")
    return graph


def _partial_dims(value: ir.Value) -> tuple[int | None, ...] | None:
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else None for dim in value.shape)


@cache
def _history() -> dict[str, tuple[int, ...]]:
    """Operator -> the opsets in which its versions begin."""
    import onnx

    found: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found.setdefault(schema.name, []).append(schema.since_version)
    return {name: tuple(sorted(items)) for name, items in found.items()}
