"""The graphs inside If, Loop and Scan as models of their own: their bodies.

A body reads values of the graph around it. Those are further inputs of its model; constants among them are
its initializers. Symbols mean the same inside as outside: a dim ``2*n`` of a captured value stays.

A branch of an If may be one that fails whenever it is taken, as its operands do not fit each other: models of
functions that check their arguments have such, which no call takes. Its body is a node that raises the error.

The shape of a value that a loop carries may change with each step. The dims that change become symbols of
the body, and those of the result are known only when the loop has run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from farcall.errors import ModelError
from farcall.graph._constraints import MisfitError
from farcall.graph._inline import lift_constant
from farcall.graph._onnx_types import is_default_domain
from farcall.graph._region import captured_by, reads, subgraphs
from farcall.graph._view import Data, NotKnownError, PartialDims, constant_data
from farcall.graph.dims import Dim, identifier, maximum, same, set_dims, symbol, symbols, try_dims

OPERATORS = frozenset(("If", "Loop", "Scan"))

FAILS, _OWN_DOMAIN = "Fails", "farcall"  # the node that raises its attribute `message`

_IR_VERSION = 10  # of ONNX; the versions of the operators are those of the model

# Infers the shapes of a body in place, whose inputs have dims and may have data.
Infer = Callable[[ir.Model, Mapping[ir.Value, Data]], None]


@dataclass(frozen=True)
class Inner:
    """A graph inside a node, as a loaded model.

    Its inputs are the graph's own, then those for ``captured``.
    """

    model: ir.Model
    captured: tuple[ir.Value, ...]  # values of the graph around it
    visible: frozenset[str]  # the symbols of that graph which the body may use

    @property
    def inputs(self) -> list[ir.Value]:
        """The graph's own inputs."""
        graph = self.model.graph
        return list(graph.inputs[: len(graph.inputs) - len(self.captured)])

    def outside(self, value: ir.Value) -> PartialDims | None:
        """The dims of a value of the body, as far as they are known outside."""
        known = try_dims(value)
        if known is None:
            return None if value.shape is None else (None,) * len(value.shape)
        return tuple(dim if self.visible.issuperset(symbols(dim)) else None for dim in known)


@dataclass(frozen=True)
class Control:
    """An If, Loop or Scan: its bodies by attribute, and what is known of its outputs."""

    bodies: Mapping[str, Inner]
    types: tuple[ir.TypeProtocol | None, ...]
    shapes: tuple[PartialDims | None, ...]


def is_control(node: ir.Node) -> bool:
    """Whether a node has bodies."""
    return node.op_type in OPERATORS and is_default_domain(node.domain)


def fails(node: ir.Node) -> bool:
    """Whether a node stands for a branch that fails whenever it is taken."""
    return node.op_type == FAILS and node.domain == _OWN_DOMAIN


def control(node: ir.Node, graph: ir.Graph, data: Mapping[ir.Value, Data], infer: Infer) -> Control:
    """Make the bodies of a node, and infer their shapes and those of the node's outputs.

    Args:
        node: An If, Loop or Scan. The shapes of what it reads are known, as far as they are.
        graph: Its graph.
        data: The elements of small integer tensors, as dims.
        infer: Infers a body.

    Raises:
        ModelError: A body cannot be as it is: operands in it do not fit together.
    """
    return _MAKERS[node.op_type](_Maker(node, graph, data, infer))


@dataclass(frozen=True)
class _Given:
    """What is known of an input of a body."""

    type: ir.TypeProtocol | None
    shape: PartialDims | None
    data: Data | None = None


def _scalar(dtype: ir.DataType, declared: ir.Value) -> _Given:
    """The counter or condition of a loop; some exporters declare one element in place of none."""
    rank = 0 if declared.shape is None else len(declared.shape)
    return _Given(ir.TensorType(dtype), (1,) * rank)


class _Maker:
    """Makes the bodies of one node."""

    def __init__(self, node: ir.Node, graph: ir.Graph, data: Mapping[ir.Value, Data], infer: Infer) -> None:
        self.node, self._home, self._data, self._infer = node, graph, data, infer
        read = reads(node)
        items = [item for value in read if value in data for item in data[value].ravel().tolist()]
        self.around = frozenset(symbols(*(dim for value in read for dim in _known(_partial(value))), *items))

    def graph(self, attribute: str) -> ir.Graph:
        """The graph in an attribute, as the model has it."""
        found: ir.Graph = self.node.attributes[attribute].as_graph()
        return found

    def attribute(self, name: str, default: Sequence[int]) -> Sequence[int]:
        """Numbers in an attribute."""
        found = self.node.attributes.get(name)
        return default if found is None else found.as_ints()

    def opset(self) -> int:
        """The version of the operators."""
        return self._home.opset_imports.get("", 0)

    def number(self, index: int) -> Dim | None:
        """The only element of an input; None if it is left out or not known."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        if value is None:
            return None
        try:
            known = constant_data(value) if value.const_value is not None else self._data.get(value)
        except NotKnownError:
            return None
        return None if known is None or known.size != 1 else known.ravel().tolist()[0]

    def body(self, attribute: str, given: Sequence[_Given]) -> Inner:
        """The body in an attribute, with these inputs."""
        source = self.graph(attribute)
        if len(given) != len(source.inputs):
            raise ModelError(
                f"node `{self.node.name}` ({self.node.op_type}): its graph `{attribute}` has "
                f"{len(source.inputs)} inputs; expected {len(given)}"
            )
        graph = source.clone(allow_outer_scope_values=True)
        data: dict[ir.Value, Data] = {}
        for value, known in zip(graph.inputs, given, strict=True):
            value.type, value.shape = known.type, None
            if known.shape is not None:
                set_dims(value, known.shape)
        captured = self._take_in(graph, data)
        for item in list(graph):
            lift_constant(graph, item)
        return self._inferred(attribute, graph, data, captured)

    def failing(self, attribute: str, error: MisfitError, outputs: Sequence[ir.Value]) -> Inner:
        """A body that raises an error, and whose outputs would have these types and ranks."""
        made = [ir.Value(name=value.name, type=value.type) for value in outputs]
        for value, like in zip(made, outputs, strict=True):
            if like.shape is not None:
                set_dims(value, [None] * len(like.shape))
        message = ir.AttrString(
            "message", f"If `{self.node.name}`: its `{attribute}` cannot be computed: {error}"
        )
        node = ir.Node(_OWN_DOMAIN, FAILS, [], [message], outputs=made, name=FAILS)
        return self._inferred(attribute, ir.Graph([], made, nodes=[node]), {}, ())

    def _inferred(
        self, attribute: str, graph: ir.Graph, data: dict[ir.Value, Data], captured: tuple[ir.Value, ...]
    ) -> Inner:
        _name_nodes(graph, f"{self.node.name}/{attribute}")
        graph.name = f"{attribute} of {self.node.op_type} `{self.node.name}`"
        graph.opset_imports.update(self._home.opset_imports)
        model = ir.Model(graph, ir_version=_IR_VERSION)
        self._infer(model, data)
        return Inner(model, captured, self.around)

    def _take_in(self, graph: ir.Graph, data: dict[ir.Value, Data]) -> tuple[ir.Value, ...]:
        """Make the outer values that a graph reads its inputs, or its constants; returns the former."""
        inner: dict[ir.Value, ir.Value] = {}
        for value in captured_by(graph, self._home):
            inner[value] = own = ir.Value(
                name=value.name, shape=value.shape, type=value.type, const_value=value.const_value
            )
            if value.const_value is not None:
                graph.register_initializer(own)
            elif value in self._data:
                data[own] = self._data[value]
        substitute(graph, inner)
        captured = tuple(value for value in inner if value.const_value is None)
        graph.inputs.extend(inner[value] for value in captured)
        return captured


def substitute(graph: ir.Graph, values: Mapping[ir.Value, ir.Value]) -> None:
    """Put values in place of others, at every depth."""
    if not values:
        return
    graphs = [graph]
    for node in ir.traversal.RecursiveGraphIterator(graph):
        graphs += subgraphs(node)
        for index, value in enumerate(node.inputs):
            if value is not None and value in values:
                node.replace_input_with(index, values[value])
    for one in graphs:
        for index, value in enumerate(one.outputs):
            if value in values:
                one.outputs[index] = values[value]


def _name_nodes(graph: ir.Graph, prefix: str) -> None:
    """Give the nodes names that are unique in the whole model."""
    taken: set[str] = set()
    for number, node in enumerate(graph):
        name = f"{prefix}/{node.name or node.op_type}"
        node.name = f"{name}_{number}" if name in taken else name
        taken.add(node.name)


def _input(value: ir.Value | None) -> _Given:
    if value is None:
        return _Given(None, None)
    return _Given(value.type, _partial(value))


def _partial(value: ir.Value) -> PartialDims | None:
    if value.shape is None:
        return None
    return try_dims(value) or tuple(dim if isinstance(dim, int) else None for dim in value.shape)


# ---------------------------------------------------------------------------------------------------- If ----


def _if(maker: _Maker) -> Control:
    bodies: dict[str, Inner] = {}
    errors: dict[str, MisfitError] = {}
    for name in _BRANCHES:
        try:
            bodies[name] = maker.body(name, ())
        except MisfitError as error:
            errors[name] = error
    if errors:
        return _with_failing(maker, bodies, errors)
    one, other = bodies.values()
    pairs = list(zip(one.model.graph.outputs, other.model.graph.outputs, strict=False))
    return Control(
        bodies,
        tuple(a.type or b.type for a, b in pairs),
        tuple(_common(one.outside(a), other.outside(b)) for a, b in pairs),
    )


_BRANCHES = ("then_branch", "else_branch")


def _with_failing(maker: _Maker, bodies: Mapping[str, Inner], errors: Mapping[str, MisfitError]) -> Control:
    """An If with a branch that fails: all of its results are those of the other one.

    Raises:
        MisfitError: Both fail.
    """
    (name, error), *more = errors.items()
    if more:
        raise error
    (other,) = bodies.values()
    outputs = list(other.model.graph.outputs)
    failing = maker.failing(name, error, outputs)
    return Control(
        {branch: bodies.get(branch, failing) for branch in _BRANCHES},
        tuple(value.type for value in outputs),
        tuple(map(other.outside, outputs)),
    )


def _common(a: PartialDims | None, b: PartialDims | None) -> PartialDims | None:
    """The dims that are equal in both."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if _are_same(x, y) else None for x, y in zip(a, b, strict=True))


# ------------------------------------------------------------------------------------------------- loops ----


@dataclass
class _Carried:
    """A value that a loop carries: what it is before the first step, and its dims in all steps."""

    name: str
    type: ir.TypeProtocol | None
    before: PartialDims | None
    dims: PartialDims | None
    own: dict[int, Dim] = field(default_factory=dict)  # the axes that steps change, as symbols

    def widen(self, given: ir.Value, made: ir.Value, around: frozenset[str]) -> bool:
        """Make the dims that a step changes symbols of the body; whether there are new ones."""
        now, after = _partial(given), _partial(made)
        if self.dims is None or now is None or after is None or len(now) != len(after):
            return False
        new = [axis for axis, pair in enumerate(zip(now, after, strict=True)) if not _are_same(*pair)]
        freed = [self.free(axis, around) for axis in new]
        return any(freed)

    def free(self, axis: int, around: frozenset[str]) -> bool:
        """Make a dim a symbol of the body, unless it is one."""
        if axis in self.own or self.dims is None:
            return False
        name = identifier(f"{self.name}_dim{axis}")
        while name in around:
            name += "_"
        self.own[axis] = symbol(name)
        self.dims = (*self.dims[:axis], self.own[axis], *self.dims[axis + 1 :])
        return True

    def after(self, made: ir.Value) -> PartialDims | None:
        """The dims of the result: those that no step changes."""
        if self.before is None or made.shape is None or len(made.shape) != len(self.before):
            return None
        return tuple(None if axis in self.own else dim for axis, dim in enumerate(self.before))


def _are_same(a: Dim | None, b: Dim | None) -> bool:
    """Whether two dims are known to be equal."""
    return a is not None and b is not None and same(a, b)


def _settled(
    maker: _Maker,
    before: Sequence[_Given],
    start: Sequence[tuple[ir.Value, _Given]],
    after: Sequence[_Given],
    first: int,
) -> tuple[Inner, list[_Carried]]:
    """The body for the dims that all steps have, and the values that it carries.

    ``start`` has what these are before the first step. Output ``first`` of the body is the first of them.
    """
    carried = [_Carried(inner.name or "", one.type, one.shape, one.shape) for inner, one in start]
    for one in carried:
        for axis in [axis for axis, dim in enumerate(one.dims or ()) if dim is None]:
            one.free(axis, maker.around)
    while True:
        body = maker.body("body", [*before, *(_Given(one.type, one.dims) for one in carried), *after])
        graph = body.model.graph
        states = zip(carried, graph.inputs[len(before) :], graph.outputs[first:], strict=False)
        changed = [one.widen(given, made, maker.around) for one, given, made in states]
        if not any(changed):
            return body, carried


def _known(shape: PartialDims | None) -> list[Dim]:
    return [dim for dim in shape or () if dim is not None]


def _loop(maker: _Maker) -> Control:
    node, graph = maker.node, maker.graph("body")
    before = [_scalar(dtype, value) for dtype, value in zip(_COUNTER, graph.inputs, strict=False)]
    start = [(inner, _input(value)) for inner, value in zip(graph.inputs[2:], node.inputs[2:], strict=False)]
    body, carried = _settled(maker, before, start, (), 1)
    outputs = list(body.model.graph.outputs)[1:]
    steps = _steps(maker, body)
    scans = [_stacked(body.outside(value), 0, steps) for value in outputs[len(carried) :]]
    return Control(
        {"body": body},
        tuple(value.type for value in outputs),
        (*(one.after(made) for one, made in zip(carried, outputs, strict=False)), *scans),
    )


_COUNTER = (ir.DataType.INT64, ir.DataType.BOOL)


def _steps(maker: _Maker, body: Inner) -> Dim | None:
    """The number of steps of a Loop, if nothing but its trip count ends it."""
    condition = maker.number(1)
    if condition == 0 and maker.node.inputs[1] is not None:
        return 0
    has_condition = len(maker.node.inputs) > 1 and maker.node.inputs[1] is not None
    trips = maker.number(0)
    if trips is None or (has_condition and condition is None) or not _goes_on(body):
        return None
    return maximum(trips, 0)


def _goes_on(body: Inner) -> bool:
    """Whether the condition that a step gives is always true, if that which it gets is."""
    value = body.model.graph.outputs[0]
    while (
        (maker := value.producer()) is not None
        and maker.op_type == "Identity"
        and maker.inputs[0] is not None
    ):
        value = maker.inputs[0]
    if value.const_value is not None:
        return bool(value.const_value.numpy().all())
    return value is body.model.graph.inputs[1]


def _stacked(shape: PartialDims | None, axis: int, steps: Dim | None) -> PartialDims | None:
    """The dims of results of all steps along a new axis."""
    if shape is None:
        return None
    axis %= len(shape) + 1
    return (*shape[:axis], steps, *shape[axis:])


def _scan(maker: _Maker) -> Control:
    node, graph = maker.node, maker.graph("body")
    batched = maker.opset() <= 8
    operands = node.inputs[1:] if batched else node.inputs
    scanned = node.attributes["num_scan_inputs"].as_int()
    count = len(operands) - scanned
    if not 0 <= count <= len(graph.inputs) or scanned < 1:
        raise ModelError(f"node `{node.name}` (Scan): num_scan_inputs is {scanned} of {len(operands)} inputs")
    given = [_without(_input(value), (0,) if batched else ()) for value in operands]
    axes = scan_axes(node, batched, scanned)
    slices = [_without(one, (axis,)) for one, axis in zip(given[count:], axes, strict=True)]
    start = list(zip(graph.inputs, given[:count], strict=False))
    body, carried = _settled(maker, (), start, slices, 0)
    outputs = list(body.model.graph.outputs)
    steps = _length(given[count], axes[0])
    out_axes = maker.attribute("scan_output_axes", ()) or [0] * (len(outputs) - count)
    shapes = [one.after(made) for one, made in zip(carried, outputs, strict=False)]
    shapes += [
        _stacked(body.outside(value), axis, steps)
        for value, axis in zip(outputs[count:], out_axes, strict=False)
    ]
    if batched:
        first = _partial(operands[-1]) if operands[-1] is not None else None
        batch = first[0] if first else None
        shapes = [None if shape is None else (batch, *shape) for shape in shapes]
    return Control({"body": body}, tuple(value.type for value in outputs), tuple(shapes))


def scan_axes(node: ir.Node, batched: bool, scanned: int) -> Sequence[int]:
    """The axis of each scanned input; the batch does not count."""
    found = None if batched else node.attributes.get("scan_input_axes")
    axes: Sequence[int] = [0] * scanned if found is None else found.as_ints()
    return axes


def _length(given: _Given, axis: int) -> Dim | None:
    return given.shape[axis] if given.shape else None


def _without(given: _Given, axes: Sequence[int]) -> _Given:
    shape = given.shape
    if shape is None:
        return given
    gone = {axis % max(len(shape), 1) for axis in axes}
    if len(gone) > len(shape):
        raise ModelError(f"a scanned input has dims {shape}; expected an axis to scan")
    return _Given(given.type, tuple(dim for axis, dim in enumerate(shape) if axis not in gone))


_MAKERS: Mapping[str, Callable[[_Maker], Control]] = {"If": _if, "Loop": _loop, "Scan": _scan}
