"""What torch's exporter gets wrong, or leaves undone, and is put right in its graphs and models."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import onnx_ir as ir
import onnxscript.version_converter
import torch
from onnx_ir.tensor_adapters import from_torch_dtype
from torch._decomp.decompositions import _native_batch_norm_legit_functional as _functional_norm
from torch.export.graph_signature import OutputKind, TensorArgument
from torch.fx.experimental.symbolic_shapes import statically_known_true

from farcall.errors import ModelError

_BFLOAT16_OPSET = 22  # the first one whose convolutions and poolings take bfloat16
_NORM = torch.ops.aten._native_batch_norm_legit_functional.default
_UNROUNDED = (ir.DataType.FLOAT, ir.DataType.BFLOAT16)


def mend_results(model: ir.Model, program: torch.export.ExportedProgram) -> None:
    """Cast results to the dtypes that they have in torch.

    The exporter computes sums and products of halves in float32, and rounds the result, as torch does. It
    then returns the value from before the rounding, since it looks for results by their former names.
    """
    for place, (value, meant) in enumerate(zip(model.graph.outputs, _results(program), strict=True)):
        dtype = from_torch_dtype(meant)
        if value.dtype in (None, dtype):
            continue
        cast = ir.node("Cast", [value], {"to": dtype.value}, name=f"{value.name}_rounded")
        cast.outputs[0].name, cast.outputs[0].shape = f"{value.name}_rounded", value.shape
        cast.outputs[0].dtype = dtype
        model.graph.append(cast)
        model.graph.outputs[place] = cast.outputs[0]


def mend_names(model: ir.Model) -> None:
    """Give inputs that the model returns their own names.

    The exporter calls the result ``x``, and the input ``x_orig``.
    """
    results = {value.name: value for value in model.graph.outputs}
    for value in model.graph.inputs:
        name = (value.name or "").removesuffix("_orig")
        if name != value.name and name in results:
            results[name].name, value.name = f"{name}_out", name


def _results(program: torch.export.ExportedProgram) -> Iterator[torch.dtype]:
    (output,) = program.graph.find_nodes(op="output")
    for spec, node in zip(program.graph_signature.output_specs, output.args[0], strict=True):
        if spec.kind == OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument):
            yield node.meta["val"].dtype


def with_bfloat16(model: ir.Model) -> ir.Model:
    """The model in an opset that has bfloat16 for all its operators, if it computes with bfloat16."""
    version = model.opset_imports.get("", _BFLOAT16_OPSET)
    values = (value for node in ir.traversal.RecursiveGraphIterator(model.graph) for value in node.outputs)
    if version < _BFLOAT16_OPSET and any(value.dtype == ir.DataType.BFLOAT16 for value in values):
        onnxscript.version_converter.convert_version(model, _BFLOAT16_OPSET)
    return model


def mend_weights(model: ir.Model) -> None:
    """Round the weights of convolutions and products to the dtype of their results.

    The optimizer makes a BatchNorm part of such weights, and those of bfloat16 are float32 then.
    """
    for node in model.graph:
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm"):
            continue
        for value in node.inputs:
            if value is None or not value.is_initializer():
                continue
            kept = value.const_value
            if kept is not None and (kept.dtype, node.outputs[0].dtype) == _UNROUNDED:
                rounded = torch.from_numpy(kept.numpy()).to(torch.bfloat16)
                value.const_value, value.dtype = ir.tensor(rounded, name=value.name), _UNROUNDED[1]


def _trained_norm(*args: Any) -> Any:
    """A BatchNorm that computes with the batch's own statistics, as simpler operators."""
    *_, training, _momentum, _epsilon = args
    return _functional_norm(*args) if training else NotImplemented


DECOMPOSITIONS = {_NORM: _trained_norm}
"""For ``run_decompositions``: what the exporter would get wrong."""


def refuse_wrong(program: torch.export.ExportedProgram) -> None:
    """Refuse what the exporter would take for something else.

    Raises:
        ModelError: an operator has an argument that the exporter ignores.
    """
    for operator_, (argument, is_right, message) in _IGNORED.items():
        for node in program.graph.find_nodes(op="call_function", target=operator_):
            if not is_right(_argument(node, argument)):
                raise ModelError(message)


_IGNORED: dict[Any, tuple[str, Callable[[Any], bool], str]] = {
    _NORM: (
        "training",
        lambda training: not training,
        "a batch_norm in training mode has running statistics, which it writes; "
        "call .eval(), or give it no running_mean and no running_var",
    ),
    torch.ops.aten.scatter_reduce.two: (
        "reduce",
        lambda reduce: reduce != "mean",
        "scatter_reduce with 'mean' is not in ONNX; divide a 'sum' by the counts",
    ),
    torch.ops.aten.avg_pool2d.default: (
        "divisor_override",
        lambda divisor: divisor is None,
        "avg_pool2d with divisor_override is not in ONNX; multiply the result by the size of the kernel and "
        "divide it by the divisor",
    ),
    torch.ops.aten.cross_entropy_loss.default: (
        "label_smoothing",
        lambda smoothing: smoothing == 0,
        "cross_entropy with label_smoothing is not in ONNX; compute it from log_softmax",
    ),
}


def _argument(node: torch.fx.Node, name: str) -> Any:
    """The argument of an operator that is called, or its default."""
    for place, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            given = node.args[place] if place < len(node.args) else argument.default_value
            return node.kwargs.get(name, given)
    raise LookupError(f"{node.target} has no argument {name}")


def mend_floor_divisions(program: torch.export.ExportedProgram) -> None:
    """Rewrite ``a // b`` of ints that may be negative: the exporter rounds them towards zero."""
    for node in program.graph.find_nodes(op="call_function", target=operator.floordiv):
        a, b = node.args
        if statically_known_true(_number(a) >= 0) and statically_known_true(_number(b) > 0):
            continue
        with program.graph.inserting_before(node):
            rest = _call(program.graph, operator.mod, a, b)
            node.args = (_call(program.graph, operator.sub, a, rest), b)
    program.graph_module.recompile()


def _number(item: Any) -> Any:
    return item.meta["val"] if isinstance(item, torch.fx.Node) else item


def _call(graph: torch.fx.Graph, function: Any, a: Any, b: Any) -> torch.fx.Node:
    node = graph.call_function(function, (a, b))
    node.meta["val"] = function(_number(a), _number(b))
    return node
