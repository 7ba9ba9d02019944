"""Graphs of Dynamo: what goes in and out, which inputs are weights, and what keeps a graph from export."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._dynamo.symbolic_convert import TensorifyState
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from farcall.errors import ModelError
from farcall.torch._export import exporting, to_onnx
from farcall.torch._mending import DECOMPOSITIONS, mend_floor_divisions
from farcall.torch._views import Given, memory, shared, view, with_outputs

_EXAMPLE = "example_value"  # where Dynamo keeps the fake value of a node
WRITTEN = (
    "farcall.written"  # key in an exported model's metadata: the inputs whose new values it returns first
)
GRADIENTS = (
    "gradients are asked for, and artifacts compute none; call the compiled model under torch.no_grad()"
)
_SYMBOLIC = torch.SymInt | torch.SymFloat | torch.SymBool
_STATIC = "_dynamo_static_input_type"  # Dynamo's mark of parameters and buffers


class Size(NamedTuple):
    """The size of dim ``dim`` of the input with the number ``input``."""

    input: int
    dim: int


class Number(NamedTuple):
    """A number that follows from sizes and ints of the inputs.

    Attributes:
        formula: the number in terms of torch's symbols.
        symbols: where the value of each symbol is: the number of an input that is an int, or a Size.
        kind: int, float or bool.
        dtype: that of the tensor that Dynamo wants the number in; None: it wants the number.
    """

    formula: Any
    symbols: dict[Any, int | Size]
    kind: type
    dtype: torch.dtype | None

    def of(self, inputs: Sequence[Any]) -> Any:
        """Its value for these inputs."""
        values = {symbol: _value(source, inputs) for symbol, source in self.symbols.items()}
        number = self.kind(sympy_interp(PythonReferenceAnalysis, values, self.formula))
        return number if self.dtype is None else torch.scalar_tensor(number, dtype=self.dtype)


class Result(NamedTuple):
    """An output that the model computes.

    Attributes:
        number: its place among the model's outputs.
        order: the dims from the slowest to the fastest, if eager code lays them out in another order.
    """

    number: int
    order: tuple[int, ...] | None


class Captured(torch.nn.Module):  # type: ignore[misc]
    """A graph of Dynamo as a module that a model can stand for.

    Dynamo passes sizes of tensors beside the tensors, and its graph may return sizes and constants. This
    module takes the sizes from the tensors, and returns tensors only. Other numbers that vary stay inputs.

    Attributes:
        graph: Dynamo's graph.
        places: the positions of the module's inputs among the graph's.
        names: their names.
        fixed: by position, ints that are constants for Dynamo from now on.
        fakes: what Dynamo knows of them: tensors without data, with symbols as sizes, and symbols.
        outputs: for each output of the graph: a Result, a View, an input, a Number, or a constant.
        wholes: the Results that Views are of, beside those that are of inputs.
    """

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        """Read a graph.

        Raises:
            ModelError: an input is neither a tensor nor an int, or an output depends on values of tensors,
                has a gradient, or is a view that cannot be made of its base.
        """
        super().__init__()
        self.graph = graph
        nodes = graph.graph.find_nodes(op="placeholder")
        values = [node.meta.get(_EXAMPLE) for node in nodes]
        self.fixed = {place: int(value) for place, value in enumerate(values) if _is_negative(value)}
        sizes = {str(size): place for place, value in enumerate(values) for size in _symbols(value)}
        self.places = [
            place
            for place, value in enumerate(values)
            if place not in self.fixed and (_is_tensor(value) or str(value) not in sizes)
        ]
        self._nodes = [nodes[place] for place in self.places]
        self.names = [node.name for node in self._nodes]
        self.fakes: list[Any] = [values[place] for place in self.places]
        for name, fake in zip(self.names, self.fakes, strict=True):
            _check_input(name, fake)
        self._sources = [self._source(place, value) for place, value in enumerate(values)]
        self._written: list[int] = []  # inputs; known when the graph was exported once
        self._whole = shared(graph.graph, self.fakes)
        self.outputs = [*self._read_outputs()]
        count = sum(isinstance(kind, Result) for kind in self.outputs)
        wholes = enumerate(node.meta[_EXAMPLE] for node in self._whole.values())
        self.wholes = [Result(count + place, _order(fake)) for place, fake in wholes]
        self.graph = with_outputs(graph, [*self._whole.values()])

    def forward(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        """The new values of inputs that the graph writes to, and the outputs that are tensors."""
        inputs = tuple(
            value.clone() if index in self._written else value for index, value in enumerate(inputs)
        )
        arguments = [
            self.fixed[place] if source is None else _value(source, inputs)
            for place, source in enumerate(self._sources)
        ]
        found = zip(self.graph(*arguments), (*self.outputs, *self.wholes), strict=True)
        results = [value for value, kind in found if isinstance(kind, Result)]
        return (*(inputs[index] for index in self._written), *results)

    def symbolic(self) -> Iterator[Size]:
        """The dims of inputs that vary from call to call."""
        for index, fake in enumerate(self.fakes):
            for dim, size in enumerate(fake.shape if _is_tensor(fake) else ()):
                if isinstance(size, torch.SymInt):
                    yield Size(index, dim)

    def is_weight(self, index: int) -> bool:
        """Whether the input is a parameter or a buffer of a module."""
        kept = self._nodes[index].meta.get("tensor_dict") or {}
        return isinstance(self.fakes[index], torch.nn.Parameter) or _STATIC in kept

    def export(self, inputs: Sequence[Any]) -> Any:
        """The graph as an ``onnx_ir.Model`` of these inputs, weights too. Its optimizer has not run.

        Raises:
            ModelError: torch cannot export the graph, or the graph computes nothing.
        """
        dims: list[Any] = [{} if _is_tensor(value) else torch.export.Dim.DYNAMIC for value in inputs]
        for index, dim in self.symbolic():
            dims[index][dim] = torch.export.Dim.AUTO
        arguments = tuple(value.detach() if _is_tensor(value) else int(value) for value in inputs)
        shapes = (tuple(dims),) if dims else None
        with torch._guards.tracing(None):  # without Dynamo's context, which has symbols of its own
            program = self._program(arguments, shapes)
            if written := self._find_written(program.graph_signature):
                self._written = written
                program = self._program(arguments, shapes)
            mend_floor_divisions(program)
            model = to_onnx(program, input_names=self.names, optimize=False)
            if not model.graph.outputs:
                raise ModelError("it computes nothing: it returns views of its inputs, or numbers")
            model.metadata_props[WRITTEN] = json.dumps(written)
            return model

    def _program(self, arguments: tuple[Any, ...], shapes: Any) -> torch.export.ExportedProgram:
        """The graph without operators in place; its signature says what it writes to."""
        with exporting("torch.export cannot export the graph"):
            program = torch.export.export(self, arguments, dynamic_shapes=shapes)
            return program.run_decompositions(DECOMPOSITIONS)

    def _read_outputs(self) -> Iterator[object]:
        (output,) = self.graph.graph.find_nodes(op="output")
        owned = [memory(fake) if _is_tensor(fake) else None for fake in self.fakes]
        wholes = {base: node.meta[_EXAMPLE] for base, node in self._whole.items()}
        count = 0
        for place, item in enumerate(output.args[0]):
            value = item.meta.get(_EXAMPLE) if isinstance(item, torch.fx.Node) else item
            if not _is_tensor(value):
                yield self._number(value) if isinstance(value, _SYMBOLIC) else value
                continue
            if (number := _number_in(item)) is not None:
                yield self._number(number, value.dtype)  # ONNX would compute it in float32
                continue
            if value.requires_grad:
                raise ModelError(GRADIENTS)
            if value.is_complex():
                raise ModelError(f"output {place} of the graph is complex, which ONNX has no operators for")
            if memory(value) in owned:
                index = owned.index(memory(value))
                if (
                    owned.count(memory(value)) > 1
                ):  # Dynamo guards sizes and strides, but not where they begin
                    raise ModelError(
                        f"output {place} of the graph is a view of memory that several inputs share"
                    )
                given = value is self.fakes[index]  # as operators in place return their own input
                yield Given(index) if given else view(value, index, self.fakes[index], self._read)
            elif memory(value) in wholes:
                index = [*wholes].index(memory(value)) - len(wholes)
                yield view(value, index, wholes[memory(value)], self._read)
            else:
                yield Result(count, _order(value))
                count += 1

    def _source(self, place: int, value: Any) -> int | Size | None:
        """Where the graph's input is: at a place of the module's, or a size of one; None: it is fixed."""
        if place in self.fixed:
            return None
        return self.places.index(place) if place in self.places else self._size(value)

    def _size(self, value: torch.SymInt) -> Size:
        return next(
            size for size in self.symbolic() if str(self.fakes[size.input].shape[size.dim]) == str(value)
        )

    def _read(self, size: Any) -> Any:
        return self._number(size) if isinstance(size, _SYMBOLIC) else size

    def _number(self, value: Any, dtype: torch.dtype | None = None) -> Number:
        known: dict[str, int | Size] = {
            str(self.fakes[size.input].shape[size.dim]): size for size in self.symbolic()
        }
        known |= {str(fake): index for index, fake in enumerate(self.fakes) if not _is_tensor(fake)}
        formula = value.node.expr
        if not {str(symbol) for symbol in formula.free_symbols} <= {*known}:
            raise ModelError(f"the graph returns the number {value}, which depends on values of tensors")
        symbols = {symbol: known[str(symbol)] for symbol in formula.free_symbols}
        return Number(formula, symbols, value.node.pytype, dtype)

    def _find_written(self, signature: torch.export.ExportGraphSignature) -> list[int]:
        for name in signature.buffers_to_mutate.values():
            raise ModelError(f"the graph writes to its constant `{name}`")
        names = [*signature.user_inputs]
        written = [names.index(name) for name in signature.user_inputs_to_mutate.values()]
        if any(self.fakes[index].requires_grad for index in written):
            raise ModelError(GRADIENTS)
        return written


def specialize_floats(graph: torch.fx.GraphModule) -> None:
    """Have Dynamo take the Python floats that a graph reads as constants.

    With ``dynamic=True``, Dynamo makes inputs of the floats of a module, such as the ``eps`` of a BatchNorm.
    In ONNX, most of them are attributes. Inductor asks Dynamo in the same way for the floats that it cannot
    keep as inputs (``torch.fx.passes._tensorify_python_scalars``).

    Raises:
        TensorifyScalarRestartAnalysis: Dynamo has to capture the graph again; it catches this.
    """
    symbols = [symbol for node in graph.graph.find_nodes(op="placeholder") if (symbol := _float_symbol(node))]
    for symbol in symbols:
        TensorifyState.specialize(symbol)
    if symbols:
        raise TensorifyScalarRestartAnalysis


def _float_symbol(node: torch.fx.Node) -> str | None:
    """The symbol that Dynamo uses for a float, if the input ``node`` is one as a tensor."""
    item = getattr(node.meta.get(_EXAMPLE), "item_memo", None)
    if not isinstance(item, torch.SymFloat) or any(user.target != "item" for user in node.users):
        return None
    return getattr(item.node._expr, "name", None)


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _number_in(node: torch.fx.Node) -> Any:
    """The number in symbols that ``node`` puts into a tensor, if it does no more."""
    made = node.op == "call_function" and node.target is torch.scalar_tensor and node.args
    value = made and isinstance(made[0], torch.fx.Node) and made[0].meta.get(_EXAMPLE)
    return value if isinstance(value, _SYMBOLIC) else None


def _is_negative(value: object) -> bool:
    """Whether an int is negative: torch.export takes those that vary for sizes. The answer is a guard."""
    return isinstance(value, torch.SymInt) and bool(value < 0)


def _value(source: int | Size, inputs: Sequence[Any]) -> Any:
    return inputs[source] if isinstance(source, int) else inputs[source.input].shape[source.dim]


def _symbols(value: object) -> Iterator[torch.SymInt]:
    """The sizes of a tensor that vary."""
    if isinstance(value, torch.Tensor):
        yield from (size for size in value.shape if isinstance(size, torch.SymInt))


def _check_input(name: str, fake: Any) -> None:
    if not isinstance(fake, torch.Tensor | torch.SymInt):
        raise ModelError(f"its input `{name}` is a {type(fake).__name__}, neither a tensor nor an int")
    if isinstance(fake, torch.Tensor) and fake.is_complex():
        raise ModelError(f"its input `{name}` is complex, which ONNX has no operators for")


def _order(fake: torch.Tensor) -> tuple[int, ...] | None:
    """The dims of a tensor from the slowest to the fastest; None if that is their usual order."""
    strides = [size.node.hint if isinstance(size, torch.SymInt) else size for size in fake.stride()]
    order = tuple(sorted(range(fake.dim()), key=lambda dim: -strides[dim]))
    return None if order == tuple(range(fake.dim())) or 0 in strides else order
