"""What the graphs inside a node, and the definition of its operator, tell of the node's outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from farcall.errors import ModelError
from farcall.graph._bodies import body_of
from farcall.graph._control import Control, control
from farcall.graph._defined import Defined, Equal, defined
from farcall.graph._region import reads
from farcall.graph._view import Data

_MOST_INNER_NODES = 100_000  # that are visited for all graphs inside of a model's nodes


class Budget:
    """Bounds the work for graphs inside of graphs, each of which may take several rounds.

    ``infer`` infers the shapes of a body in place, within this budget.
    """

    def __init__(self, infer: Callable[[ir.Model, Mapping[ir.Value, Data], Budget], None]) -> None:
        self._infer, self._left = infer, _MOST_INNER_NODES

    def infer(self, model: ir.Model, data: Mapping[ir.Value, Data]) -> None:
        """Infer the shapes of a body, in place."""
        self._left -= 1 + len(model.graph)
        if self._left < 0:
            raise ModelError(
                f"the {model.graph.name}: shapes in it take more than {_MOST_INNER_NODES:,} steps; expected "
                "fewer graphs inside of each other"
            )
        self._infer(model, data, self)


class InnerModels:
    """The bodies and definitions of the nodes of one model, each of which is made once for the same facts."""

    def __init__(self, model: ir.Model, budget: Budget) -> None:
        self._model, self._infer = model, budget.infer
        self._controls: dict[tuple[ir.Node, object], Control | None] = {}
        self._defined: dict[tuple[ir.Node, object], tuple[list[Defined], list[Equal]] | None] = {}

    def control(self, node: ir.Node, data: Mapping[ir.Value, Data]) -> Control | None:
        """The graphs inside a node with what is known of their inputs; None if they cannot be as they are."""
        read = [value for value in reads(node) if value.const_value is None]
        facts = tuple((str(value.shape), str(data.get(value))) for value in read)
        if (node, facts) not in self._controls:
            try:
                self._controls[node, facts] = control(node, self._model.graph, data, self._infer)
            except ModelError:
                self._controls[node, facts] = None  # whoever takes the node says why it cannot be
        return self._controls[node, facts]

    def definition(self, node: ir.Node) -> tuple[list[Defined], list[Equal]] | None:
        """What the definition of a node by other operators tells: see :func:`defined`."""
        facts = tuple((str(value.type), str(value.shape)) for value in node.inputs if value is not None)
        if (node, facts) not in self._defined:
            body = body_of(node, self._model.opset_imports)
            self._defined[node, facts] = None if body is None else defined(node, body, self._infer)
        return self._defined[node, facts]
