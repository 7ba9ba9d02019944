"""The backend ``farcall`` of ``torch.compile``."""

from __future__ import annotations

import json
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx_ir as ir
import torch

from farcall._logs import Log
from farcall._texts import count
from farcall.errors import ModelError, UsageError
from farcall.torch._export import quiet
from farcall.torch._exports import exported
from farcall.torch._graph import WRITTEN, Captured, Number, Result, specialize_floats
from farcall.torch._mending import mend_weights
from farcall.torch._options import Options
from farcall.torch._views import Given, View
from farcall.torch._weights import Weights

if TYPE_CHECKING:
    import onnx

    from farcall.artifact import Artifact


def backend(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured: ``torch.compile(model, backend="farcall", options={...})``.

    The graph is exported to ONNX, partitioned, and built as an artifact, which runs here or in a session. A
    graph that cannot be compiled, and one whose caller asks for gradients, runs in eager mode, with a warning
    that says why.

    Args:
        graph: the graph.
        inputs: its inputs at the first call: tensors, and sizes that vary.
        options: ``backends``: those that may compute the graph, by priority, as :func:`farcall.partition`
            takes them (default: ``["c"]``). ``on``: the :class:`farcall.Session` whose server computes it
            (default: this process). ``target``: the machine of that server, as :meth:`Plan.build` takes it.
            ``freeze``: whether weights are constants of the artifact, which is built again when they change
            (default: True), or inputs of each call. ``strict``: whether a graph that cannot be compiled is
            an error (default: False).
        mode: torch passes what ``torch.compile(mode=...)`` asks for; farcall has no modes.

    Returns:
        A callable that takes what the graph takes and returns what it returns.

    Raises:
        UsageError: an option is not valid, or a tool or package is missing.
        ModelError: the graph cannot be compiled, and ``strict`` is set.
    """
    if mode is not None:
        raise UsageError(
            f"mode={mode!r}: farcall has no modes; leave mode out, and choose by options={{...}}"
        )
    chosen = Options.of(options)
    eager: Callable[..., Any] = graph.forward
    operators = sum(node.op not in ("placeholder", "output", "get_attr") for node in graph.graph.nodes)
    if not operators:
        return eager
    try:
        _check_inputs(inputs)
        specialize_floats(graph)
        return CompiledGraph(Captured(graph), inputs, chosen, eager)
    except ModelError as error:
        if chosen.strict:
            raise
        warnings.warn(
            f"farcall: a graph of {count(operators, 'operator')} runs in eager mode: {error}", stacklevel=2
        )
        return eager


def _check_inputs(inputs: Sequence[Any]) -> None:
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise ModelError(f"an input is on {value.device}; move model and inputs to the CPU")


class Built(NamedTuple):
    """An artifact that is loaded, with the weights that are its constants."""

    weights: Weights
    run: Callable[..., Sequence[torch.Tensor]]


class CompiledGraph:
    """What Dynamo calls in place of a graph."""

    def __init__(
        self, captured: Captured, inputs: Sequence[Any], options: Options, eager: Callable[..., Any]
    ) -> None:
        """Export the graph, and build it with the weights that it has now."""
        values = [inputs[place] for place in captured.places]
        self._places, self._names = captured.places, captured.names
        self._outputs, self._wholes = captured.outputs, captured.wholes
        self._options = options
        self._lock = threading.Lock()
        self._exported = exported(captured, values)
        self._written, self._eager = written(self._exported), eager
        self._built = self._build(Weights.of(captured, values, self._written, freeze=options.freeze))

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        """The outputs of the graph for its arguments."""
        values = [arguments[place] for place in self._places]
        if self._written and overlap(values, self._written):
            outputs: Sequence[Any] = self._eager(*arguments)
            return outputs
        built = self._built
        if built.weights.stale(values):
            built = self._rebuilt(values)
        fed = (values[index] for index in built.weights.fed)
        results = built.run(*[torch.tensor(value) if isinstance(value, int) else value for value in fed])
        results = self._write(results, values)
        wholes = [_result(kind, results) for kind in self._wholes]
        return [_output(kind, results, wholes, values) for kind in self._outputs]

    def _write(self, results: Sequence[torch.Tensor], values: Sequence[Any]) -> Sequence[torch.Tensor]:
        """Give the inputs that the graph writes to their new values; what is left are its own results."""
        with torch.no_grad():
            for index, result in zip(self._written, results, strict=False):
                values[index].copy_(result)
        return results[len(self._written) :]

    def _rebuilt(self, values: Sequence[Any]) -> Built:
        with self._lock:
            if self._built.weights.stale(values):
                self._built = self._build(self._built.weights.renewed(values))
            return self._built

    def _build(self, weights: Weights) -> Built:
        from farcall.artifact import partition

        frozen = {self._names[index]: item.alias for index, item in weights.frozen.items()}
        plan = partition(bound(self._exported, frozen), self._options.backends)
        Log("torch").info("%r, %s as constants", plan, count(len(frozen), "weight"))
        return Built(weights, _loaded(plan.build(self._options.target), self._options))


def written(exported: onnx.ModelProto) -> list[int]:
    """The inputs that a graph writes to, as its export has noted them."""
    notes = {item.key: item.value for item in exported.metadata_props}
    found: list[int] = json.loads(notes.get(WRITTEN, "[]"))
    return found


def overlap(values: Sequence[Any], written: Sequence[int]) -> bool:
    """Whether an input that is written shares memory with another one: the artifact sees them apart."""
    owners = [item.untyped_storage().data_ptr() if isinstance(item, torch.Tensor) else 0 for item in values]
    return any(owners[index] and owners.count(owners[index]) > 1 for index in written)


def _output(
    kind: object, results: Sequence[torch.Tensor], wholes: Sequence[torch.Tensor], inputs: Sequence[Any]
) -> object:
    if isinstance(kind, Result):
        return _result(kind, results)
    if isinstance(kind, Given):
        return inputs[kind.input]
    if isinstance(kind, View):
        base = wholes[kind.base] if kind.base < 0 else inputs[kind.base]
        return kind.of(base, lambda size: size.of(inputs) if isinstance(size, Number) else size)
    return kind.of(inputs) if isinstance(kind, Number) else kind


def _result(kind: Result, results: Sequence[torch.Tensor]) -> torch.Tensor:
    result = results[kind.number]
    return result if kind.order is None else _laid_out(result, kind.order)


def _laid_out(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The tensor with the dims ``order`` from the slowest to the fastest in memory, as eager code has it."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(order).contiguous().permute(back)


def bound(exported: onnx.ModelProto, weights: Mapping[str, torch.Tensor]) -> ir.Model:
    """The exported model, optimized with these inputs as constants."""
    import onnxscript.optimizer

    model: ir.Model = ir.from_proto(exported)
    inputs = {value.name: value for value in model.graph.inputs}
    for name, weight in weights.items():
        inputs[name].const_value = ir.tensor(weight, name=name)
        model.graph.inputs.remove(inputs[name])
        model.graph.register_initializer(inputs[name])
    with quiet():
        onnxscript.optimizer.optimize(model)
    mend_weights(model)
    return model


def _loaded(artifact: Artifact, options: Options) -> Callable[..., Sequence[torch.Tensor]]:
    """The artifact's ``main``, here or in the session, with torch's tensors as results."""
    if options.on is None:
        main: Any = artifact.load()["main"]
        return lambda *tensors: tuple(map(_as_torch, _as_tuple(main(*tensors))))
    with tempfile.TemporaryDirectory(prefix="farcall-torch-") as folder:
        main = options.on.load_module(artifact.save(Path(folder) / "model.so"))["main"]
    return lambda *tensors: tuple(_as_torch(result.to("cpu")) for result in _as_tuple(main(*tensors)))


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def _as_torch(result: Any) -> torch.Tensor:
    """A result in this process: torch's tensor already, if an argument of a local call was one."""
    return result if isinstance(result, torch.Tensor) else torch.from_dlpack(result)
