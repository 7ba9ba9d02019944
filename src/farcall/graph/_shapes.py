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
from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard

import onnx_ir as ir

import farcall.graph._index_rules
import farcall.graph._signal_rules  # noqa: F401 - registers its rules
from farcall.errors import FarcallError, ModelError
from farcall.graph._bodies import body_of
from farcall.graph._broadcasts import spell_out
from farcall.graph._constants import Folder, is_constant, replace
from farcall.graph._constraints import CONSTRAINTS, NEEDS, Equalities, MisfitError, Need
from farcall.graph._control import OPERATORS as CONTROL_OPERATORS
from farcall.graph._control import Control, control, is_control
from farcall.graph._defined import Defined, Equal, defined
from farcall.graph._folding import fold_shapes
from farcall.graph._guards import check_sizes
from farcall.graph._inline import names_of, splice
from farcall.graph._microsoft_calls import DOMAIN
from farcall.graph._microsoft_dims import fix_dims
from farcall.graph._ml_rules import ML, set_ml_dtypes
from farcall.graph._objects import OBJECTS, has_objects
from farcall.graph._onnx_types import Found, infer_node, is_default_domain, read_type
from farcall.graph._operand_rules import leaves_named_dims, same_late_dim
from farcall.graph._qdq import feeds_integers
from farcall.graph._region import reads
from farcall.graph._sequences import OPERATORS as SEQUENCE_OPERATORS
from farcall.graph._sequences import Sequences
from farcall.graph._shape_data import DATA_RULES
from farcall.graph._shape_rules import (
    KEEP_SHAPE,
    MISNAMED_BY_ONNX,
    OFTEN_MISREAD,
    RULES,
    TRAINING,
    misread_by_onnx,
)
from farcall.graph._sinking import sink_readers
from farcall.graph._view import (
    DATA_DTYPES,
    EXPLICIT_SINCE,
    FLOAT_DTYPES,
    MAX_DATA,
    Data,
    Dims,
    NodeView,
    NotKnownError,
    PartialDims,
    constant_data,
    elementwise,
)
from farcall.graph.dims import (
    LATE,
    Dim,
    identifier,
    is_identifier,
    is_large,
    parse,
    product,
    set_dims,
    shape_of,
    symbol,
    symbols,
    try_dims,
)

if TYPE_CHECKING:
    import onnx

_KEEP_SHAPE = frozenset(KEEP_SHAPE.split())
_ASKED = frozenset((*CONTROL_OPERATORS, *SEQUENCE_OPERATORS, *OFTEN_MISREAD))
_MOST_INNER_NODES = 100_000  # that are visited for all graphs inside of a model's nodes
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
    return _Inference(model, types, declared=declared).run()


def infer_again(model: ir.Model) -> dict[ir.Value, Data]:
    """:func:`infer_shapes` for a model some of whose nodes were replaced after an earlier inference.

    The values that stayed keep what is known about them.
    """
    return _Inference(model, None).run()


def control_of(node: ir.Node, graph: ir.Graph) -> Control:
    """The bodies of an If, Loop or Scan of a graph whose shapes are inferred.

    Raises:
        ModelError: A body cannot be as it is.
    """
    return control(node, graph, graph.meta[DATA], _Budget().infer)


class _Budget:
    """Bounds the work for graphs inside of graphs, each of which may take several rounds."""

    def __init__(self) -> None:
        self._left = _MOST_INNER_NODES

    def infer(self, model: ir.Model, data: Mapping[ir.Value, Data]) -> None:
        """Infer the shapes of a body, in place."""
        self._left -= 1 + len(model.graph)
        if self._left < 0:
            raise ModelError(
                f"the {model.graph.name}: shapes in it take more than {_MOST_INNER_NODES:,} steps; expected "
                "fewer graphs inside of each other"
            )
        fold_shapes(model, _Inference(model, None, data, self).run())


def constraints(model: ir.Model) -> tuple[tuple[Dim, Dim], ...]:
    """Pairs of dims, over the symbols of the inputs, that must be equal in every call of the model."""
    found: tuple[tuple[Dim, Dim], ...] = model.meta.get(CONSTRAINTS, ())
    return found


def needs(model: ir.Model) -> Mapping[tuple[Dim, Dim], Need]:
    """For each pair of :func:`constraints`, the node that needs it."""
    found: Mapping[tuple[Dim, Dim], Need] = model.meta.get(NEEDS, {})
    return found


def name_inputs(graph: ir.Graph) -> tuple[str, ...]:
    """Make every dim of a graph input an int or a plain symbol, and return the symbols in order.

    A dim without a name becomes ``{input}_dim{axis}``, and so does one whose name is not an identifier but an
    expression. In other names, invalid characters are replaced.
    """
    tensors = [value for value in graph.inputs if isinstance(value.type, ir.TensorType | None)]
    declared = {dim.value for value in tensors for dim in value.shape or () if not isinstance(dim, int)}
    taken = {name for name in declared if name and is_identifier(name)}
    renamed: dict[str, str] = {}
    for value in graph.inputs:
        if value.shape is None:
            continue
        result: list[Dim] = []
        if not isinstance(value.type, ir.TensorType | None):
            set_dims(value, [dim if isinstance(dim, int) else None for dim in value.shape])
            continue  # what is in a sequence or an optional binds no names
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


class _Inference:
    """Walks the nodes once or more; holds the dims and the small integer data known so far."""

    def __init__(
        self,
        model: ir.Model,
        types: Mapping[str, onnx.TypeProto] | None,
        facts: Mapping[ir.Value, Data] | None = None,  # of a body: what is known of its inputs
        budget: _Budget | None = None,
        declared: Collection[str] = (),
    ) -> None:
        names = tuple(map(symbol, name_inputs(model.graph) if facts is None else _names(model.graph, facts)))
        self._given, self._budget = facts or {}, budget or _Budget()
        self._declared = declared
        self._controls: dict[tuple[ir.Node, object], Control | None] = {}
        self._defined: dict[tuple[ir.Node, object], tuple[list[Defined], list[Equal]] | None] = {}
        self._model = model
        self._types = types
        self._symbols = frozenset(names)
        self._equal = Equalities(names)
        for a, b in constraints(model):  # of nodes that an earlier inference folded, too
            self._equal.equate(a, b, needs(model)[a, b])
        self._folder = Folder(model)
        self._sequences = Sequences(model.graph, model.opset_imports.get("", 0))
        self._opset = model.opset_imports.get("", 0)
        self._read: dict[bytes, Found] = {}
        self._late: dict[tuple[ir.Value, int], str] = {}
        self._hints: dict[ir.Value, Dims] = {}  # shapes that are known from what is made of them
        self._spelled: set[ir.Node] = set()  # nodes whose broadcast operands are Expand's results
        self._names_late = False  # whether dims that stay unknown get symbols
        given = (*model.graph.inputs, *model.graph.initializers.values())
        self._static = frozenset(value for value in given if _is_static(try_dims(value)))
        self._fixed: set[tuple[int, ...]] = set()  # dims that were seen to be numbers

    def run(self) -> dict[ir.Value, Data]:
        """Visit all nodes until no new facts about symbols are found; returns the data."""
        while True:
            before, is_static = self._equal.found, True
            self._start()
            nodes = list(self._model.graph)
            for node in nodes:
                if not self._take_static(node):
                    is_static = False
                    self._try(node)
            data = self._finish(nodes if is_static else list(self._model.graph))
            if is_static:  # nothing is unknown
                return data
            if self._equal.found > before or self._look_back() or self._sink() or self._start_naming():
                continue
            if not self._spell_out_broadcasts():
                return data

    def _spell_out_broadcasts(self) -> bool:
        """Whether operands that broadcast only in some calls got an Expand, which another walk will visit."""
        if not self._symbols and not self._late:
            return False
        graph = self._model.graph
        shapes = {value: tuple(map(self._equal.resolve, dims)) for value, dims in self._shapes.items()}
        left = [node for node in graph if node not in self._spelled] if self._opset >= EXPLICIT_SINCE else []
        found = spell_out(left, graph, shapes, self._names)
        self._spelled |= found
        return bool(found)

    def _look_back(self) -> bool:
        """Whether known results of operators that keep the shape of their input tell unknown shapes."""
        before = len(self._hints)
        for node in reversed(self._model.graph):
            if node.op_type in _KEEP_SHAPE and is_default_domain(node.domain):
                value, result = node.inputs[0], node.outputs[0]
                dims = self._shapes.get(result) or self._hints.get(result)
                if value is not None and value not in self._shapes and dims:
                    self._hints[value] = dims
        return len(self._hints) > before

    def _sink(self) -> bool:
        """Whether readers of values without a rank moved into an If, which another walk will visit."""
        graph = self._model.graph
        return any(node.op_type == "If" for node in graph) and sink_readers(
            graph, lambda value: value in self._shapes or value.shape is not None, self._control, self._names
        )

    def _start_naming(self) -> bool:
        """Whether dims are still unknown, which another walk will name."""
        unknown = not self._names_late and any(
            (value not in self._shapes and (value.shape is not None or node.op_type == "Squeeze"))
            or leaves_named_dims(self._view(node))
            for node in self._model.graph
            for value in node.outputs
        )
        self._names_late = self._names_late or unknown
        return unknown

    def _start(self) -> None:
        self._shapes: dict[ir.Value, Dims] = {}
        self._data: dict[ir.Value, Data] = dict(self._given)
        self._overruled: set[ir.Value | None] = set()  # values for which ONNX's result was wrong
        # Values of which ONNX's inference knew as much as farcall. None stands for an omitted input.
        self._seen: set[ir.Value | None] = {None, *self._static}
        graph = self._model.graph
        for value in (*graph.inputs, *graph.initializers.values()):
            if (known := try_dims(value)) is not None:
                self._shapes[value] = known

    def _take_static(self, node: ir.Node) -> bool:
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
            kind, dims = self._read_type(value)
            if (
                not isinstance(kind, ir.TensorType)
                or not self._is_fixed(dims)
                or _has_data(operator, kind.dtype)
            ):
                return False
            types.append((kind.dtype, dims))
        for value, (dtype, dims) in zip(outputs, types, strict=True):
            value.type = ir.TensorType(dtype)
            self._shapes[value] = dims
            self._seen.add(value)
        return True

    def _is_fixed(self, dims: Sequence[Dim | str | None] | None) -> TypeGuard[tuple[int, ...]]:
        """:func:`_is_static`, which looks at the same dims once: a model has few different ones."""
        if dims in self._fixed:
            return True
        if not _is_static(dims):
            return False
        self._fixed.add(dims)
        return True

    def _try(self, node: ir.Node) -> None:
        """Visit a node. Rules read operands as ONNX defines them, and fail in any way at others.

        Raises:
            MisfitError: The operands or attributes are not those of the operator.
        """
        try:
            self._visit(node)
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
        return f"`{value.name}` {_text(self._shapes[value])}" if value in self._shapes else f"`{value.name}`"

    def _visit(self, node: ir.Node) -> None:
        """Find the dims, dtypes and data of a node's outputs; if they are constants, remove the node."""
        branch = self._known_branch(node)
        if branch is not None:
            self._take_branch(splice(self._model.graph, node, branch, (), self._names))
            return
        rewritten = self._rewritten(node)
        if rewritten is not None:
            self._take_branch(rewritten)
            return
        reported = [self._reported(value) for value in node.outputs]
        said = tuple(reported)
        if node.domain == ML:
            set_ml_dtypes(node)
        if is_default_domain(node.domain) or node.domain in (ML, TRAINING):
            if self._overrules(node):
                self._overrule(node, reported)
            elif not self._is_known(node, reported):
                self._apply_rule(node, reported)
        elif node.domain == DOMAIN:
            fix_dims(self._view(node))
            where, told = f"node `{node.name}` ({node.op_type})", self._ask_definition(node)
            reported[:] = [_both(a, b, where) for a, b in zip(reported, told, strict=True)]
        for value, found in zip(node.outputs, reported, strict=True):
            if value not in self._shapes:
                known = self._hints.get(value) if self._hints else None
                merged = (
                    found if known is None else _both(known, found, f"node `{node.name}` ({node.op_type})")
                )
                if merged is not None:
                    self._accept(value, merged)
        for value, dims in zip(node.outputs, said, strict=True):
            if _is_static(dims) and dims == self._shapes.get(value):
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
            return self._sequences.without_loop(node, self._names)
        is_read = node.op_type in SEQUENCE_OPERATORS or node.op_type == "Identity"
        return self._sequences.resolve(self._view(node)) if is_read else None

    def _take_branch(self, nodes: Sequence[ir.Node]) -> None:
        for node in nodes:
            for value in node.inputs:
                if value is not None and value.const_value is not None:
                    self._shapes[value] = tuple(value.const_value.shape.numpy())
            self._visit(node)

    @cached_property
    def _names(self) -> set[str]:
        return names_of(self._model.graph)

    def _is_known(self, node: ir.Node, reported: Sequence[PartialDims | None]) -> bool:
        """Whether ONNX's inference found all dims; otherwise its result may only repeat declared dims."""
        return all(map(_is_static, reported)) and self._seen.issuperset(node.inputs)

    def _overrules(self, node: ir.Node) -> bool:
        """Whether farcall's rule replaces the result of ONNX's inference."""
        if self._overruled and not self._overruled.isdisjoint(reads(node)):
            return True
        return misread_by_onnx(self._view(node))

    def _overrule(self, node: ir.Node, reported: list[PartialDims | None]) -> None:
        said = list(reported)
        reported[:] = [None] * len(reported)
        self._apply_rule(node, reported)
        for value, dims in zip(node.outputs, said, strict=True):
            if dims != self._shapes.get(value):  # also a new node's, whose readers ONNX knew with others
                self._overruled.add(value)

    def _reported(self, value: ir.Value) -> PartialDims | None:
        """The result of ONNX's inference for the whole model, which includes the model's declarations."""
        return self._take(value, self._read_type(value))

    def _read_type(self, value: ir.Value) -> Found:
        """The type and dims that ONNX's inference for the whole model, or an earlier one of ours, found."""
        if self._types is None:
            return _own_type(value)
        proto = self._types.get(value.name or "")
        if proto is None:
            return None, None
        key = proto.SerializeToString()  # a model has few different types: read each once
        found = self._read.get(key)
        if found is None:
            found = self._read[key] = read_type(proto)
        return found

    def _take(self, value: ir.Value, found: Found) -> PartialDims | None:
        """Store a type that ONNX found, and return the dims; names that no input has count as unknown."""
        kind, dims = found
        if isinstance(kind, ir.TensorType):
            value.type = ir.TensorType(kind.dtype)  # new: setting a value's dtype changes its type in place
        elif kind is not None:
            value.type = kind
        if dims is None:
            return None
        node = value.producer()
        named = node is None or node.op_type not in MISNAMED_BY_ONNX
        return tuple(dim if isinstance(dim, int) else self._known(dim) if named else None for dim in dims)

    def _known(self, name: str | None) -> Dim | None:
        try:
            dim = parse(name or "")
        except ValueError:
            return None
        return dim if isinstance(dim, int) or dim.free_symbols <= self._symbols else None

    def _view(self, node: ir.Node) -> NodeView:
        return NodeView(node, self._opset, self._shapes, self._data, self._equal, self._names_late)

    def _apply_rule(self, node: ir.Node, reported: list[PartialDims | None]) -> None:
        where = f"node `{node.name}` ({node.op_type})"
        found = self._by_rule(node)
        if not found:
            self._forget_zeros(node, reported)
        is_complete = bool(found) and not any(None in dims for dims in found)
        if not is_complete or any(value.dtype is None for value in node.outputs):
            reported[:] = [_both(a, b, where) for a, b in zip(reported, self._ask_onnx(node), strict=True)]
        for index, (value, dims, said) in enumerate(zip(node.outputs, found, reported, strict=False)):
            if said is not None and (_contradict(said, dims) or self._only_declares(value, said, dims)):
                self._overruled.add(value)  # exporters declare wrong dims, which nobody else believes either
                said = None  # noqa: PLW2901
            both = [
                b if a is None else self._equal.equate(a, b, Need(where)) if isinstance(b, int) else a
                for a, b in zip(dims, said or [None] * len(dims), strict=True)
            ]
            known = [dim for dim in both if dim is not None]
            if len(known) == len(both):
                self._shapes[value] = tuple(known)
            else:
                reported[index] = tuple(both)

    def _only_declares(self, value: ir.Value, said: PartialDims, dims: PartialDims) -> bool:
        """Whether the model declares a number for a dim of which a rule says that it varies."""
        return value.name in self._declared and any(
            isinstance(number, int) and dim is not None and not isinstance(self._equal.resolve(dim), int)
            for number, dim in zip(said, dims, strict=True)
        )

    def _by_rule(self, node: ir.Node) -> Sequence[PartialDims]:
        rule = RULES.get(node.op_type)
        if rule is None:
            return []
        try:
            found = rule(self._view(node))
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
            if value is not None and value in self._shapes and value.const_value is None:
                set_dims(value, self._shapes[value])
        if is_control(node):
            return self._ask_bodies(node)
        found = infer_node(node, self._model, self._data)
        asked = [self._take(value, found.get(value.name or "", (None, None))) for value in node.outputs]
        return [None if said is None else tuple(dim or None for dim in said) for said in asked]

    def _ask_definition(self, node: ir.Node) -> list[PartialDims | None]:
        """What the definition of a node by other operators tells of its outputs."""
        given = [value for value in node.inputs if value is not None]
        for value in given:
            if value in self._shapes and value.const_value is None:
                set_dims(value, map(self._equal.resolve, self._shapes[value]))
        facts = tuple((str(value.type), str(value.shape)) for value in given)
        if (node, facts) not in self._defined:
            body = body_of(node, self._model.opset_imports)
            self._defined[node, facts] = None if body is None else defined(node, body, self._budget.infer)
        found = self._defined[node, facts]
        if found is None:
            return [None] * len(node.outputs)
        told, equal = found
        for a, b in equal:
            self._equal.equate(a, b, Need(f"node `{node.name}` ({node.op_type})"))
        for value, (kind, _) in zip(node.outputs, told, strict=True):
            value.type = kind or value.type
        return [shape for _, shape in told]

    def _ask_bodies(self, node: ir.Node) -> list[PartialDims | None]:
        """What the graphs inside a node tell of its outputs."""
        found = self._control(node)
        if found is None:
            return [None] * len(node.outputs)
        for value, kind in zip(node.outputs, found.types, strict=False):
            value.type = kind or value.type
        return [*found.shapes, *[None] * (len(node.outputs) - len(found.shapes))][: len(node.outputs)]

    def _control(self, node: ir.Node) -> Control | None:
        """The graphs inside a node with what is known of their inputs; None if they cannot be as they are."""
        read = [value for value in reads(node) if value.const_value is None]
        for value in read:
            if value in self._shapes:
                set_dims(value, map(self._equal.resolve, self._shapes[value]))
        facts = tuple((str(value.shape), str(self._data.get(value))) for value in read)
        if (node, facts) not in self._controls:
            try:
                self._controls[node, facts] = control(node, self._model.graph, self._data, self._budget.infer)
            except ModelError:
                self._controls[node, facts] = None  # whoever takes the node says why it cannot be
        return self._controls[node, facts]

    def _follow_data(self, node: ir.Node) -> None:
        output = node.outputs[0]
        dims = self._shapes.get(output)
        if output.dtype is None or not _has_data(node.op_type, output.dtype) or not _is_static(dims):
            return
        if product(dims) > MAX_DATA:
            return
        try:
            items = DATA_RULES[node.op_type](self._view(node)).reshape(dims)
        except (NotKnownError, IndexError, OverflowError, ValueError):
            return
        if not _fits(items, output.dtype) or any(map(is_large, items.flat)):
            return
        if all(isinstance(item, int) for item in items.flat) and output.name:
            self._put(replace(self._model.graph, node, {output: items.astype(output.dtype.numpy())}))
        else:
            self._data[output] = items
            self._seen.discard(output)

    def _put(self, constants: Mapping[ir.Value, ir.Value]) -> None:
        """Record the dims of constants that replaced computed values."""
        for value, constant in constants.items():
            dims = try_dims(constant)
            if dims is not None:
                self._shapes[constant] = dims
            if value in self._overruled:
                self._overruled.add(constant)

    def _accept(self, value: ir.Value, found: PartialDims) -> None:
        known = tuple(dim for dim in found if dim is not None)
        if len(known) == len(found):
            self._shapes[value] = known
        elif self._names_late and isinstance(value.type, ir.TensorType | None):
            self._shapes[value] = tuple(
                self._late_dim(value, axis) if dim is None else dim for axis, dim in enumerate(found)
            )
        else:
            set_dims(value, found)

    def _late_dim(self, value: ir.Value, axis: int) -> Dim:
        """The symbol of a dim that is known only when the model runs."""
        if (value, axis) not in self._late:
            same = same_late_dim(value, axis)
            taken = {str(item) for item in self._symbols} | set(self._late.values())
            name = self._late.get(same) or _unique(identifier(f"{value.name}_dim{axis}"), taken)
            self._late[same] = self._late[value, axis] = name
        return symbol(self._late[value, axis])

    def _finish(self, nodes: Sequence[ir.Node]) -> dict[ir.Value, Data]:
        """Write the results to the model, which has these nodes; returns the data."""
        resolve, changed = self._equal.resolve, self._equal.changed
        made: dict[Dims, ir.Shape] = {}  # a model has few different shapes: values share each, frozen
        for value, dims in self._shapes.items():
            if value.const_value is None or value.shape is None:
                found = tuple(map(resolve, dims)) if changed else dims
                if found not in made:
                    made[found] = shape_of(found, frozen=True)
                value.shape = made[found]
        pairs = self._equal.constraints()
        self._model.meta[CONSTRAINTS], self._model.meta[NEEDS] = tuple(pairs), pairs
        graph = self._model.graph
        check_sizes(nodes)
        late: dict[ir.Value, tuple[str, ...]] = {}
        for (value, _), name in self._late.items():
            late[value] = (*late.get(value, ()), name)
        graph.meta[LATE] = late
        graph.meta[OBJECTS] = has_objects(graph, nodes)
        data = {value: elementwise(self._equal.resolve, items) for value, items in self._data.items()}
        graph.meta[DATA] = data
        return data


def _names(graph: ir.Graph, given: Mapping[ir.Value, Data]) -> tuple[str, ...]:
    """The symbols that the inputs of a body show, or that their elements are."""
    items = [item for data in given.values() for item in data.ravel().tolist()]
    return symbols(*(dim for value in graph.inputs for dim in try_dims(value) or ()), *items)


def _in_words(error: Exception) -> str:
    """What a rule stumbled on: a text of its own, or what Python says of a list of dims that is too short."""
    is_about_lists = isinstance(error, LookupError) or "to unpack" in str(error)
    return "an input has another rank than it needs" if is_about_lists else str(error)


def _own_type(value: ir.Value) -> Found:
    """The type and dims that an earlier inference wrote to a value."""
    if value.shape is None:
        return value.type, None
    return value.type, tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def _has_data(operator: str, dtype: ir.DataType) -> bool:
    """Whether the elements of an operator's result are followed, if it is small."""
    if operator not in DATA_RULES:
        return False
    return dtype in (FLOAT_DTYPES + DATA_DTYPES if operator in ("Cast", "CastLike") else DATA_DTYPES)


def _fits(items: Data, dtype: ir.DataType) -> bool:
    """Whether the elements that are numbers fit the dtype; otherwise ONNX's arithmetic would wrap around."""
    low, high = (0, 1) if dtype == ir.DataType.BOOL else (int(dtype.min), int(dtype.max))
    return all(low <= item <= high for item in items.ravel().tolist() if isinstance(item, int))


def _both(declared: PartialDims | None, found: PartialDims | None, where: str) -> PartialDims | None:
    """Merge two results: if one does not know a dim, the other's is used.

    Raises:
        MisfitError: The two results contradict each other.
    """
    if declared is None or found is None:
        return declared if found is None else found
    if _contradict(declared, found):
        raise MisfitError(f"{where}: expected the declared {_text(declared)}, got {_text(found)}")
    return tuple(b if a is None else a for a, b in zip(declared, found, strict=True))


def _contradict(a: PartialDims, b: PartialDims) -> bool:
    return len(a) != len(b) or any(
        isinstance(one, int) and isinstance(other, int) and one != other
        for one, other in zip(a, b, strict=True)
    )


def _text(dims: PartialDims) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def _is_static(dims: Sequence[Dim | str | None] | None) -> TypeGuard[tuple[int, ...]]:
    return dims is not None and all(isinstance(dim, int) for dim in dims)
