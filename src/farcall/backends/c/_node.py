"""Reads attributes and operands of nodes, and raises the reason if the C backend refuses a node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import onnx_ir as ir

from farcall.backends._ctext import STORED
from farcall.graph.dims import Dim, UnknownShapeError, dims, product

Check = Callable[[ir.Node], "str | None"]


class Unsupported(Exception):  # noqa: N818 - a reason on its way to Backend.check, not an error
    """The reason why the C backend refuses a node."""


def opset(node: ir.Node) -> int:
    """The version of the operator set, of the node's domain, that ``node`` uses."""
    if node.version is not None:
        return node.version
    graph = node.graph
    if graph is None:
        raise Unsupported("the node is in no graph, so its opset version is not known")
    imports = graph.opset_imports
    if node.domain not in ("", "ai.onnx"):
        return imports.get(node.domain, 1)
    return imports.get("", imports.get("ai.onnx", 1))


def int_attr(node: ir.Node, name: str, default: int) -> int:
    """An integer attribute, or its default."""
    return node.attributes[name].as_int() if name in node.attributes else default


def float_attr(node: ir.Node, name: str, default: float) -> float:
    """A float attribute, or its default, rounded to float32 as all attributes of ONNX are."""
    given = node.attributes[name].as_float() if name in node.attributes else default
    return float(np.float32(given))


def str_attr(node: ir.Node, name: str, default: str) -> str:
    """A string attribute, or its default."""
    return node.attributes[name].as_string() if name in node.attributes else default


def ints_attr(node: ir.Node, name: str, default: Sequence[int]) -> list[int]:
    """An attribute that is a list of integers, or its default."""
    return list(node.attributes[name].as_ints() if name in node.attributes else default)


def has_input(node: ir.Node, index: int) -> bool:
    """Whether the optional input ``index`` is given."""
    return len(node.inputs) > index and node.inputs[index] is not None and node.inputs[index].name != ""  # type: ignore[union-attr]


def operand(node: ir.Node, index: int) -> ir.Value:
    """Input ``index``, which must be given."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        raise Unsupported(f"input {index} is missing")
    return value


def constant(value: ir.Value) -> np.ndarray | None:
    """The data of an initializer; None for a value that is computed or given at run time."""
    if value.const_value is None or value.is_graph_input() or value.producer() is not None:
        return None
    return value.const_value.numpy()


def constant_operand(node: ir.Node, index: int) -> np.ndarray:
    """The data of input ``index``, which must be known when the model is compiled."""
    data = constant(operand(node, index))
    if data is None:
        raise Unsupported(f"input {index} (`{operand(node, index).name}`) must be constant")
    return data


def output_used(node: ir.Node, index: int) -> bool:
    """Whether anything reads output ``index``."""
    if index >= len(node.outputs):
        return False
    value = node.outputs[index]
    return bool(value.name) and (bool(value.uses()) or value.is_graph_output())


def normalize_axis(axis: int, rank: int) -> int:
    """A non-negative axis; negative ones count from the end."""
    if not -rank <= axis < max(rank, 1):
        raise Unsupported(f"axis {axis} is outside of rank {rank}")
    return axis + rank if axis < 0 else axis


def rank(value: ir.Value) -> int:
    """The number of dims of ``value``."""
    return len(dims(value))


def extents(shape: Sequence[Dim], axis: int) -> tuple[Dim, Dim, Dim]:
    """The number of elements before ``axis``, along it, and after it."""
    return product(shape[:axis]), product(shape[axis : axis + 1]), product(shape[axis + 1 :])


def flattened_extents(node: ir.Node) -> tuple[Dim, Dim, Dim]:
    """The extents of Softmax and its relatives: since opset 13 of one axis, before of all from one on.

    Before opset 13 the axis may equal the rank: each element is then a separate row.
    """
    shape = dims(operand(node, 0))
    if opset(node) >= 13:
        return extents(shape, normalize_axis(int_attr(node, "axis", -1), len(shape)))
    axis = int_attr(node, "axis", 1)
    axis = axis if axis == len(shape) else normalize_axis(axis, len(shape))
    return product(shape[:axis]), product(shape[axis:]), 1


def differ(a: Dim, b: Dim) -> bool:
    """Whether two dims that shape inference equates are different; the entry checks those with symbols."""
    return isinstance(a, int) and isinstance(b, int) and a != b


def label(node: ir.Node) -> str:
    """The operator and the name of ``node``, for messages."""
    return f"{node.op_type} `{node.name or node.outputs[0].name}`"


def want_dtypes(node: ir.Node, allowed: Collection[ir.DataType], *indices: int) -> None:
    """Refuse the node unless the inputs at ``indices`` (all by default) have one of the dtypes."""
    for index in indices or range(len(node.inputs)):
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is not None and value.name and value.dtype not in allowed:
            raise Unsupported(f"input {index} (`{value.name}`) is {_dtype_name(value.dtype)}")


def basic_check(node: ir.Node) -> None:
    """Check the needs of every operator: dtypes that have a C type, and known shapes."""
    for what, values in (("input", node.inputs), ("output", node.outputs)):
        for index, value in enumerate(values):
            if value is None or not value.name:
                continue
            if what == "output" and index and not output_used(node, index):
                continue
            if not isinstance(value.type, ir.TensorType):
                raise Unsupported(f"{what} {index} (`{value.name}`) is not a tensor, but {value.type}")
            if value.dtype not in STORED:
                raise Unsupported(f"{what} {index} (`{value.name}`) is {_dtype_name(value.dtype)}")
            known_dims(value)


def known_dims(value: ir.Value) -> tuple[Dim, ...]:
    """``dims(value)``; refuses the node if the shape is not known."""
    try:
        return dims(value)
    except UnknownShapeError as error:
        raise Unsupported(str(error)) from None


def _dtype_name(dtype: ir.DataType | None) -> str:
    return "of no known dtype" if dtype is None else dtype.name.lower()
