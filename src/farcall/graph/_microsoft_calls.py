"""What definitions of operators of ``com.microsoft`` are made of.

A definition is the body of an ONNX function as text. Its inputs are ``i0, i1, ...`` and its outputs ``o0, o1,
...``, as those of the node. Dtypes and ranks of the node's inputs are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import onnx_ir as ir

from farcall.graph._guards import subgraphs
from farcall.graph._onnx_types import is_default_domain

if TYPE_CHECKING:
    import onnx

DOMAIN = "com.microsoft"

_T = TypeVar("_T", int, float, str)


class UnknownError(Exception):
    """What a definition depends on is not known, or not defined."""


@dataclass(frozen=True)
class Call:
    """A node that is defined, and the version of ONNX's operators in the definition."""

    node: ir.Node
    opset: int

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def value(self, index: int) -> ir.Value:
        """An input."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        if value is None:
            raise UnknownError
        return value

    def rank(self, index: int) -> int:
        """The number of dims of an input."""
        shape = self.value(index).shape
        if shape is None:
            raise UnknownError
        return len(shape)

    def size(self, index: int, axis: int) -> int:
        """A dim of an input, which must be a number."""
        dim = (self.value(index).shape or [])[axis] if self.rank(index) else None
        if not isinstance(dim, int):
            raise UnknownError
        return dim

    def dtype(self, index: int) -> ir.DataType:
        """The dtype of an input."""
        dtype = self.value(index).dtype
        if dtype is None:
            raise UnknownError
        return dtype

    def refuse(self, *indices: int) -> None:
        """Refuse inputs that the definition knows nothing of."""
        if any(map(self.has, indices)):
            raise UnknownError

    def uses(self, index: int) -> bool:
        """Whether an output is used."""
        outputs = self.node.outputs
        return index < len(outputs) and (bool(outputs[index].uses()) or outputs[index].is_graph_output())

    def attr(self, name: str, default: _T) -> _T:
        """A number or a text in an attribute."""
        found = self.node.attributes.get(name)
        return default if found is None else found.value

    def numbers(self, like: int = 0, **named: float) -> str:
        """Lines that define numbers of the dtype of an input."""
        dtype = self.dtype(like).value
        return "".join(
            f"{name}32 = Constant <value_float: float = {number!r}> ()\n"
            f"{name} = Cast <to: int = {dtype}> ({name}32)\n"
            for name, number in named.items()
        )

    def plus(self, result: str, value: str, index: int) -> str:
        """A line that adds an input, if it is given."""
        return (
            f"{result} = Add({value}, i{index})\n" if self.has(index) else f"{result} = Identity({value})\n"
        )


Definition = Callable[[Call], str]
DEFINITIONS: dict[str, Definition] = {}


def defines(*operators: str) -> Callable[[Definition], Definition]:
    def register(definition: Definition) -> Definition:
        DEFINITIONS.update(dict.fromkeys(operators, definition))
        return definition

    return register


def attributes_text(call: Call, *names: str) -> str:
    """Those of the node's attributes, as text."""
    found = [call.node.attributes[name] for name in names if name in call.node.attributes]
    texts = []
    for one in found:
        if one.type == ir.AttributeType.STRING:
            texts.append(f'{one.name}: string = "{one.as_string()}"')
        elif one.type == ir.AttributeType.INTS:
            texts.append(f"{one.name}: ints = [{', '.join(map(str, one.as_ints()))}]")
        elif one.type == ir.AttributeType.FLOAT:
            texts.append(f"{one.name}: float = {float(one.as_float())!r}")
        elif one.type == ir.AttributeType.FLOATS:
            texts.append(f"{one.name}: floats = [{', '.join(repr(float(item)) for item in one.as_floats())}]")
        elif one.type == ir.AttributeType.STRINGS:
            items = ", ".join(f'"{item}"' for item in one.as_strings())
            texts.append(f"{one.name}: strings = [{items}]")
        else:
            texts.append(f"{one.name}: int = {one.as_int()}")
    return f"<{', '.join(texts)}>" if texts else ""


_UNDECLARED = "SimplifiedLayerNormalization"  # which onnxruntime's optimiser writes in ONNX's domain


def in_own_domain(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` itself, or a copy in which operators that only onnxruntime knows are of its domain.

    The copy imports the domain, too, which onnxruntime does not ask for and its optimiser forgets.
    """
    misplaced = any(_is_misplaced(node) for node in proto.graph.node if node.op_type == _UNDECLARED)
    imports = any(item.domain == DOMAIN for item in proto.opset_import)
    if not misplaced and (imports or not _calls_domain(proto.graph)):
        return proto
    result = type(proto)()
    result.CopyFrom(proto)
    for node in filter(_is_misplaced, result.graph.node):
        node.domain = DOMAIN
    if not imports:
        result.opset_import.add(domain=DOMAIN, version=1)
    return result


def _calls_domain(graph: onnx.GraphProto) -> bool:
    """Whether a node is of the domain, at any depth: how deep graphs may be is not checked yet."""
    graphs = [graph]
    while graphs:
        for node in graphs.pop().node:
            if node.domain == DOMAIN:
                return True
            if node.attribute:
                graphs += subgraphs(node)
    return False


def _is_misplaced(node: onnx.NodeProto) -> bool:
    return node.op_type == _UNDECLARED and is_default_domain(node.domain)


def ints(**named: int | tuple[int, ...]) -> str:
    """Lines that define int64 constants: scalars, and tensors of rank 1."""
    return "".join(
        f"{name} = Constant <value_int: int = {item}> ()\n"
        if isinstance(item, int)
        else f"{name} = Constant <value_ints: ints = [{', '.join(map(str, item))}]> ()\n"
        for name, item in named.items()
    )
