"""If, Loop and Scan, and sequences."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from .building import BOOL, Builder
from .registry import axis_of, maker


def _typed(
    name: str, array: np.ndarray | np.generic, shape: tuple[int | None, ...] | None = None
) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, None if shape is None else list(shape))


@maker()
def branch(b: Builder) -> object:
    """If: both branches read a value of the graph around them."""
    x = b.floats()
    array = b.values[x]
    condition = b.new((), BOOL, constant=False) if b.chance(0.7) else b.const(b.chance(0.5))
    name = b.name("b")

    def graph(part: str) -> onnx.GraphProto:
        op = b.one(("Neg", "Abs", "Tanh", "Relu"))
        nodes = [
            helper.make_node(op, [x], [f"{name}{part}m"]),
            helper.make_node("Add", [f"{name}{part}m", x], [f"{name}{part}"]),
        ]
        return helper.make_graph(nodes, part, [], [_typed(f"{name}{part}", array)])

    return b.emit("If", [condition], 1, [x], then_branch=graph("then"), else_branch=graph("else"))


@maker()
def loop(b: Builder) -> object:
    """Loop: a state, a result that is stacked, and a value of the graph around."""
    x = b.floats()
    array = b.values[x]
    y = b.new(array.shape)
    name = b.name("l")
    names = [f"{name}{part}" for part in ("i", "go", "s", "on", "n", "t", "h")]
    i, go, state, on, new, turned, half = names
    nodes = [
        helper.make_node("Identity", [go], [on]),
        helper.make_node("Add", [state, y], [turned]),
        helper.make_node(b.one(("Tanh", "Sigmoid", "Softsign")), [turned], [new]),
        helper.make_node("Neg", [turned], [half]),
    ]
    number, flag = np.int64(0), np.bool_(True)
    inputs = [_typed(i, number, ()), _typed(go, flag, ()), _typed(state, array)]
    outputs = [_typed(on, flag, ()), _typed(new, array), _typed(half, array)]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    trips = b.const(int(b.one((1, 2, 4))), np.int64)
    return b.emit("Loop", [trips, b.const(True), x], 2, [y], body=body)


@maker()
def while_loop(b: Builder) -> object:
    """Loop: its condition is computed from the state, and an If is inside of it."""
    x = b.pick(lambda array: array.dtype == b.dtype and array.size > 0)
    array = b.values[x]
    limit = b.const(float(b.rng.uniform(0, 20)), b.dtype)
    name = b.name("w")
    names = [f"{name}{part}" for part in ("i", "go", "s", "on", "n", "p", "a", "t", "q", "e")]
    i, go, state, on, new, small, positive, then, total, other = names
    branches = [
        helper.make_graph([helper.make_node(op, [state], [out])], "branch", [], [_typed(out, array)])
        for op, out in (("Abs", then), ("Neg", other))
    ]
    nodes = [
        helper.make_node("ReduceSum", [state], [total], keepdims=0),
        helper.make_node("Greater", [total, limit], [small]),
        helper.make_node("If", [small], [positive], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Add", [positive, x], [new]),
        helper.make_node("Less", [total, limit], [on]),
    ]
    number, flag = np.int64(0), np.bool_(True)
    body = helper.make_graph(
        nodes, "body", [_typed(i, number, ()), _typed(go, flag, ()), _typed(state, array)],
        [_typed(on, flag, ()), _typed(new, array)],
    )  # fmt: skip
    return b.emit("Loop", [b.const(5, np.int64), "", x], 1, [x, limit], body=body)


@maker()
def scan(b: Builder) -> object:
    """Scan: a state, what is scanned along some axis, and a stacked result."""
    x = b.pick(lambda array: array.dtype == b.dtype and array.size > 0, 1, 3)
    array = b.values[x]
    axis = axis_of(b, array)
    part = np.take(array, 0, axis)
    first = b.new(part.shape)
    name = b.name("c")
    state, item, new, out = (f"{name}{one}" for one in "sino")
    nodes = [
        helper.make_node(b.one(("Add", "Max", "Mul")), [state, item], [f"{name}t"]),
        helper.make_node("Tanh", [f"{name}t"], [new]),
        helper.make_node(b.one(("Neg", "Relu")), [new], [out]),
    ]
    body = helper.make_graph(
        nodes, "body", [_typed(state, part, part.shape), _typed(item, part, part.shape)],
        [_typed(new, part, part.shape), _typed(out, part, part.shape)],
    )  # fmt: skip
    more = {"scan_input_axes": [axis], "scan_input_directions": [int(b.chance(0.3))]}
    if b.chance(0.4):
        more |= {"scan_output_axes": [int(b.rng.integers(0, part.ndim + 1))], "scan_output_directions": [1]}
    return b.emit("Scan", [first, x], 2, body=body, num_scan_inputs=1, **more)


@maker()
def sequence(b: Builder) -> object:
    """A tensor is split into a sequence, of which one element is taken, or which is put together again."""
    x = b.pick(lambda array: array.size > 0, 1)
    array = b.values[x]
    axis = axis_of(b, array)
    name = b.name("q")
    split = helper.make_node("SplitToSequence", [x], [name], axis=axis, keepdims=1, name=f"split_{name}")
    if b.chance(0.5):
        at = b.const(int(b.rng.integers(-array.shape[axis], array.shape[axis])), np.int64)
        return b.emit("SequenceAt", [name, at], before=[split])
    new = int(b.chance(0.3))
    return b.emit("ConcatFromSequence", [name], before=[split], axis=axis, new_axis=new)
