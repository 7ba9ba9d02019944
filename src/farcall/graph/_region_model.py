"""Makes a model of its own from one region, so that it can be partitioned and built for another machine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import onnx_ir as ir
import sympy

from farcall.graph._objects import own_dims
from farcall.graph._onnx_types import type_proto
from farcall.graph.dims import Dim, symbols

if TYPE_CHECKING:
    import onnx

    from farcall.graph._region import Region

_IR_VERSION = 10  # of ONNX; the versions of the operators are those of the model


def region_model(region: Region) -> onnx.ModelProto:
    """The nodes of a region as an ONNX model, with the region's inputs, outputs and constants.

    The dims of a model's inputs are ints and plain symbols. A dim of a region's input may be an expression,
    such as ``2*n``: each one becomes a symbol of its own.

    Raises:
        UnknownShapeError: the shape of an input is not known.
    """
    import onnx

    nodes = region.nodes
    graph = nodes[0].graph
    imports = {} if graph is None else graph.opset_imports
    named = _plain_dims(region)
    return onnx.ModelProto(
        ir_version=_IR_VERSION,
        opset_import=[onnx.helper.make_opsetid(domain, version) for domain, version in imports.items()],
        graph=onnx.GraphProto(
            name="region",
            node=[ir.to_proto(node) for node in nodes],
            input=[
                _info(value, [one if isinstance(one, int) else named[one] for one in own_dims(value)])
                for value in region.inputs
            ],
            output=[_info(value, None) for value in region.outputs],
            initializer=[_tensor(value) for value in region.constants],
        ),
    )


def _plain_dims(region: Region) -> dict[Dim, str]:
    """The name of each symbolic dim of the inputs."""
    found = dict.fromkeys(
        one for value in region.inputs for one in own_dims(value) if not isinstance(one, int)
    )
    taken = {str(one) for one in symbols(*found)}
    fresh: Iterator[str] = (name for name in (f"d{number}" for number in count()) if name not in taken)
    return {one: str(one) if isinstance(one, sympy.Symbol) else next(fresh) for one in found}


def _info(value: ir.Value, shape: list[int | str] | None) -> onnx.ValueInfoProto:
    import onnx

    if value.dtype is None:
        raise ValueError(f"`{value.name}` has no dtype")
    if not isinstance(value.type, ir.TensorType):
        return onnx.helper.make_value_info(value.name or "", type_proto(value, is_shaped=False))
    return onnx.helper.make_tensor_value_info(value.name or "", int(value.dtype), shape)


def _tensor(value: ir.Value) -> onnx.TensorProto:
    tensor = value.const_value
    if tensor is None:
        raise ValueError(f"`{value.name}` has no data")
    if isinstance(tensor, ir.ExternalTensor):  # the file of the weights stays here
        tensor = ir.Tensor(tensor.numpy(), dtype=tensor.dtype)
    proto: onnx.TensorProto = ir.to_proto(tensor)
    proto.name = value.name or ""
    return proto
