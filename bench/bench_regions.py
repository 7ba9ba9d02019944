"""What a region costs beyond its kernel, when `main` calls it and when it is built.

A chain of regions of one element spends almost all its time in calls. The regions of modules are those of the
backend `json`, whose kernels are interpreted: their row has that work in it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx_ir as ir

import farcall as fc
from bench.harness import Row, blocks, loops, spread
from farcall.backends.base import Backend, Code, RegionModule
from farcall.backends.c_backend_kit import CBackendKit, RegionWriter
from farcall.graph import Match, Region
from farcall.graph.dims import dims, product
from farcall.toolchain import Target

LENGTH, SHORT = 102, 2
REGIONS, ROUNDS = 500, 7


class Flip(CBackendKit):
    """Takes Neg, so that a chain of Neg and Abs has one region for each node."""

    name = "flip"

    def check(self, node: ir.Node) -> str | None:
        return None if node.op_type == "Neg" else "only Neg"

    def emit(self, match: Match, out: RegionWriter) -> None:
        x, y = out.pointer(match.root.inputs[0]), out.pointer(match.root.outputs[0])
        with out.loop("i", product(dims(match.root.outputs[0]))):
            out.line(f"{y}[i] = -{x}[i];")


class Apart(Backend):
    """The code of `json`, in regions of one operator: two names, so that no two nodes are joined."""

    def __init__(self, name: str, operator: str) -> None:
        self.name, self._operator = name, operator
        self._json = fc.backend("json")

    def check(self, node: ir.Node) -> str | None:
        return None if node.op_type == self._operator else f"only {self._operator}"

    def compile(self, region: Region, target: Target, options: Mapping[str, Any]) -> Code:
        return self._json.compile(region, target, self._json.options)

    def finish(
        self, regions: Sequence[Region], codes: Sequence[Code], target: Target, options: Mapping[str, Any]
    ) -> Sequence[Code]:
        made = self._json.finish(regions, codes, target, self._json.options)
        assert all(isinstance(code, RegionModule) for code in made)
        return made


def run() -> list[Row]:
    """Calls of regions in C and of modules; the build of many regions beside that of one."""
    return [
        _call_row("C", [Flip(), "c"], 60e-9),
        _call_row("module (json)", [Apart("one", "Neg"), Apart("two", "Abs")], 150e-9),
        _build_row(),
    ]


def _chain(length: int, width: int) -> ir.Model:
    value = x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([width]))
    nodes = []
    for i in range(length):
        nodes.append(ir.Node("", "Abs" if i % 2 else "Neg", [value]))
        value = nodes[-1].outputs[0]
        value.name, value.type, value.shape = f"v{i}", x.type, x.shape
    graph = ir.Graph([x], [value], nodes=nodes, opset_imports={"": 20}, name="chain")
    return ir.Model(graph, ir_version=10)


def _call_row(kind: str, backends: Sequence[str | Backend], limit: float) -> Row:
    """The time of one more region: a long chain's time less a short one's, by their difference in regions."""
    x = np.ones(1, np.float32)
    mains = {
        length: fc.partition(_chain(length, 1), backends=backends).build().load()["main"]
        for length in (LENGTH, SHORT)
    }
    counts = {length: loops(lambda main=main: main(x)) for length, main in mains.items()}  # type: ignore[misc]

    def seconds(length: int) -> float:
        main, count = mains[length], counts[length]
        start = time.perf_counter()
        for _ in range(count):
            main(x)
        return (time.perf_counter() - start) / count

    found = blocks({"long": lambda: seconds(LENGTH), "short": lambda: seconds(SHORT)}, 31)
    each = [(a - b) / (LENGTH - SHORT) for a, b in zip(found["long"], found["short"], strict=True)]
    what = f"one region of {kind}, one element, kernel included"
    return Row(what, statistics.median(each), spread(each), reach_seconds=limit)


def _build_row() -> Row:
    model = _chain(REGIONS, 256)

    def build(backends: Sequence[str | Backend]) -> float:
        plan = fc.partition(model, backends=backends)
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", FARCALL_CACHE_DIR=folder):
            start = time.perf_counter()
            plan.build().save(Path(folder) / "m.so")
            return time.perf_counter() - start

    times = blocks({"many": lambda: build([Flip(), "c"]), "one": lambda: build(["c"])}, ROUNDS)
    many, one = times["many"], statistics.median(times["one"])
    what = f"build {REGIONS} regions, empty cache"
    return Row(what, statistics.median(many), spread(many), "one region of all nodes", one, reach_ratio=3.0)
