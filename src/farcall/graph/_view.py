"""The view of one node for shape rules: dims and small integer data of its inputs, and its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from farcall.graph._constraints import Equalities, Need
from farcall.graph.dims import Dim, broadcast, same

Dims = tuple[Dim, ...]
PartialDims = tuple["Dim | None", ...]  # None: a dim that is not known
Data = np.ndarray[Any, np.dtype[np.object_]]  # a small integer tensor, each element a Dim
T = TypeVar("T")

DATA_DTYPES = (
    ir.DataType.INT64,
    ir.DataType.INT32,
    ir.DataType.BOOL,
)  # of tensors whose data is followed
FLOAT_DTYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)  # of numbers that were cast from such data, for Range
EXPLICIT_SINCE = 7  # before this opset, an attribute says which operand of an operator is broadcast
MAX_DATA = 64  # most elements of a tensor whose data is followed: shapes and axes have fewer


class NotKnownError(Exception):
    """A shape or the data of an operand, which a rule needs, is not known."""


class NodeView:
    """A node and the facts about it. ``shapes`` and ``data`` hold those that are known so far.

    ``is_settled``: nothing more will become known of them, so that a rule may choose what it cannot know.
    """

    def __init__(
        self,
        node: ir.Node,
        opset: int,
        shapes: Mapping[ir.Value, Dims],
        data: dict[ir.Value, Data],
        equal: Equalities,
        is_settled: bool = False,
    ) -> None:
        self.is_settled = is_settled
        self.node = node
        self.opset = opset
        self._shapes = shapes
        self._data = data
        self._equal = equal

    @property
    def where(self) -> str:
        """The name of the node in messages."""
        return f"node `{self.node.name}` ({self.node.op_type})"

    def has(self, index: int) -> bool:
        """Whether the (optional) input is given."""
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def _input(self, index: int) -> ir.Value:
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        if value is None:
            raise NotKnownError
        return value

    def shape(self, index: int) -> Dims:
        """The dims of an input."""
        shape = self._shapes.get(self._input(index))
        if shape is None:
            raise NotKnownError
        return tuple(map(self._equal.resolve, shape)) if self._equal.changed else shape

    def rank(self, value: ir.Value) -> int:
        """The number of dims of a value."""
        shape = self._shapes.get(value) or value.shape
        if shape is None:
            raise NotKnownError
        return len(shape)

    def shapes(self) -> list[Dims]:
        """The dims of all inputs."""
        return [self.shape(index) for index in range(len(self.node.inputs))]

    def data(self, index: int) -> Data:
        """An input's elements, if it is a small integer tensor whose elements are known dims."""
        value = self._input(index)
        known = self._data.get(value)
        if known is None:
            is_empty = self._shapes.get(value) == (0,) and value.dtype in DATA_DTYPES
            known = self._data[value] = np.empty(0, object) if is_empty else constant_data(value)
        if self._equal.changed:
            known = elementwise(self._equal.resolve, known)
        return known

    def ints(self, index: int) -> list[int]:
        """An input's elements, if they are known numbers."""
        items = self.data(index).ravel().tolist()
        if not all(isinstance(item, int) for item in items):
            raise NotKnownError
        return items

    def number(self, index: int) -> Dim:
        """An input's only element, also if it is a float that holds a whole number."""
        value = self._input(index)
        tensor = value.const_value
        if tensor is None or tensor.dtype not in FLOAT_DTYPES:
            (item,) = self.data(index).ravel().tolist()
            return item
        (number,) = tensor.numpy().ravel().tolist()
        if not number.is_integer():
            raise NotKnownError
        return int(number)

    def floats(self, index: int) -> list[float]:
        """An input's elements, if it is a small constant of floats."""
        tensor = self._input(index).const_value
        if tensor is None or tensor.dtype not in FLOAT_DTYPES or tensor.size > MAX_DATA:
            raise NotKnownError
        return tensor.numpy().ravel().tolist()

    def attr(self, name: str, default: T) -> T:
        """An attribute's value, of the type of ``default``."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.value

    def equate(self, a: Dim, b: Dim, text: str = "", *told: Dim) -> Dim:
        """Require two dims to be equal.

        ``text`` says what the operator needs, with a ``{}`` for each of ``told``.
        """
        return self._equal.equate(a, b, Need(self.where, text, told))

    def broadcast(self, *shapes: Dims) -> Dims:
        """The dims of operands that are broadcast to each other (ONNX, "Broadcasting")."""
        result: list[Dim] = []
        for axis in range(-max(map(len, shapes)), 0):
            dim: Dim = 1
            for shape in shapes:
                if len(shape) < -axis or shape[axis] == 1:
                    continue
                dim = shape[axis] if dim == 1 else self._together(dim, shape[axis])
            result.append(dim)
        return tuple(result)

    def _together(self, a: Dim, b: Dim) -> Dim:
        """The dim of operands with the dims ``a`` and ``b``, neither of which is the int 1."""
        may_differ = self.opset >= EXPLICIT_SINCE and not same(a, b)
        found = broadcast(a, b) if may_differ else None
        return self.equate(a, b) if found is None else found


def constant_data(value: ir.Value) -> Data:
    """The elements of a small integer or boolean initializer."""
    tensor = value.const_value
    if tensor is None or tensor.size > MAX_DATA or tensor.dtype not in DATA_DTYPES:
        raise NotKnownError
    return tensor.numpy().astype(object)


def elementwise(function: Any, *operands: Any) -> Data:
    """Apply ``function`` to the elements of integer data, with broadcasting."""
    result = np.frompyfunc(function, len(operands), 1)(*operands)
    return np.asarray(result, dtype=object)
