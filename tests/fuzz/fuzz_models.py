"""ONNX models with mistakes in them: each is refused by an error of farcall, or it runs.

A mutant is one of ONNX's node tests with a few changes: other attributes, types, names, constants and nodes.
It may only be refused; it must not end the process, take long, or raise what no page tells of. The input's
bytes decide which test it is and what changes: one byte for each decision.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

import farcall as fc
from farcall.abi._leaves import is_numeric
from farcall.errors import FarcallError
from farcall.testing._cases import node_cases

from . import harness

CALL_REFUSALS = (FarcallError, ValueError, TypeError, IndexError, RuntimeError, MemoryError)
MOST = 1 << 20  # elements of an argument
NUMBERS = (0, 1, -1, 2, 3, 5, 7, -7, 255, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, 1e30, math.nan, math.inf, -math.inf)
TEXTS = (b"", b"x", b"linear", b"\xff\xfe", b"*/ int x; /*")
DTYPES = (*range(24), 99)
DIMS = (0, 1, 2, 3, 5, -1, 2**20, 2**31, 2**62)
_T = TypeVar("_T")


class Bytes:
    """Decisions, one byte each; zeros, when no byte is left."""

    def __init__(self, data: bytes) -> None:
        self._left = iter(data)

    def number(self) -> int:
        """A number from 0 to 255."""
        return next(self._left, 0)

    def of(self, items: Sequence[_T]) -> _T:
        """One of the items; of many, any, by two bytes."""
        number = self.number() if len(items) <= 256 else self.number() + 256 * self.number()
        return items[number % len(items)]

    def some(self, items: Sequence[_T], most: int = 4) -> list[_T]:
        """A few of the items."""
        return [self.of(items) for _ in range(self.number() % (most + 1))]


@cache
def _cases() -> tuple[tuple[str, bytes], ...]:
    return tuple((case.name, case.model.SerializeToString()) for case in node_cases())


def mutant(data: bytes) -> ModelProto:
    """The model that these bytes make."""
    decide = Bytes(data)
    model = ModelProto.FromString(decide.of(_cases())[1])
    for _ in range(1 + decide.number() % 2):
        decide.of(CHANGES)(model.graph, decide)
    if decide.number() < 16 and model.opset_import:
        model.opset_import[0].version = decide.of(NUMBERS)
    if decide.number() < 64:
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
    return model


def _attribute(graph: GraphProto, decide: Bytes) -> None:
    nodes = [node for node in graph.node if node.attribute]
    if not nodes:
        return
    item = decide.of(decide.of(nodes).attribute)
    if item.type == AttributeProto.INT:
        item.i = decide.of(NUMBERS)
    elif item.type == AttributeProto.INTS:
        _list(item.ints, NUMBERS, decide)
    elif item.type == AttributeProto.FLOAT:
        item.f = decide.of(FLOATS)
    elif item.type == AttributeProto.FLOATS:
        _list(item.floats, FLOATS, decide)
    elif item.type == AttributeProto.STRING:
        item.s = decide.of(TEXTS)
    elif item.type == AttributeProto.TENSOR:
        _tensor(item.t, decide)
    elif item.type == AttributeProto.GRAPH:
        decide.of(CHANGES)(item.g, decide)


def _list(items: Any, others: Sequence[float], decide: Bytes) -> None:
    kind = decide.number() % 4
    if kind == 0:
        items.append(decide.of(others))
    elif items and kind == 1:
        del items[decide.number() % len(items)]
    elif items:
        items[decide.number() % len(items)] = decide.of(others)


def _attributes(graph: GraphProto, decide: Bytes) -> None:
    """One less, or one that is there under another type or not expected."""
    if not graph.node:
        return
    node = decide.of(graph.node)
    if node.attribute and decide.number() % 2:
        del node.attribute[decide.number() % len(node.attribute)]
    elif node.attribute and decide.number() % 2:
        decide.of(node.attribute).type = decide.of((1, 2, 3, 4, 6, 7, 8))
    else:
        name, value = decide.of(("axis", "axes", "mode", "to", "perm")), decide.of((1, [1, 2], "x", 0.5))
        node.attribute.append(onnx.helper.make_attribute(name, value))


def _tensor(tensor: TensorProto, decide: Bytes) -> None:
    kind = decide.number() % 4
    if kind == 0:
        tensor.data_type = decide.of(DTYPES)
    elif kind == 1:
        tensor.dims[:] = decide.some(DIMS)
    elif kind == 2:
        tensor.raw_data = tensor.raw_data[: decide.number()]
    elif tensor.int64_data:
        tensor.int64_data[decide.number() % len(tensor.int64_data)] = decide.of(NUMBERS)
    elif len(tensor.raw_data) >= 8:
        number = decide.of(NUMBERS).to_bytes(8, "little", signed=True)
        tensor.raw_data = number + tensor.raw_data[8:]


def _type(graph: GraphProto, decide: Bytes) -> None:
    values: list[ValueInfoProto] = [*graph.input, *graph.output, *graph.value_info]
    if not values:
        return
    kind, found = decide.number() % 4, decide.of(values).type
    if kind == 0:
        found.tensor_type.ClearField("shape")
    elif kind == 1:
        found.tensor_type.elem_type = decide.of(DTYPES)
    else:
        dims = decide.some((*DIMS, "n", "m", "", None))
        found.CopyFrom(onnx.helper.make_tensor_type_proto(decide.of(DTYPES), dims))


def _names(graph: GraphProto) -> list[str]:
    made = [name for node in graph.node for name in (*node.input, *node.output)]
    return [*made, *(value.name for value in graph.input), "", "nowhere"]


def _operands(graph: GraphProto, decide: Bytes) -> None:
    """Other inputs, fewer or more of them, and of outputs."""
    if not graph.node:
        return
    node = decide.of(graph.node)
    names = decide.of((node.input, node.output))
    kind = decide.number() % 4
    if kind == 0:
        names.append(decide.of(_names(graph)))
    elif names and kind == 1:
        del names[decide.number() % len(names)]
    elif names:
        names[decide.number() % len(names)] = decide.of(_names(graph))


def _node(graph: GraphProto, decide: Bytes) -> None:
    """Another operator, the node once more, or at another place."""
    if not graph.node:
        return
    index = decide.number() % len(graph.node)
    copy = NodeProto()
    copy.CopyFrom(graph.node[index])
    kind = decide.number() % 3
    if kind == 0:
        other = ModelProto.FromString(decide.of(_cases())[1]).graph.node
        graph.node[index].op_type = other[0].op_type if other else ""
        return
    if kind == 1:
        copy.output[:] = [f"{name}_again" if name else "" for name in copy.output]
    else:
        del graph.node[index]
    graph.node.append(copy)


def _constant(graph: GraphProto, decide: Bytes) -> None:
    """A constant with other data, or an input that became one."""
    if graph.initializer and decide.number() % 2:
        _tensor(decide.of(graph.initializer), decide)
        return
    if not graph.input:
        return
    value = decide.of(graph.input)
    dtype = decide.of((np.int64, np.int64, np.float32, np.bool_, np.int32))
    numbers: list[Any] = decide.some(NUMBERS if dtype is np.int64 else (0, 1, -1, 3))
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(numbers, dtype), value.name))
    if decide.number() % 4:
        graph.input.remove(value)


def _output(graph: GraphProto, decide: Bytes) -> None:
    value = graph.output.add()
    value.name = decide.of(_names(graph))


CHANGES: tuple[Callable[[GraphProto, Bytes], None], ...] = (
    _attribute, _attribute, _attributes, _type, _type, _operands, _node, _constant, _constant, _output,
)  # fmt: skip


def _arguments(plan: fc.Plan) -> list[np.ndarray] | None:
    """Zeros for the inputs, and 2 for each size that is not a number; None: too large, or no numbers."""
    found = []
    for spec in plan.signature.inputs:
        if not is_numeric(spec) or spec.shape is None:
            return None
        dims = [dim if isinstance(dim, int) else 2 for dim in spec.shape]
        if math.prod(dim or 1 for dim in dims) > MOST:
            return None
        found.append(np.zeros(dims, np.dtype(str(spec.dtype))))
    return found


@contextlib.contextmanager
def _artifact(plan: fc.Plan) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="farcall-fuzz-") as folder:
        path = Path(folder) / "model.so"
        plan.build().save(path)
        yield path


def one_input(data: bytes) -> None:
    """Make the mutant, cut it for the backend that needs no compiler, build it and call it."""
    model = mutant(data)
    with contextlib.suppress(FarcallError):
        plan = fc.partition(model, ["json"])
        with _artifact(plan) as path:
            main = fc.load_module(path)["main"]
            arguments = _arguments(plan)
            if arguments is not None:
                with contextlib.suppress(*CALL_REFUSALS):
                    main(*arguments)


if __name__ == "__main__":
    harness.main("models", one_input)
