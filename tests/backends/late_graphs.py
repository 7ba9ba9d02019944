"""Random models whose shapes depend on the data: chains of operators that select, count and resize."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_ELEMENTWISE = ("Neg", "Tanh", "Abs", "Floor", "Sigmoid")


@dataclass
class Graph:
    """A model under construction; ``floats`` are its tensors with their ranks, ``counts`` are int64[1]."""

    random: Random
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    floats: list[tuple[str, int]] = field(default_factory=lambda: [("x", 2), ("v", 1)])
    counts: list[str] = field(default_factory=list)

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """A node; returns the name of its first output."""
        number = len(self.nodes)
        outs = [f"t{number}" if i == 0 else f"t{number}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, outs, name=f"n{number}", **attributes))
        return outs[0]

    def constant(self, data: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = data
        return name

    def ints(self, *items: int) -> str:
        return self.constant(np.array(items, np.int64))

    def pick(self, rank: int = 0) -> str:
        """A float tensor, of that rank if it is not 0."""
        return self.random.choice([name for name, r in self.floats if not rank or r == rank])

    def keep(self, name: str, rank: int) -> None:
        self.floats.append((name, rank))

    def positive(self, value: str) -> str:
        return self.add("Greater", value, self.constant(np.float32(0.25)))

    def count(self) -> str:
        """How many elements of a tensor are positive, at most 7: int64[1]."""
        if self.counts and self.random.random() < 0.5:
            return self.random.choice(self.counts)
        numbers = self.add("Cast", self.positive(self.pick()), to=TensorProto.INT64)
        flat = self.add("Reshape", numbers, self.ints(-1))
        total = self.add("ReduceSum", flat, self.ints(0), keepdims=1)
        self.counts.append(self.add("Min", total, self.ints(7)))
        return self.counts[-1]

    def model(self) -> onnx.ModelProto:
        used = {name for node in self.nodes for name in node.input}
        outs = [out for node in self.nodes for out in node.output if out not in used]
        graph = helper.make_graph(
            self.nodes,
            "late",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
                helper.make_tensor_value_info("v", TensorProto.FLOAT, ["m"]),
            ],
            [helper.make_empty_tensor_value_info(name) for name in outs],
            [numpy_helper.from_array(data, name) for name, data in self.constants.items()],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(proto)
        for out, found in zip(proto.graph.output, inferred.graph.output, strict=True):
            out.type.tensor_type.elem_type = found.type.tensor_type.elem_type
        return proto


def grow(g: Graph) -> None:
    """Add one random step."""
    kind = g.random.randrange(16)
    if kind == 0:
        name, rank = g.random.choice(g.floats)
        g.keep(g.add(g.random.choice(_ELEMENTWISE), name), rank)
    elif kind == 1:
        name, rank = g.random.choice(g.floats)
        at = g.add("Transpose", g.add("NonZero", g.positive(name)))
        g.keep(g.add("GatherND", name, at), 1)
    elif kind == 2:
        v = g.pick(1)
        g.keep(g.add("Compress", v, g.positive(v), axis=0), 1)
    elif kind == 3:
        x = g.pick(2)
        row = g.add("ReduceMax", x, g.ints(1), keepdims=0)
        g.keep(g.add("Compress", x, g.positive(row), axis=0), 2)
    elif kind == 4:
        g.keep(g.add("Unique", g.add("Floor", g.pick()), outputs=4, sorted=g.random.randrange(2)), 1)
    elif kind == 5:
        g.keep(g.add("Unique", g.add("Round", g.pick(2)), axis=g.random.randrange(2)), 2)
    elif kind == 6:
        v = g.pick(1)
        size = g.add("Shape", v)
        g.keep(g.add("TopK", v, g.add("Min", g.count(), size), outputs=2, largest=g.random.randrange(2)), 1)
    elif kind == 7:
        zero, one = g.constant(np.int64(0)), g.constant(np.int64(1))
        numbers = g.add("Range", zero, g.add("Squeeze", g.count()), one)
        g.keep(g.add("Cast", numbers, to=TensorProto.FLOAT), 1)
    elif kind == 8:
        g.keep(g.add("Reshape", g.pick(), g.ints(-1, g.random.choice([1, 2]))), 2)
    elif kind == 9:
        g.keep(g.add("Concat", g.pick(1), g.pick(1), axis=0), 1)
    elif kind == 10:
        end = g.add("Neg", g.count()) if g.random.random() < 0.3 else g.ints(2**40)
        g.keep(g.add("Slice", g.pick(1), g.count(), end, g.ints(0), g.ints(g.random.choice([1, 2]))), 1)
    elif kind == 11:
        shape = g.add("Concat", g.count(), g.ints(1), axis=0)
        g.keep(g.add("Expand", g.pick(1), shape), 2)
    elif kind == 12:
        g.keep(g.add("Tile", g.pick(1), g.count()), 1)
    elif kind == 13:
        pads = g.add("Concat", g.count(), g.ints(g.random.choice([-1, 0, 2])), axis=0)
        g.keep(g.add("Pad", g.pick(1), pads), 1)
    elif kind == 14:
        x = g.pick(2)
        g.keep(g.add("MatMul", x, g.add("Transpose", x)), 2)
    else:
        name, rank = g.random.choice(g.floats)
        number = g.add("Cast", g.count(), to=TensorProto.FLOAT)
        g.keep(g.add("Mul", name, g.add("Div", number, g.constant(np.float32(5)))), rank)


def random_model(seed: int, steps: int = 8) -> onnx.ModelProto:
    """The model of a seed."""
    graph = Graph(Random(seed))  # noqa: S311 - no secret
    while len(graph.nodes) < steps:
        grow(graph)
    return graph.model()


def random_inputs(seed: int, n: int, m: int) -> dict[str, np.ndarray]:
    """Numbers between -3 and 3, in quarters, so that some are equal."""
    data = np.random.default_rng(seed)
    return {
        "x": (data.integers(-12, 13, (n, 4)) / 4).astype(np.float32),
        "v": (data.integers(-12, 13, m) / 4).astype(np.float32),
    }
