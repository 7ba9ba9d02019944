"""One node that crosses from one version of its operator to the next, up or down.

What holds for all operators is here: attributes and operands that only one of the versions has, other
defaults, and dtypes. :mod:`farcall.graph._opset_table` has the rules that are particular to an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    import onnx
    from onnx.defs import OpSchema

# Attributes that decide nothing for the dtypes that both versions take.
_IDLE = {"consumed_inputs", "saturate", "round_mode", "stash_type"}
_TYPE_NAMES = {"FLOAT": "float", "DOUBLE": "double"}


class RefusalError(Exception):
    """A node has no counterpart in the other version; the message says what of it."""


@dataclass(frozen=True)
class Crossing:
    """A node between two versions of its operator; ``older`` is None if ``newer`` is the first."""

    node: ir.Node
    older: OpSchema | None
    newer: OpSchema
    is_up: bool
    constant: Callable[[ir.Node, np.ndarray], ir.Value]  # adds a constant to the graph of a node

    @property
    def arrival(self) -> int:
        """The opset to which the node crosses."""
        return int(self.newer.since_version) - (not self.is_up)

    @property
    def source(self) -> OpSchema:
        """The version that the node is written for."""
        return self.older if self.is_up and self.older is not None else self.newer

    @property
    def dest(self) -> OpSchema | None:
        """The version that it is to be written for."""
        return self.newer if self.is_up else self.older

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def made(self, index: int) -> bool:
        """Whether an output is used."""
        if index >= len(self.node.outputs):
            return False
        value = self.node.outputs[index]
        return bool(value.uses()) or value.is_graph_output()

    def value(self, index: int) -> ir.Value:
        """An input.

        Raises:
            RefusalError: it is left out.
        """
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        if value is None:
            raise RefusalError(f"input {index} is left out")
        return value

    def dtype(self, index: int = 0) -> ir.DataType:
        """The dtype of an input.

        Raises:
            RefusalError: it is not known.
        """
        dtype = self.value(index).dtype
        if dtype is None:
            raise RefusalError(f"the dtype of input {index} (`{self.value(index).name}`) is not known")
        return dtype

    def rank(self, index: int = 0) -> int:
        """The rank of an input.

        Raises:
            RefusalError: it is not known.
        """
        return len(self.dims(index))

    def dims(self, index: int = 0) -> tuple[int | None, ...]:
        """The dims of an input; None for one that varies.

        Raises:
            RefusalError: its rank is not known.
        """
        value = self.value(index)
        if value.shape is None:
            raise RefusalError(f"the rank of input {index} (`{value.name}`) is not known")
        return tuple(dim if isinstance(dim, int) else None for dim in value.shape)

    def axis(self, name: str, default: int, index: int = 0) -> int:
        """An axis of an input in an attribute, from 0 on."""
        axis = int(self.attr(name, default))
        return axis if axis >= 0 else axis + self.rank(index)

    def attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        found = self.node.attributes.get(name)
        return default if found is None else found.value

    def pop(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, which is removed."""
        found = self.node.attributes.pop(name, None)
        return default if found is None else found.value

    def set(self, name: str, value: Any) -> None:
        """Give an attribute."""
        self.node.attributes[name] = ir.convenience.convert_attribute(name, value)

    def array(self, index: int) -> np.ndarray | None:
        """The elements of an input that is a constant; None if it is computed."""
        tensor = ir.convenience.get_const_tensor(self.value(index))
        return None if tensor is None else tensor.numpy()

    def fixed(self, index: int, what: str) -> np.ndarray:
        """The elements of an input that becomes an attribute.

        Raises:
            RefusalError: they are computed when the model runs.
        """
        found = self.array(index)
        if found is None:
            name = self.value(index).name
            raise RefusalError(f"{what} must be constant there, and `{name}` is computed when the model runs")
        return found

    def put(self, index: int, array: np.ndarray) -> None:
        """Make an input a constant."""
        if len(self.node.inputs) <= index:
            self.node.resize_inputs(index + 1)
        self.node.replace_input_with(index, self.constant(self.node, array))

    def cut(self, count: int) -> None:
        """Keep the first inputs only."""
        if len(self.node.inputs) > count:
            self.node.resize_inputs(count)


def carry(crossing: Crossing) -> None:
    """Bring a node over as it is, and see that it means the same.

    Raises:
        RefusalError: it does not.
    """
    dest = crossing.dest
    if dest is None or dest.deprecated:
        raise RefusalError("the operator does not exist there")
    _carry_attributes(crossing, dest)
    _check_operands("input", crossing.node.inputs, dest.inputs)
    _drop_outputs(crossing, dest)
    _check_operands("output", crossing.node.outputs, dest.outputs)


def _carry_attributes(crossing: Crossing, dest: OpSchema) -> None:
    import onnx

    known = crossing.source.attributes
    for name, given in list(crossing.node.attributes.items()):
        if name in dest.attributes:
            continue
        default = known[name].default_value if name in known else onnx.AttributeProto()
        if not (name in _IDLE or _is_default(given, default)):
            raise RefusalError(f"the attribute {name} = {_shown(given.value)} has no counterpart there")
        del crossing.node.attributes[name]
    for name, other in dest.attributes.items():
        if name in crossing.node.attributes:
            continue
        before = known[name].default_value if name in known else None
        if before is not None and before.name and before != other.default_value:
            crossing.set(name, onnx.helper.get_attribute_value(before))
        elif other.required:
            raise RefusalError(f"the attribute {name} is required there")


def _is_default(given: ir.Attr, default: onnx.AttributeProto) -> bool:
    """Whether an attribute says what holds without it."""
    import onnx

    if given.name == "dilations":
        return all(item == 1 for item in given.value)
    if not default.name:
        return False
    other = onnx.helper.get_attribute_value(default)
    return bool(given.value == (other.decode() if isinstance(other, bytes) else other))


def _shown(value: object) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _check_operands(
    what: str, values: Sequence[ir.Value | None], formal: Sequence[onnx.defs.OpSchema.FormalParameter]
) -> None:
    import onnx

    option = onnx.defs.OpSchema.FormalParameterOption
    for index, value in enumerate(values):
        if index >= len(formal) and not (formal and formal[-1].option == option.Variadic):
            if value is not None:
                raise RefusalError(f"{what} {index} (`{value.name}`) has no counterpart there")
            continue
        one = formal[min(index, len(formal) - 1)]
        kind = None if value is None or value.type is None else _type_name(value.type)
        if value is not None and kind is not None and one.types and kind not in one.types:
            raise RefusalError(f"{what} {index} (`{value.name}`) is {kind}, which it does not take there")
    missing = [item.name for item in formal[len(values) :] if item.option == option.Single]
    missing += [
        item.name
        for item, value in zip(formal, values, strict=False)
        if item.option == option.Single and value is None
    ]
    if missing:
        raise RefusalError(f"{what} {missing[0]} is required there")


def _drop_outputs(crossing: Crossing, dest: OpSchema) -> None:
    """Take away outputs that the other version has not, where nobody uses them."""
    outputs = crossing.node.outputs
    count = len(outputs)
    while count > max(len(dest.outputs), 1) and not crossing.made(count - 1):
        count -= 1
    if count < len(outputs) and len(dest.outputs) < len(outputs):
        crossing.node.resize_outputs(count)


def _type_name(kind: ir.TypeProtocol) -> str | None:
    """A type as ONNX's schemas write it."""
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        inner = _type_name(kind.elem_type)
        name = "seq" if isinstance(kind, ir.SequenceType) else "optional"
        return None if inner is None else f"{name}({inner})"
    if not isinstance(kind, ir.TensorType):
        return None
    name = kind.dtype.name
    return f"tensor({_TYPE_NAMES.get(name, name.lower())})"
