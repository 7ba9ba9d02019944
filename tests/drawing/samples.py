"""Diagrams to draw."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import farcall as fc
from farcall.drawing._diagram import Area, Box, Diagram, Value, Wire
from farcall.graph import cut
from tests.graph.graphs import FULL, chain, random_dag

EXAMPLES = Path(__file__).parents[2] / "examples"


def plan() -> fc.Plan:
    """The plan of the demo: a small CNN, cut between an accelerator and the C backend."""
    backend = _module(EXAMPLES / "backends" / "npu.py").NpuBackend()
    return fc.partition(EXAMPLES / "digits" / "digits.onnx", backends=[backend, "c"])


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("npu_for_pictures", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def demo() -> Diagram:
    """The diagram of the demo."""
    return plan().diagram()


def dag(count: int, foreign: float = 0.1, seed: int = 2) -> Diagram:
    """A random graph."""
    return cut(random_dag(count, foreign, seed), FULL).diagram()


def alternating(count: int, foreign: int) -> Diagram:
    """A chain in which every ``foreign``-th node has another backend."""
    return cut(chain(count, foreign), FULL).diagram()


def transformer(layers: int) -> Diagram:
    """Layers of attention in one region, all of which read a mask."""
    boxes = [Box(("ids", "int64[n]"), -1), Box(("mask", "float32[n, n]"), -1), Box(("Gather",), 0)]
    names = ("LayerNorm", "MatMul", "Split", "Transpose", "MatMul", "Add", "Softmax", "MatMul", "Add")
    reads = ([-1], [0], [1], [2], [2, 3], [4, -9], [5], [2, 6], [7, -1])  # -1: the layer before; -9: the mask
    links = [(0, 2)]
    for _ in range(layers):
        start = len(boxes)
        boxes += [Box((name,), 0, name) for name in names]
        for at, sources in enumerate(reads):
            links += [({-9: 1, -1: start - 1}.get(s, start + s), start + at) for s in sources]
    boxes.append(Box(("y", "float32[n, 64]"), -1, "", output=True))
    links.append((len(boxes) - 2, len(boxes) - 1))
    return Diagram(
        "transformer",
        tuple(boxes),
        tuple(Wire(source, target, source) for source, target in links),
        tuple(Value(f"v{i}", "int64" if i == 0 else "float32", ("n", "64")) for i in range(len(boxes))),
        (Area("c_0", "c", len(boxes) - 3),),
        {"c": "#1c7ed6"},
    )
