"""Definitions of operators by other operators: the function bodies of ONNX's schemas, and those of farcall.

A body is written for some version of the default domain. It is taken for a model of another version only if
the operators in it mean the same there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from farcall.graph._guards import subgraphs, walk
from farcall.graph._microsoft import definition
from farcall.graph._microsoft_calls import DOMAIN
from farcall.graph._onnx_types import inference_errors, is_default_domain, type_proto
from farcall.graph._widened import widened

if TYPE_CHECKING:
    import onnx


def body_of(node: ir.Node, opsets: Mapping[str, int]) -> onnx.FunctionProto | None:
    """The definition of a node's operator, with the node's attributes in place.

    Args:
        node: A node whose inputs have types.
        opsets: Domain -> version, of the model.

    Returns:
        The function, whose nodes fit the model's opsets; None if there is none.
    """
    import onnx

    domain = "" if is_default_domain(node.domain) else node.domain
    if domain == DOMAIN:
        known = definition(node, opsets.get("", 0))
        return known if known is not None and _trim_outputs(known, node) else None
    if (wide := widened(node, opsets)) is not None:
        return wide if _trim_outputs(wide, node) else None
    version = opsets.get(domain) or opsets.get(node.domain)
    if version is None:
        return None
    try:
        schema = onnx.defs.get_schema(node.op_type, version, domain)
        data = _body(schema, node, version)
    except (onnx.defs.SchemaError, *inference_errors()):
        return None
    if not data:
        return None
    body = onnx.FunctionProto.FromString(data)
    if not (_fits(body, opsets) and _trim_outputs(body, node)):
        return None
    defaults = {name: item.default_value for name, item in schema.attributes.items()}
    _bind(body.node, ir.serde.serialize_node(node).attribute, [*defaults.values(), *body.attribute_proto])
    return body


def _body(schema: onnx.defs.OpSchema, node: ir.Node, version: int) -> bytes:
    if schema.has_function:
        at = _newest(schema.function_opset_versions, version)
        return bytes(schema.get_function_with_opset_version(at))
    if not schema.has_context_dependent_function:
        return b""
    at = _newest(schema.context_dependent_function_opset_versions, version)
    types = [b"" if value is None else type_proto(value).SerializeToString() for value in node.inputs]
    proto = ir.serde.serialize_node(node).SerializeToString()
    return bytes(schema.get_context_dependent_function_with_opset_version(at, proto, types))


def _trim_outputs(body: onnx.FunctionProto, node: ir.Node) -> bool:
    """Take away outputs that the node leaves out, which the body need not compute; is it without others?"""
    computed = {name for item in body.node for name in item.output} | set(body.input)
    wanted = list(zip(body.output, node.outputs, strict=False))
    if any(name not in computed and (value.uses() or value.is_graph_output()) for name, value in wanted):
        return False
    some = next((name for name, _ in wanted if name in computed), None)
    if some is None:  # the operator's types have no definition
        return False
    names = [name if name in computed else some for name, _ in wanted]
    del body.output[:]
    body.output.extend(names)
    return True


def _newest(versions: Iterable[int], version: int) -> int:
    """The newest version that the model's includes; else the oldest, which fits if nothing in it changed."""
    return max((item for item in versions if item <= version), default=min(versions))


def _fits(body: onnx.FunctionProto, opsets: Mapping[str, int]) -> bool:
    """Whether each operator means the same in the model's version as in that of the body."""
    written = {item.domain: item.version for item in body.opset_import}
    return all(
        _same_meaning(
            node,
            written.get(node.domain) or opsets.get(node.domain, 0),
            opsets.get(node.domain) or written.get(node.domain, 0),
        )
        for node in walk(body.node)
    )


def _same_meaning(node: onnx.NodeProto, written: int, version: int) -> bool:
    """Whether a node that is written for one version may stand in a model of another.

    It may if only dtypes were added: its attributes and operands exist in both, and the other attributes have
    the same defaults.
    """
    import onnx

    if written == version:
        return True
    try:
        before = onnx.defs.get_schema(node.op_type, written, node.domain)
        after = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return False
    if before.since_version == after.since_version:
        return True
    given = {item.name for item in node.attribute}
    left = (before.attributes.keys() & after.attributes.keys()) - given
    count = len(node.input)
    return (
        given <= after.attributes.keys()
        and all(before.attributes[n].default_value == after.attributes[n].default_value for n in left)
        and [item.name for item in before.inputs][:count] == [item.name for item in after.inputs][:count]
    )


def _bind(
    nodes: Iterable[onnx.NodeProto],
    given: Iterable[onnx.AttributeProto],
    defaults: Iterable[onnx.AttributeProto],
) -> None:
    """Put the values of attributes in place of references to them; those without a value go."""
    import onnx

    values = {item.name: item for item in defaults if item.type != onnx.AttributeProto.UNDEFINED}
    values |= {item.name: item for item in given}

    def bound(attribute: onnx.AttributeProto) -> onnx.AttributeProto | None:
        if not attribute.ref_attr_name:
            return attribute
        value = values.get(attribute.ref_attr_name)
        if value is None:
            return None
        result = onnx.AttributeProto()
        result.CopyFrom(value)
        result.name = attribute.name
        return result

    def bind(items: Iterable[onnx.NodeProto]) -> None:
        for node in items:
            if any(item.ref_attr_name for item in node.attribute):
                kept = [item for item in map(bound, node.attribute) if item is not None]
                copies = [onnx.AttributeProto.FromString(item.SerializeToString()) for item in kept]
                del node.attribute[:]
                node.attribute.extend(copies)
            for graph in subgraphs(node):
                bind(graph.node)

    bind(nodes)
