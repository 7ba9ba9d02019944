"""Reads a ``ModelProto`` into an ``ir.Model``.

onnx_ir's own reader looks for each operand in the scopes of all graphs around a node, declares each result
before, and reads each type anew. Here a model without functions and without graphs inside of nodes, as most
are, is read in two thirds of that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_ir import serde

from farcall.graph._guards import walk

if TYPE_CHECKING:
    import onnx


def read_model(proto: onnx.ModelProto) -> ir.Model:
    """The model that ``ir.from_proto`` gives, too.

    Args:
        proto: A model that passed ONNX's checker. The data of its tensors is not copied.

    Raises:
        TypeError: A name is not UTF-8, which protobuf returns as bytes.
        ValueError: A name is declared twice, or a node reads one that is not declared.
    """
    nodes = list(proto.graph.node)
    if not _is_flat(proto, nodes):
        nodes += (node for item in proto.functions for node in item.node)
        _refuse_bytes(text for node in walk(nodes) for text in _texts(node))
        model: ir.Model = ir.from_proto(proto)
        return model
    graph = _Reader().graph(proto.graph, nodes)
    graph.opset_imports.update((item.domain, item.version) for item in proto.opset_import)
    return ir.Model(
        graph,
        ir_version=proto.ir_version,
        producer_name=proto.producer_name or None,
        producer_version=proto.producer_version or None,
        domain=proto.domain or None,
        model_version=proto.model_version or None,
        doc_string=proto.doc_string or None,
        metadata_props=serde.deserialize_metadata_props(proto.metadata_props),
    )


def _is_flat(proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> bool:
    """Whether there is one graph, of which :class:`_Reader` knows all fields."""
    if proto.functions or proto.configuration or proto.graph.quantization_annotation:
        return False
    rich = (node for node in nodes if node.attribute)
    return not any(item.HasField("g") or item.graphs for node in rich for item in node.attribute)


def _texts(node: onnx.NodeProto) -> list[object]:
    """The names in a node."""
    names = [item.name for item in node.attribute]
    return [node.op_type, node.domain, node.name, *node.input, *node.output, *names]


def _refuse_bytes(texts: Iterable[object]) -> None:
    for text in texts:
        if isinstance(text, bytes):
            raise TypeError(f"{text!r} is not UTF-8 text")


class _Reader:
    """Reads one graph. Values are declared before nodes read them."""

    def __init__(self) -> None:
        self._values: dict[str, ir.Value] = {}  # by name
        self._texts: list[object] = []
        self._like: dict[bytes, ir.Value] = {}  # a value of each declared type: a model has few of them

    def graph(self, proto: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> ir.Graph:
        """The graph of these nodes."""
        infos = {info.name: info for info in proto.value_info}
        inputs = [self._declare(ir.Value(name=info.name), info) for info in proto.input]
        self._values.update((value.name or "", value) for value in inputs)
        named = [item for item in proto.initializer if item.name]
        initializers = [self._initializer(item, infos.get(item.name)) for item in named]
        try:
            read = list(map(self._node, nodes))
        except KeyError as error:
            raise ValueError(f"a node reads {error}, which nothing before it makes") from None
        for name, info in infos.items():
            value = self._values.get(name)
            if value is not None and value.producer() is not None:
                self._declare(value, info)
        made = [self._values.get(info.name) or ir.Value(name=info.name) for info in proto.output]
        outputs = list(map(self._declare, made, proto.output))
        _refuse_bytes([*self._texts, *self._values])
        return ir.Graph(
            inputs,
            outputs,
            nodes=read,
            initializers=initializers,
            doc_string=proto.doc_string or None,
            name=proto.name or None,
            metadata_props=serde.deserialize_metadata_props(proto.metadata_props),
        )

    def _declare(self, value: ir.Value, info: onnx.ValueInfoProto) -> ir.Value:
        """The value, with what the model declares of it."""
        if info.metadata_props or info.doc_string:
            return serde.deserialize_value_info_proto(info, value)
        key = info.type.SerializeToString()
        like = self._like.get(key)
        if like is None:
            self._like[key] = serde.deserialize_value_info_proto(info, value)
            return value
        value.shape = like.shape  # which is frozen
        value.type = copy(like.type)  # setting a value's dtype changes its type in place
        return value

    def _initializer(self, proto: onnx.TensorProto, info: onnx.ValueInfoProto | None) -> ir.Value:
        """The value of a constant, which may be declared as an input, too."""
        tensor = serde.deserialize_tensor(proto)
        value = self._values.get(proto.name)
        if value is None:
            value = ir.Value(name=proto.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(proto.dims))
            self._values[proto.name] = value
            if info is not None:
                self._declare(value, info)
        value.const_value = tensor
        return value

    def _node(self, proto: onnx.NodeProto) -> ir.Node:
        values, domain, kind, label = self._values, proto.domain, proto.op_type, proto.name
        self._texts += (domain, kind, label)
        # A slice of a repeated field takes a third of the time of a walk over it.
        given = [values[name] if name else None for name in proto.input[:]]
        made = [ir.Value(name=name) for name in proto.output[:]]
        for value in made:
            if value.name:
                if value.name in values:
                    raise ValueError(f"`{value.name}` is declared twice")
                values[value.name] = value
        attributes, properties = proto.attribute, proto.metadata_props
        return ir.Node(
            domain,
            kind,
            given,
            list(map(self._attribute, attributes)) if attributes else (),
            outputs=made,
            name=label,
            doc_string=proto.doc_string or None,
            metadata_props=serde.deserialize_metadata_props(properties) if properties else None,
        )

    def _attribute(self, proto: onnx.AttributeProto) -> ir.Attr:
        self._texts.append(proto.name)
        return serde.deserialize_attribute(proto)
