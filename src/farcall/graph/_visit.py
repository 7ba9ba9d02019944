"""One node of a walk that infers shapes: its outputs get dims, dtypes and data from all that is known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard

import onnx_ir as ir

import farcall.graph._index_rules
import farcall.graph._signal_rules  # noqa: F401 - registers its rules
from farcall.errors import FarcallError
from farcall.graph._constants import Folder, is_constant, replace
from farcall.graph._constraints import Equalities, MisfitError, Need, constraints, needs
from farcall.graph._control import OPERATORS as CONTROL_OPERATORS
from farcall.graph._control import Control, is_control
from farcall.graph._inline import names_of, splice
from farcall.graph._inner_models import Budget, InnerModels
from farcall.graph._input_names import name_inputs, names_of_inputs
from farcall.graph._late_dims import LateDims
from farcall.graph._microsoft_calls import DOMAIN
from farcall.graph._microsoft_dims import fix_dims
from farcall.graph._ml_rules import ML, set_ml_dtypes
from farcall.graph._onnx_types import infer_node, is_default_domain
from farcall.graph._partial import both, contradict, is_static, text
from farcall.graph._qdq import feeds_integers
from farcall.graph._region import reads
from farcall.graph._reported import Reported
from farcall.graph._sequences import OPERATORS as SEQUENCE_OPERATORS
from farcall.graph._sequences import Sequences
from farcall.graph._shape_data import DATA_RULES, followed, has_data
from farcall.graph._shape_rules import FITTING, OFTEN_MISREAD, RULES, TRAINING, misread_by_onnx
from farcall.graph._view import Data, Dims, NodeView, NotKnownError, PartialDims, constant_data
from farcall.graph.dims import Dim, is_large, set_dims, symbol, try_dims

if TYPE_CHECKING:
    import onnx


_ASKED = frozenset((*CONTROL_OPERATORS, *SEQUENCE_OPERATORS, *OFTEN_MISREAD))


class Visitor:
    """Visits the nodes of a model; holds what is known of values. A walk begins with :meth:`start`.

    ``hints`` are shapes that are known from what is made of them. With ``names_late``, dims that stay unknown
    get symbols, those of ``late``.
    """

    def __init__(
        self,
        model: ir.Model,
        types: Mapping[str, onnx.TypeProto] | None,
        given: Mapping[ir.Value, Data] | None,
        budget: Budget,
        declared: Collection[str],
    ) -> None:
        graph = model.graph
        symbols_of = name_inputs(graph) if given is None else names_of_inputs(graph, given)
        order = tuple(map(symbol, symbols_of))
        names = frozenset(order)
        self._model, self._given, self._declared = model, given or {}, declared
        self._opset = model.opset_imports.get("", 0)
        self.equal = Equalities(order)
        for a, b in constraints(model):  # of nodes that an earlier inference folded, too
            self.equal.equate(a, b, needs(model)[a, b])
        self._reported = Reported(types, names)
        self._inner = InnerModels(model, budget)
        self._folder = Folder(model)
        self._sequences = Sequences(graph, self._opset)
        self.late = LateDims(names)
        self.names_late = False
        self.has_symbols = bool(names)
        self.hints: dict[ir.Value, Dims] = {}
        self._static = frozenset(value for value in _given(graph) if is_static(try_dims(value)))
        self._fixed: set[tuple[int, ...]] = set()  # dims that were seen to be numbers

    def start(self) -> None:
        """Begin a walk: all that an earlier one found is forgotten but equalities, hints and names."""
        self.shapes: dict[ir.Value, Dims] = {}
        self.data: dict[ir.Value, Data] = dict(self._given)
        self._overruled: set[ir.Value | None] = set()  # values for which ONNX's result was wrong
        # Values of which ONNX's inference knew as much as farcall. None stands for an omitted input.
        self._seen: set[ir.Value | None] = {None, *self._static}
        for value in _given(self._model.graph):
            if (known := try_dims(value)) is not None:
                self.shapes[value] = known

    @cached_property
    def names(self) -> set[str]:
        """The names in the model."""
        return names_of(self._model.graph)

    def view(self, node: ir.Node) -> NodeView:
        """A node, for rules."""
        return NodeView(node, self._opset, self.shapes, self.data, self.equal, self.names_late)

    def take_static(self, node: ir.Node) -> bool:
        """Take ONNX's result for a node of static dims, about which there is nothing else to know.

        Most nodes of most models are such: this is :meth:`_visit` without the questions that it asks.

        Returns:
            Whether the node is one.
        """
        operator, given = node.op_type, node.inputs
        if node.domain or operator in _ASKED or not given or not self._seen.issuperset(given):
            return False
        if given[0] is None or given[0].const_value is not None:  # perhaps all of them are constants
            return False
        outputs, types = node.outputs, []
        for value in outputs:
            kind, dims = self._reported.found(value)
            if (
                not isinstance(kind, ir.TensorType)
                or not self._is_fixed(dims)
                or has_data(operator, kind.dtype)
            ):
                return False
            types.append((kind.dtype, dims))
        for value, (dtype, dims) in zip(outputs, types, strict=True):
            value.type = ir.TensorType(dtype)
            self.shapes[value] = dims
            self._seen.add(value)
        if operator in FITTING:
            self._ask(node, self._by_rule)
        return True

    def _is_fixed(self, dims: Sequence[Dim | str | None] | None) -> TypeGuard[tuple[int, ...]]:
        """:func:`is_static`, which looks at the same dims once: a model has few different ones."""
        if dims in self._fixed:
            return True
        if not is_static(dims):
            return False
        self._fixed.add(dims)
        return True

    def visit(self, node: ir.Node) -> None:
        """Visit a node. Rules read operands as ONNX defines them, and fail in any way at others.

        Raises:
            MisfitError: The operands or attributes are not those of the operator.
        """
        self._ask(node, self._visit)

    def _ask(self, node: ir.Node, ask: Callable[[ir.Node], object]) -> None:
        """Ask about a node, and name it in errors."""
        try:
            ask(node)
        except FarcallError:
            raise
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            where = f"node `{node.name}` ({node.op_type})"
            raise MisfitError(
                f"{where} has inputs or attributes that the operator has not: {_in_words(error)} (inputs: "
                f"{', '.join(map(self._told, node.inputs))})"
            ) from error

    def _told(self, value: ir.Value | None) -> str:
        """An input in messages."""
        if value is None:
            return "none"
        return f"`{value.name}` {text(self.shapes[value])}" if value in self.shapes else f"`{value.name}`"

    def _visit(self, node: ir.Node) -> None:
        """Find the dims, dtypes and data of a node's outputs; if they are constants, remove the node."""
        branch = self._known_branch(node)
        if branch is not None:
            self._take_branch(splice(self._model.graph, node, branch, (), self.names))
            return
        rewritten = self._rewritten(node)
        if rewritten is not None:
            self._take_branch(rewritten)
            return
        reported = [self._reported.take(value, self._reported.found(value)) for value in node.outputs]
        said = tuple(reported)
        if node.domain == ML:
            set_ml_dtypes(node)
        if is_default_domain(node.domain) or node.domain in (ML, TRAINING):
            if self._overrules(node):
                self._overrule(node, reported)
            elif not self._is_known(node, reported):
                self._apply_rule(node, reported)
            elif node.op_type in FITTING:
                self._by_rule(node)
        elif node.domain == DOMAIN:
            fix_dims(self.view(node))
            where, told = f"node `{node.name}` ({node.op_type})", self._ask_definition(node)
            reported[:] = [both(a, b, where) for a, b in zip(reported, told, strict=True)]
        for value, found in zip(node.outputs, reported, strict=True):
            if value not in self.shapes:
                known = self.hints.get(value) if self.hints else None
                merged = (
                    found if known is None else both(known, found, f"node `{node.name}` ({node.op_type})")
                )
                if merged is not None:
                    self._accept(value, merged)
        for value, dims in zip(node.outputs, said, strict=True):
            if is_static(dims) and dims == self.shapes.get(value):
                self._seen.add(value)
        if node.op_type in DATA_RULES and is_default_domain(node.domain):
            self._follow_data(node)
        if node.graph is not None and is_constant(node) and not feeds_integers(node):
            self._put(self._folder.fold(node, self._by_rule(node) or self._ask_onnx(node)))

    def _known_branch(self, node: ir.Node) -> ir.Graph | None:
        """The branch that an If always takes."""
        if node.op_type != "If" or not is_default_domain(node.domain) or node.inputs[0] is None:
            return None
        try:
            condition = constant_data(node.inputs[0]).ravel().tolist()
        except NotKnownError:
            return None
        name = "then_branch" if condition[0] else "else_branch"
        branch: ir.Graph = node.attributes[name].as_graph()
        return branch

    def _rewritten(self, node: ir.Node) -> list[ir.Node] | None:
        """The nodes that replace one that reads or carries a known sequence."""
        if not is_default_domain(node.domain):
            return None
        if is_control(node):
            self._sequences.bring_inside(node)
        if node.op_type == "Loop":
            return self._sequences.without_loop(node, self.names)
        is_read = node.op_type in SEQUENCE_OPERATORS or node.op_type == "Identity"
        return self._sequences.resolve(self.view(node)) if is_read else None

    def _take_branch(self, nodes: Sequence[ir.Node]) -> None:
        for node in nodes:
            for value in node.inputs:
                if value is not None and value.const_value is not None:
                    self.shapes[value] = tuple(value.const_value.shape.numpy())
            self._visit(node)

    def _is_known(self, node: ir.Node, reported: Sequence[PartialDims | None]) -> bool:
        """Whether ONNX's inference found all dims; otherwise its result may only repeat declared dims."""
        return all(map(is_static, reported)) and self._seen.issuperset(node.inputs)

    def _overrules(self, node: ir.Node) -> bool:
        """Whether farcall's rule replaces the result of ONNX's inference."""
        if self._overruled and not self._overruled.isdisjoint(reads(node)):
            return True
        return misread_by_onnx(self.view(node))

    def _overrule(self, node: ir.Node, reported: list[PartialDims | None]) -> None:
        said = list(reported)
        reported[:] = [None] * len(reported)
        self._apply_rule(node, reported)
        for value, dims in zip(node.outputs, said, strict=True):
            if dims != self.shapes.get(value):  # also a new node's, whose readers ONNX knew with others
                self._overruled.add(value)

    def _apply_rule(self, node: ir.Node, reported: list[PartialDims | None]) -> None:
        where = f"node `{node.name}` ({node.op_type})"
        found = self._by_rule(node)
        if not found:
            self._forget_zeros(node, reported)
        is_complete = bool(found) and not any(None in dims for dims in found)
        if not is_complete or any(value.dtype is None for value in node.outputs):
            reported[:] = [both(a, b, where) for a, b in zip(reported, self._ask_onnx(node), strict=True)]
        for index, (value, dims, said) in enumerate(zip(node.outputs, found, reported, strict=False)):
            if said is not None and (contradict(said, dims) or self._only_declares(value, said, dims)):
                self._overruled.add(value)  # exporters declare wrong dims, which nobody else believes either
                said = None  # noqa: PLW2901
            joined = [
                b if a is None else self.equal.equate(a, b, Need(where)) if isinstance(b, int) else a
                for a, b in zip(dims, said or [None] * len(dims), strict=True)
            ]
            known = [dim for dim in joined if dim is not None]
            if len(known) == len(joined):
                self.shapes[value] = tuple(known)
            else:
                reported[index] = tuple(joined)

    def _only_declares(self, value: ir.Value, said: PartialDims, dims: PartialDims) -> bool:
        """Whether the model declares a number for a dim of which a rule says that it varies."""
        return value.name in self._declared and any(
            isinstance(number, int) and dim is not None and not isinstance(self.equal.resolve(dim), int)
            for number, dim in zip(said, dims, strict=True)
        )

    def _by_rule(self, node: ir.Node) -> Sequence[PartialDims]:
        rule = RULES.get(node.op_type)
        if rule is None:
            return []
        try:
            found = rule(self.view(node))
        except NotKnownError:
            return []
        return [] if any(dim is not None and is_large(dim) for dims in found for dim in dims) else found

    def _forget_zeros(self, node: ir.Node, reported: list[PartialDims | None]) -> None:
        """Over symbols, ONNX writes 0 for "not known" (Attention), and reckons with it. A real 0 is rare."""
        for index, (value, said) in enumerate(zip(node.outputs, reported, strict=True)):
            if said is not None and 0 in said:
                reported[index] = tuple(dim or None for dim in said)
                self._overruled.add(value)

    def _ask_onnx(self, node: ir.Node) -> list[PartialDims | None]:
        """The result of ONNX's inference for this node, now that more is known about its inputs."""
        for value in node.inputs:
            if value is not None and value in self.shapes and value.const_value is None:
                set_dims(value, self.shapes[value])
        if is_control(node):
            return self._ask_bodies(node)
        found = infer_node(node, self._model, self.data)
        asked = [
            self._reported.take(value, found.get(value.name or "", (None, None))) for value in node.outputs
        ]
        return [None if said is None else tuple(dim or None for dim in said) for said in asked]

    def _ask_definition(self, node: ir.Node) -> list[PartialDims | None]:
        """What the definition of a node by other operators tells of its outputs."""
        self._set_dims(value for value in node.inputs if value is not None)
        found = self._inner.definition(node)
        if found is None:
            return [None] * len(node.outputs)
        told, equal = found
        for a, b in equal:
            self.equal.equate(a, b, Need(f"node `{node.name}` ({node.op_type})"))
        for value, (kind, _) in zip(node.outputs, told, strict=True):
            value.type = kind or value.type
        return [shape for _, shape in told]

    def _ask_bodies(self, node: ir.Node) -> list[PartialDims | None]:
        """What the graphs inside a node tell of its outputs."""
        found = self.control(node)
        if found is None:
            return [None] * len(node.outputs)
        for value, kind in zip(node.outputs, found.types, strict=False):
            value.type = kind or value.type
        return [*found.shapes, *[None] * (len(node.outputs) - len(found.shapes))][: len(node.outputs)]

    def control(self, node: ir.Node) -> Control | None:
        """The graphs inside a node with what is known of their inputs; None if they cannot be as they are."""
        self._set_dims(reads(node))
        return self._inner.control(node, self.data)

    def _set_dims(self, values: Iterable[ir.Value]) -> None:
        """Write what is known of values that are not constant to them, for an inference of other models."""
        for value in values:
            if value in self.shapes and value.const_value is None:
                set_dims(value, map(self.equal.resolve, self.shapes[value]))

    def _follow_data(self, node: ir.Node) -> None:
        output = node.outputs[0]
        dims = self.shapes.get(output)
        if output.dtype is None or not has_data(node.op_type, output.dtype) or not is_static(dims):
            return
        items = followed(self.view(node), output.dtype, dims)
        if items is None:
            return
        if all(isinstance(item, int) for item in items.flat) and output.name:
            self._put(replace(self._model.graph, node, {output: items.astype(output.dtype.numpy())}))
        else:
            self.data[output] = items
            self._seen.discard(output)

    def _put(self, constants: Mapping[ir.Value, ir.Value]) -> None:
        """Record the dims of constants that replaced computed values."""
        for value, constant in constants.items():
            dims = try_dims(constant)
            if dims is not None:
                self.shapes[constant] = dims
            if value in self._overruled:
                self._overruled.add(constant)

    def _accept(self, value: ir.Value, found: PartialDims) -> None:
        known = tuple(dim for dim in found if dim is not None)
        if len(known) == len(found):
            self.shapes[value] = known
        elif self.names_late and isinstance(value.type, ir.TensorType | None):
            self.shapes[value] = tuple(
                self.late.of(value, axis) if dim is None else dim for axis, dim in enumerate(found)
            )
        else:
            set_dims(value, found)


def _in_words(error: Exception) -> str:
    """What a rule stumbled on: a text of its own, or what Python says of lists of another length or rank."""
    text = str(error)
    if isinstance(error, LookupError) or "to unpack" in text or "not iterable" in text or "'list'" in text:
        return "an input has another rank than it needs"
    if text.startswith("zip()"):
        return "an input or attribute has another number of elements than it needs"
    return text


def _given(graph: ir.Graph) -> Iterator[ir.Value]:
    """The values that no node makes."""
    yield from graph.inputs
    yield from graph.initializers.values()
