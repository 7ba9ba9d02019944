"""Models to partition, chosen to be hard for partitioners, and backends that claim nodes by operator."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from farcall.graph import Match, Pattern, Region


class OpBackend:
    """Claims nodes by operator; ``None`` claims all."""

    allocates = False
    in_process = False
    ends_at_late = False

    def __init__(self, name: str, operators: str | None = None, patterns: Sequence[Pattern] = ()) -> None:
        self.name = name
        self.color = {"npu": "#e8590c", "c": "#1c7ed6"}.get(name, "#888888")
        self._operators = None if operators is None else operators.split()
        self._patterns = patterns

    def patterns(self) -> Sequence[Pattern]:
        return self._patterns

    min_nodes = 1

    def accept(self, region: Region) -> str | Sequence[Match] | None:
        return None

    def check(self, node: ir.Node) -> str | None:
        if self._operators is None or node.op_type in self._operators:
            return None
        return f"takes no {node.op_type}"


NPU = OpBackend("npu", "Relu Add Mul Sub")
C = OpBackend("c")
FULL: list[OpBackend] = [NPU, C]


def value(
    name: str, dims: Sequence[int | str | None] = (4,), dtype: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(dims))


def model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [value(name) for name in inputs], [value(name) for name in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def text_model(text: str, opset: int = 20) -> onnx.ModelProto:
    """A model from ONNX's text form of a graph."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')


def chain(count: int, foreign: int = 0) -> onnx.ModelProto:
    """Relu after Relu; every ``foreign``-th is an Abs."""
    kinds = ["Abs" if foreign and index % foreign == foreign - 1 else "Relu" for index in range(count)]
    nodes = [helper.make_node(kind, [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i, kind in enumerate(kinds)]
    return model(nodes, ["v0"], [f"v{count}"])


def mixed(count: int) -> onnx.ModelProto:
    return chain(count, foreign=10)


def diamonds(count: int) -> onnx.ModelProto:
    """``Add`` beside ``Abs -> Sub``, joined by ``Mul``, again and again."""
    nodes: list[onnx.NodeProto] = []
    last = "v0"
    for index in range(count // 4):
        nodes += [
            helper.make_node("Add", [last, last], [f"a{index}"]),
            helper.make_node("Abs", [last], [f"b{index}"]),
            helper.make_node("Sub", [f"b{index}", last], [f"c{index}"]),
            helper.make_node("Mul", [f"a{index}", f"c{index}"], [f"v{index + 1}"]),
        ]
        last = f"v{index + 1}"
    return model(nodes, ["v0"], [last])


def random_dag(count: int, foreign: float = 0.15, seed: int = 0) -> onnx.ModelProto:
    """Each node reads recent values; a share of the nodes is foreign; unread values are outputs."""
    chance = random.Random(seed)  # noqa: S311
    names = ["v0", "v1"]
    nodes: list[onnx.NodeProto] = []
    for index in range(count):
        kind = "Abs" if chance.random() < foreign else chance.choice(["Add", "Mul", "Relu"])
        backs = [int(chance.expovariate(0.05)) for _ in range(2 if kind in ("Add", "Mul") else 1)]
        reads = [names[max(0, len(names) - 1 - back)] for back in backs]
        nodes.append(helper.make_node(kind, reads, [f"w{index}"], name=f"n{index}"))
        names.append(f"w{index}")
    used = {name for node in nodes for name in node.input}
    return model(nodes, names[:2], [name for name in names[2:] if name not in used])


KINDS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "chain": chain,
    "every tenth node foreign": mixed,
    "diamonds": diamonds,
    "random, 15% foreign": random_dag,
}
