"""Lowers the nodes of a region to the interpreter's operators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from farcall.backends.c._check import reason as reason_of_c
from farcall.backends.c._node import Unsupported, output_used
from farcall.backends.c._registry import in_training
from farcall.backends.c._training import may_drop
from farcall.backends.json import _elementwise, _linear, _shaping
from farcall.backends.json._graph import GraphFunction, dtype_of
from farcall.backends.json._registry import LOWERINGS
from farcall.graph.dims import UnknownShapeError

if TYPE_CHECKING:
    import onnx_ir as ir

    from farcall.backends.base import RegionModule
    from farcall.graph import Region

KIND = "farcall.json"
VERSION = 1
_FAMILIES = (_elementwise, _linear, _shaping)  # each registers its operators


def reason(node: ir.Node) -> str | None:
    """The reason why the node is refused, or None: it is lowered, to see whether that works."""
    lower = LOWERINGS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if lower is None:
        return f"the interpreter has no operator for {node.op_type}"
    if in_training(node) or (node.op_type == "Dropout" and may_drop(node)):
        return "training_mode"
    if (refusal := reason_of_c(node)) is not None:  # what a model may contain is the same for both
        return refusal
    inputs = dict.fromkeys(v for v in node.inputs if v is not None and v.name and v.const_value is None)
    used = [value for i, value in enumerate(node.outputs) if output_used(node, i)]
    outputs = used or node.outputs[:1]
    try:
        function = GraphFunction(inputs, outputs)
        for value in outputs:
            dtype_of(value)
        lower(function, node)
        function.payload()
    except (Unsupported, UnknownShapeError) as error:
        return str(error)
    return None


def lower_region(region: Region) -> GraphFunction:
    """The function of a region."""
    function = GraphFunction(region.inputs, region.outputs)
    for node in region.nodes:
        LOWERINGS[node.op_type](function, node)
    return function


def compile_region(region: Region) -> RegionModule:
    """The module of a region."""
    from farcall.backends.base import RegionModule

    function = lower_region(region)
    data = encode({region.name: function.payload()})
    return RegionModule(
        KIND,
        VERSION,
        data,
        constants={f"{region.name}_k{i}": data for i, (_, data) in enumerate(function.constants)},
        workspace=function.workspace,
        symbols=tuple(function.hidden_symbols()),
        source=data.decode(),
    )


def encode(functions: dict[str, Any]) -> bytes:
    """The payload of a module with these functions."""
    return json.dumps({"functions": functions}, separators=(",", ":")).encode()
