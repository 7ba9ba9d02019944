"""Exports the partitioned model as ONNX: each region is an ONNX function in its backend's domain, which the
graph calls once.

Any ONNX tool can open, check and run it: the body of a function is the region's nodes, unchanged. Weights are
the function's last inputs, because an ONNX function has no initializers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.errors import UsageError
from farcall.graph._region import Region

if TYPE_CHECKING:
    from farcall.graph._partition import Partition

_FUNCTIONS_SINCE = 8  # ONNX IR version
_DOMAIN_VERSION = 1
_ONE_FILE_BYTES = 1 << 30  # protobuf limits a message to 2 GB


def partitioned_model(partition: Partition) -> ir.Model:
    """Build the partitioned model. It shares only the weights with ``partition.model``."""
    model = partition.model
    graph = model.graph
    values = {value: _copy(value) for value in (*graph.inputs, *graph.initializers.values())}
    calls = [_call(region, values) for region in partition.regions]
    imports = dict(model.opset_imports)
    for region in partition.regions:
        imports.setdefault(region.backend, _DOMAIN_VERSION)
    result = ir.Graph(
        [values[value] for value in graph.inputs],
        [values[value] for value in graph.outputs],
        nodes=calls,
        initializers=[values[value] for value in graph.initializers.values()],
        name=graph.name or "graph",
        doc_string=graph.doc_string,
        opset_imports=imports,
    )
    functions = [_function(region, model.opset_imports) for region in partition.regions]
    return ir.Model(
        result,
        ir_version=max(model.ir_version, _FUNCTIONS_SINCE),
        producer_name="farcall",
        functions=functions,
        metadata_props=dict(model.metadata_props),
    )


def _copy(value: ir.Value) -> ir.Value:
    return ir.Value(
        name=value.name,
        shape=None if value.shape is None else value.shape.copy(),
        type=copy(value.type),
        const_value=value.const_value,
    )


def _call(region: Region, values: dict[ir.Value, ir.Value]) -> ir.Node:
    values.update((value, _copy(value)) for value in region.outputs)
    return ir.Node(
        region.backend,
        region.name,
        [values[value] for value in (*region.inputs, *region.constants)],
        outputs=[values[value] for value in region.outputs],
        name=region.name,
    )


def _function(region: Region, imports: dict[str, int]) -> ir.Function:
    import onnx

    domains = {node.domain for node in region.nodes} | {""}
    proto = onnx.FunctionProto(
        domain=region.backend,
        name=region.name,
        input=[value.name or "" for value in (*region.inputs, *region.constants)],
        output=[value.name or "" for value in region.outputs],
        node=[ir.to_proto(node) for node in region.nodes],
        opset_import=[
            onnx.helper.make_opsetid(domain, version)
            for domain, version in imports.items()
            if domain in domains
        ],
        doc_string=", ".join(match.pattern for match in region.matches[:8]),
    )
    function: ir.Function = ir.from_proto(proto)
    return function


def save_model(model: ir.Model, path: str | os.PathLike[str]) -> None:
    """Write a model to a temporary file and rename it, so that an error leaves no partial file.

    Weights of 1 GiB or more go into a separate file ``NAME.data`` in the same folder.

    Raises:
        UsageError: The path cannot be written.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    constants = [value.const_value for value in model.graph.initializers.values()]
    is_large = sum(tensor.nbytes for tensor in constants if tensor is not None) > _ONE_FILE_BYTES
    data = target.with_name(f"{target.name}.data") if is_large else None
    try:
        if data is None:
            _inline_external(model.graph.initializers.values())
        ir.save(model, beside, external_data=data.name if data else None)
        beside.replace(target)
    except OSError as error:
        raise UsageError(f"cannot write `{target}`: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _inline_external(values: Iterable[ir.Value]) -> None:
    for value in values:
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)
