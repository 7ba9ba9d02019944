"""Access to ONNX's shape inference: reads its types, and infers single nodes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import onnx_ir as ir

from farcall.graph._guards import fit_for_inference, may_end_inference, takes_rank_from_length
from farcall.graph._region import reads
from farcall.graph._view import MAX_DATA, Data

if TYPE_CHECKING:
    import onnx

# A type, and the dims (each an int, a name or None) if the rank is known.
Found: TypeAlias = "tuple[ir.TypeProtocol | None, tuple[int | str | None, ...] | None]"


def is_default_domain(domain: str) -> bool:
    """Whether a domain is ONNX's own, which has two spellings."""
    return domain in ("", "ai.onnx")


def read_type(proto: onnx.TypeProto) -> Found:
    """The type and dims that a ``TypeProto`` holds."""
    if not proto.HasField("tensor_type"):
        return ir.serde.deserialize_type_proto_for_type(proto), None
    tensor = proto.tensor_type
    kind = ir.TensorType(ir.DataType(tensor.elem_type)) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return kind, None
    return kind, tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim
    )


def infer_node(node: ir.Node, model: ir.Model, data: dict[ir.Value, Data]) -> dict[str, Found]:
    """ONNX's inference for one node, from the types and shapes that its inputs have now.

    Args:
        node: A node.
        model: The node's model, which gives the opset.
        data: The known elements of computed integer operands.

    Returns:
        Output name -> its inferred type; empty if ONNX infers nothing.
    """
    import onnx

    domain = "" if is_default_domain(node.domain) else node.domain
    opset = model.opset_imports.get(domain, 1)
    if any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values()):
        return _infer_alone(node, model, data)
    given = [value for value in node.inputs if value is not None]
    proto = ir.serde.serialize_node(node)
    if may_end_inference(proto, is_typed=all(value.type is not None for value in given)):
        return {}
    hidden = node.inputs[1] if takes_rank_from_length(node, opset) else None
    for version in (opset, onnx.defs.onnx_opset_version()):
        try:
            types = onnx.shape_inference.infer_node_outputs(
                onnx.defs.get_schema(node.op_type, version, domain),
                proto,
                {value.name: type_proto(value, is_shaped=value is not hidden) for value in given},
                {value.name: tensor for value in given if (tensor := _operand(value, data)) is not None},
                opset_imports=[onnx.helper.make_opsetid(domain, version)],
                ir_version=model.ir_version,
            )
        except onnx.checker.ValidationError:  # a dtype that only later versions allow
            continue
        except (onnx.defs.SchemaError, *inference_errors()):
            return {}
        return {name: read_type(found) for name, found in types.items()}
    return {}


def _infer_alone(node: ir.Node, model: ir.Model, data: dict[ir.Value, Data]) -> dict[str, Found]:
    """The inference of a model of this node alone, which also goes through the graphs inside the node."""
    import onnx

    given = dict.fromkeys(value for value in reads(node) if value.type is not None)
    constants = {value: tensor for value in given if (tensor := _operand(value, data)) is not None}
    graph = onnx.helper.make_graph(
        [ir.serde.serialize_node(node)],
        "node",
        [
            onnx.helper.make_value_info(value.name, type_proto(value))
            for value in given
            if value not in constants
        ],
        [onnx.helper.make_empty_tensor_value_info(value.name) for value in node.outputs if value.name],
        list(constants.values()),
    )
    versions = [onnx.helper.make_opsetid(*item) for item in model.opset_imports.items()]
    proto = onnx.helper.make_model(graph, opset_imports=versions, ir_version=model.ir_version)
    try:
        inferred = onnx.shape_inference.infer_shapes(fit_for_inference(proto))
    except inference_errors():
        return {}
    return {info.name: read_type(info.type) for info in inferred.graph.output}


def inference_errors() -> tuple[type[Exception], ...]:
    """What ONNX's inference raises; IndexError where it reads more dims than a shape has."""
    import onnx

    return onnx.shape_inference.InferenceError, RuntimeError, ValueError, IndexError


def type_proto(value: ir.Value, is_shaped: bool = True) -> onnx.TypeProto:
    """The type of a value, with its shape if that is known."""
    import onnx

    proto = onnx.TypeProto()
    if value.type is not None:
        ir.serde.serialize_type_into(proto, value.type)
        if is_shaped and value.shape is not None:
            ir.serde.serialize_shape_into(proto, value.shape)
    return proto


def _operand(value: ir.Value, data: dict[ir.Value, Data]) -> onnx.TensorProto | None:
    import onnx

    if value.const_value is not None and value.const_value.size <= MAX_DATA:
        return ir.serde.serialize_tensor(value.const_value)
    if value in data and all(isinstance(item, int) for item in data[value].ravel()):
        items = data[value].astype("int64")
        return onnx.numpy_helper.from_array(items, value.name)
    return None
