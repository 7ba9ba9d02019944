"""Complete shape inference: every value gets dims over the symbols of the graph's inputs.

ONNX's inference gives dtypes, and all dims of a static model. It does no arithmetic over symbols, so it knows
few dims after a strided Conv over ``[batch, 1, h, w]`` or a Reshape to a computed shape. This walk over the
nodes infers those dims by the rules of :mod:`farcall.graph._shape_rules`.

If ONNX's inference finds an int for a dim, and a rule gives an expression, then both hold: they become an
equality (:mod:`farcall.graph._constraints`). An int that the model only declares for a result is not believed
then: exporters write sizes of the example inputs there, and other runtimes compute what the inputs give.
Declared ints and names of dims are used if nothing else is known, the names if the inputs' dims have them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.errors import ModelError
from farcall.graph._broadcasts import spell_out
from farcall.graph._constraints import CONSTRAINTS, NEEDS, MisfitError
from farcall.graph._control import Control, control
from farcall.graph._folding import fold_shapes
from farcall.graph._guards import check_sizes
from farcall.graph._inner_models import Budget
from farcall.graph._objects import OBJECTS, has_objects
from farcall.graph._onnx_types import is_default_domain
from farcall.graph._operand_rules import leaves_named_dims
from farcall.graph._shape_rules import KEEP_SHAPE
from farcall.graph._sinking import sink_readers
from farcall.graph._view import EXPLICIT_SINCE, Data, Dims, elementwise
from farcall.graph._visit import Visitor
from farcall.graph.dims import LATE, shape_of

if TYPE_CHECKING:
    import onnx

_KEEP_SHAPE = frozenset(KEEP_SHAPE.split())
DATA = "farcall.data"  # key in graph.meta: the elements of small integer tensors, as dims


def infer_shapes(
    model: ir.Model, types: Mapping[str, onnx.TypeProto], declared: Collection[str] = ()
) -> dict[ir.Value, Data]:
    """Write the inferred dtypes and dims to the values of ``model``, and fold its constants.

    A node of constants is computed during the walk, because later nodes may take their shapes from it. If an
    operator gives a symbol a value, nodes before it may use that: the walk repeats until nothing new is
    found.

    Args:
        model: With inlined functions and nodes in topological order. Changed in place; ``meta`` gets the
            constraints.
        types: Value name -> the type that ONNX's inference found.
        declared: Names of the values for which the model itself declares numbers, which ``types`` repeats.

    Returns:
        The elements, as dims, of small integer tensors that nodes compute from shapes.

    Raises:
        ModelError: An operator needs dims to be equal that are not.
    """
    return _run(_Walks(model, types, None, Budget(_infer), declared))


def infer_again(model: ir.Model) -> dict[ir.Value, Data]:
    """:func:`infer_shapes` for a model some of whose nodes were replaced after an earlier inference.

    The values that stayed keep what is known about them.
    """
    return _run(_Walks(model, None, None, Budget(_infer), ()))


def control_of(node: ir.Node, graph: ir.Graph) -> Control:
    """The bodies of an If, Loop or Scan of a graph whose shapes are inferred.

    Raises:
        ModelError: A body cannot be as it is.
    """
    return control(node, graph, graph.meta[DATA], Budget(_infer).infer)


def _run(walks: _Walks) -> dict[ir.Value, Data]:
    """Users know one error for what is wrong with a model."""
    try:
        return walks.run()
    except MisfitError as error:
        raise ModelError(str(error)) from error.__cause__


def _infer(model: ir.Model, data: Mapping[ir.Value, Data], budget: Budget) -> None:
    """Infer the shapes of a body in place, whose inputs have these elements."""
    fold_shapes(model, _Walks(model, None, data, budget, ()).run())


class _Walks:
    """Walks over the nodes, once or more."""

    def __init__(
        self,
        model: ir.Model,
        types: Mapping[str, onnx.TypeProto] | None,
        facts: Mapping[ir.Value, Data] | None,  # of a body: what is known of its inputs
        budget: Budget,
        declared: Collection[str],
    ) -> None:
        self._model = model
        self._known = Visitor(model, types, facts, budget, declared)
        self._opset = model.opset_imports.get("", 0)
        self._spelled: set[ir.Node] = set()  # nodes whose broadcast operands are Expand's results

    def run(self) -> dict[ir.Value, Data]:
        """Visit all nodes until no new facts about symbols are found; returns the data."""
        known = self._known
        while True:
            before, is_static = known.equal.found, True
            known.start()
            nodes = list(self._model.graph)
            for node in nodes:
                if not known.take_static(node):
                    is_static = False
                    known.visit(node)
            data = self._finish(nodes if is_static else list(self._model.graph))
            if is_static:  # nothing is unknown
                return data
            if known.equal.found > before or self._look_back() or self._sink() or self._start_naming():
                continue
            if not self._spell_out_broadcasts():
                return data

    def _spell_out_broadcasts(self) -> bool:
        """Whether operands that broadcast only in some calls got an Expand, which another walk will visit."""
        known = self._known
        if not known.has_symbols and not known.late:
            return False
        graph = self._model.graph
        shapes = {value: tuple(map(known.equal.resolve, dims)) for value, dims in known.shapes.items()}
        left = [node for node in graph if node not in self._spelled] if self._opset >= EXPLICIT_SINCE else []
        found = spell_out(left, graph, shapes, known.names)
        self._spelled |= found
        return bool(found)

    def _look_back(self) -> bool:
        """Whether known results of operators that keep the shape of their input tell unknown shapes."""
        known = self._known
        before = len(known.hints)
        for node in reversed(self._model.graph):
            if node.op_type in _KEEP_SHAPE and is_default_domain(node.domain):
                value, result = node.inputs[0], node.outputs[0]
                dims = known.shapes.get(result) or known.hints.get(result)
                if value is not None and value not in known.shapes and dims:
                    known.hints[value] = dims
        return len(known.hints) > before

    def _sink(self) -> bool:
        """Whether readers of values without a rank moved into an If, which another walk will visit."""
        known = self._known
        graph = self._model.graph
        return any(node.op_type == "If" for node in graph) and sink_readers(
            graph, lambda value: value in known.shapes or value.shape is not None, known.control, known.names
        )

    def _start_naming(self) -> bool:
        """Whether dims are still unknown, which another walk will name."""
        known = self._known
        unknown = not known.names_late and any(
            (value not in known.shapes and (value.shape is not None or node.op_type == "Squeeze"))
            or leaves_named_dims(known.view(node))
            for node in self._model.graph
            for value in node.outputs
        )
        known.names_late = known.names_late or unknown
        return unknown

    def _finish(self, nodes: Sequence[ir.Node]) -> dict[ir.Value, Data]:
        """Write the results to the model, which has these nodes; returns the data."""
        known = self._known
        resolve, changed = known.equal.resolve, known.equal.changed
        made: dict[Dims, ir.Shape] = {}  # a model has few different shapes: values share each, frozen
        for value, dims in known.shapes.items():
            if value.const_value is None or value.shape is None:
                found = tuple(map(resolve, dims)) if changed else dims
                if found not in made:
                    made[found] = shape_of(found, frozen=True)
                value.shape = made[found]
        pairs = known.equal.constraints()
        self._model.meta[CONSTRAINTS], self._model.meta[NEEDS] = tuple(pairs), pairs
        graph = self._model.graph
        check_sizes(nodes)
        graph.meta[LATE] = known.late.by_value()
        graph.meta[OBJECTS] = has_objects(graph, nodes)
        data = {value: elementwise(known.equal.resolve, items) for value, items in known.data.items()}
        graph.meta[DATA] = data
        return data
