"""Time to load and partition a graph of 10,000 nodes: at most 0.5 s, and near linear."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from bench.harness import Row, spread
from farcall.backends.base import Backend, RegionCode
from farcall.graph import Pattern, Region, cut, load_model
from farcall.toolchain import Target

_LIMIT_S = 0.5
_LIMIT_RATIO = 15.0
_ROUNDS = 7


class _Claims(Backend):
    """A backend that takes nodes by operator."""

    def __init__(self, name: str, operators: frozenset[str] | None, patterns: Sequence[Pattern] = ()) -> None:
        self.name = name
        self.color = "#888888"
        self._operators = operators
        self._patterns = patterns

    def patterns(self) -> Sequence[Pattern]:
        return self._patterns

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> RegionCode:
        raise NotImplementedError  # nothing is built

    def check(self, node: ir.Node) -> str | None:
        taken = self._operators is None or node.op_type in self._operators
        return None if taken else f"takes no {node.op_type}"


_PATTERNS = [
    Pattern("sum_relu", "Relu?(Add|Mul+(x, _))"),
    Pattern("run", "Relu+(x)"),
    Pattern("half", "Mul(x, 0.5)"),
]
_BACKENDS = [_Claims("npu", frozenset({"Relu", "Add", "Mul", "Sub"}), _PATTERNS), _Claims("c", None)]


def _model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [16])

    graph = helper.make_graph(nodes, "g", list(map(info, inputs)), list(map(info, outputs)))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _chain(count: int, foreign: int = 0) -> onnx.ModelProto:
    kinds = ["Abs" if foreign and index % foreign == foreign - 1 else "Relu" for index in range(count)]
    nodes = [helper.make_node(kind, [f"v{i}"], [f"v{i + 1}"]) for i, kind in enumerate(kinds)]
    return _model(nodes, ["v0"], [f"v{count}"])


def _mixed(count: int) -> onnx.ModelProto:
    return _chain(count, foreign=10)


def _diamonds(count: int) -> onnx.ModelProto:
    nodes: list[onnx.NodeProto] = []
    for i in range(count // 4):
        nodes += [
            helper.make_node("Add", [f"v{i}", f"v{i}"], [f"a{i}"]),
            helper.make_node("Abs", [f"v{i}"], [f"b{i}"]),
            helper.make_node("Sub", [f"b{i}", f"v{i}"], [f"c{i}"]),
            helper.make_node("Mul", [f"a{i}", f"c{i}"], [f"v{i + 1}"]),
        ]
    return _model(nodes, ["v0"], [f"v{count // 4}"])


def _random_dag(count: int) -> onnx.ModelProto:
    chance = random.Random(0)  # noqa: S311
    names = ["v0", "v1"]
    nodes: list[onnx.NodeProto] = []
    for i in range(count):
        kind = "Abs" if chance.random() < 0.15 else chance.choice(["Add", "Mul", "Relu"])
        backs = [int(chance.expovariate(0.05)) for _ in range(2 if kind in ("Add", "Mul") else 1)]
        nodes.append(helper.make_node(kind, [names[max(0, len(names) - 1 - b)] for b in backs], [f"w{i}"]))
        names.append(f"w{i}")
    used = {name for node in nodes for name in node.input}
    return _model(nodes, names[:2], [name for name in names[2:] if name not in used])


_GRAPHS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "chain": _chain,
    "every tenth node foreign": _mixed,
    "diamonds": _diamonds,
    "random DAG, 15% foreign": _random_dag,
}


def _measure(proto: onnx.ModelProto) -> tuple[float, float]:
    """Seconds to load (parse, check, infer shapes), and to load and cut.

    CPU time: one thread does all the work, so on an idle machine this equals elapsed time. What the round
    before left, cycles of 500,000 objects, is collected first, and not in this one's time.
    """
    gc.collect()
    start = time.process_time()
    model = load_model(proto)
    loaded = time.process_time()
    cut(model, _BACKENDS)
    return loaded - start, time.process_time() - start


def _rows(work: str, make: Callable[[int], onnx.ModelProto]) -> list[Row]:
    small, large = make(1000), make(10_000)
    rounds = [(_measure(small), _measure(large)) for _ in range(_ROUNDS)]
    few = statistics.median(whole for (_, whole), _ in rounds)
    loads, wholes = [load for _, (load, _) in rounds], [whole for _, (_, whole) in rounds]
    seconds, wide = statistics.median(wholes), spread(wholes)
    name = f"partition, 10,000 nodes, {work}"
    share = statistics.median(loads) / seconds
    return [
        Row(f"{name} (load {share:.0%})", seconds, wide, reach_seconds=_LIMIT_S),
        Row(name, seconds, wide, "farcall, 1,000 nodes", few, reach_ratio=_LIMIT_RATIO),
    ]


def run() -> list[Row]:
    """Two rows for each kind of graph: load and cut against the limit, and against a tenth of the nodes."""
    _measure(_chain(10))  # imports
    return [row for work, make in _GRAPHS.items() for row in _rows(work, make)]
