"""Time to load and partition a graph of 10,000 nodes: at most 1 s, and near linear."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from bench.harness import Row, spread
from farcall.graph import Pattern, cut, load_model

_LIMIT_S = 1.0
_LIMIT_RATIO = 15.0
_ROUNDS = 5


class _Claims:
    """A backend that claims by operator."""

    def __init__(self, name: str, operators: frozenset[str] | None) -> None:
        self.name = name
        self.color = "#888888"
        self._operators = operators

    def patterns(self) -> Sequence[Pattern]:
        return ()

    def check(self, node: ir.Node) -> str | None:
        taken = self._operators is None or node.op_type in self._operators
        return None if taken else f"takes no {node.op_type}"


_BACKENDS = [_Claims("npu", frozenset({"Relu", "Add", "Mul", "Sub"})), _Claims("c", None)]


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


def _measure(proto: onnx.ModelProto) -> tuple[list[float], list[float]]:
    """Seconds to load (parse, check, infer shapes) and to cut, of each round."""
    loads, cuts = [], []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        model = load_model(proto)
        loaded = time.perf_counter()
        cut(model, _BACKENDS)
        cuts.append(time.perf_counter() - loaded)
        loads.append(loaded - start)
    return loads, cuts


def _rows(work: str, make: Callable[[int], onnx.ModelProto]) -> list[Row]:
    loads, cuts = _measure(make(10_000))
    small = statistics.median(map(sum, zip(*_measure(make(1000)), strict=True)))
    whole = [load + rest for load, rest in zip(loads, cuts, strict=True)]
    share = statistics.median(loads) / statistics.median(whole)
    seconds, wide = statistics.median(whole), spread(whole)
    name = f"partition, 10,000 nodes, {work}"
    return [
        Row(f"{name} (load {share:.0%})", seconds, wide, reach_seconds=_LIMIT_S),
        Row(name, seconds, wide, "farcall, 1,000 nodes", small, reach_ratio=_LIMIT_RATIO),
    ]


def run() -> list[Row]:
    """Two rows for each kind of graph: load and cut against the limit, and against a tenth of the nodes."""
    _measure(_chain(10))  # imports
    return [row for work, make in _GRAPHS.items() for row in _rows(work, make)]
