"""Random graphs through farcall, beside their values: many in one model, which is built once."""

from __future__ import annotations

import itertools
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx

import farcall as fc
from farcall.errors import UnsupportedOperatorError

from .building import Graph, Skip
from .operators import random_graph

BATCH = 16
"""Graphs of one build; they have one opset."""
OPSETS = range(11, 23)
_BLURS = 3

Values = dict[str, np.ndarray]


@dataclass
class Case:
    """A graph with inputs, all of its values, and how far rounding errors move these."""

    graph: Graph
    inputs: Values
    values: Values
    blurs: list[Values]

    @classmethod
    def of(cls, graph: Graph, inputs: Values) -> Case:
        """Raises: Skip, if the graph cannot be computed with these inputs."""
        values = graph.compute(inputs)
        rng = np.random.default_rng(graph.seed)
        return cls(graph, inputs, values, [graph.compute(inputs, rng) for _ in range(_BLURS)])

    def fault(self, results: Sequence[np.ndarray]) -> str | None:
        """The first output that is not as onnxruntime has it."""
        for name, ours in zip(self.graph.outputs, results, strict=True):
            if wrong := fault(ours, self.values[name], [blur[name] for blur in self.blurs]):
                return f"{name}: {wrong}"
        return None


def fault(ours: np.ndarray, theirs: np.ndarray, blurs: Sequence[np.ndarray]) -> str | None:
    """Why a result is wrong: by more than what rounding errors of every node would make."""
    if any(blur.shape != theirs.shape for blur in blurs):
        return None  # rounding errors decide the shape
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return f"{ours.dtype}{list(ours.shape)}, expected {theirs.dtype}{list(theirs.shape)}"
    if theirs.dtype.kind == "f":
        eps = float(np.finfo(theirs.dtype).eps)
        ours, theirs, *blurs = (array.astype(np.float64) for array in (ours, theirs, *blurs))
        moved = np.max([np.abs(blur - theirs) for blur in blurs], axis=0)
        moved = np.where(np.isnan(moved), np.inf, moved)
        usual = np.median(moved) if moved.size else 0.0  # three errors may all be small by chance
        close = 32 * eps * np.abs(theirs) + 8 * eps * np.abs(theirs).max(initial=0) + 64 * moved + 16 * usual
        bad = ~(np.abs(ours - theirs) <= close)
    else:
        stable = np.all([blur == theirs for blur in blurs], axis=0)
        bad = (ours != theirs) & stable
    if not bad.any():
        return None
    place = tuple(int(n) for n in np.argwhere(bad)[0])
    return (
        f"{int(bad.sum())} of {bad.size} elements differ, at {list(place)}: {ours[place]},"
        f" expected {theirs[place]}"
    )


@dataclass
class Report:
    """What became of many graphs."""

    compared: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Report) -> None:
        self.compared += other.compared
        self.refused += other.refused
        self.failures |= other.failures


def opset_of(seed: int) -> int:
    """Graphs of one batch have one opset."""
    return OPSETS[seed // BATCH % len(OPSETS)]


def compare(seeds: Sequence[int]) -> Report:
    """Graphs of these seeds, which have one opset, beside onnxruntime."""
    report = Report()
    graphs = []
    for seed in seeds:
        graph = random_graph(seed, opset_of(seed))
        try:
            Case.of(graph, graph.inputs)
            if reason := refusal(graph):
                report.refused[reason] += 1
            else:
                graphs.append(graph)
        except Skip:
            report.refused["rounding errors decide shapes"] += 1
        except Exception as error:
            report.failures[seed] = f"partition: {type(error).__name__}: {error}"
    report.compared = len(graphs)
    try:
        report.failures |= faults(graphs)
    except Exception:  # of one of the graphs: each alone
        for graph in graphs:
            for seed, message in alone(graph).items():
                if "pass arguments of other sizes" in message:
                    report.refused["a dim that a size makes 1, which would be stretched"] += 1
                    report.compared -= 1
                else:
                    report.failures[seed] = message
    return report


def quietly(seeds: range) -> Report:
    """Compare, with a cache of objects that ends with the work: no graph is built again."""
    with warnings.catch_warnings(action="ignore"), tempfile.TemporaryDirectory() as folder:
        os.environ["FARCALL_CACHE_DIR"] = folder
        return compare(seeds)


def alone(graph: Graph) -> dict[int, str]:
    """What is wrong with one graph."""
    try:
        return faults([graph])
    except Exception as error:
        return {graph.seed: f"{type(error).__name__}: {error}"}


def refusal(graph: Graph) -> str | None:
    """The operator that the backend refuses, with the reason."""
    try:
        fc.partition(graph.model(), backends=["c"])
    except UnsupportedOperatorError as error:
        lines = str(error).splitlines()
        operator = lines[1].split("ai.onnx::")[-1].split(",")[0]
        return f"{operator}: {lines[2].strip().removeprefix('c: ')}"
    return None


def faults(graphs: Sequence[Graph]) -> dict[int, str]:
    """Build one model of all graphs, call it with two sets of inputs, and compare all results."""
    if not graphs:
        return {}
    found: dict[int, str] = {}
    first = [Case.of(graph, graph.inputs) for graph in graphs]
    main = fc.partition(union(graphs), backends=["c"]).build().load()["main"]
    for cases in (first, [other_sizes(case) for case in first]):
        results = main(*itertools.chain.from_iterable(case.inputs.values() for case in cases))
        total = sum(len(graph.outputs) for graph in graphs)
        left = iter(results if total > 1 else [results])
        for case in cases:
            arrays = [np.from_dlpack(one) for one in itertools.islice(left, len(case.graph.outputs))]
            if wrong := case.fault(arrays):
                found.setdefault(case.graph.seed, wrong)
    return found


def other_sizes(case: Case) -> Case:
    """The case with other sizes for its symbols, if its graph has some and can be computed with them."""
    graph = case.graph
    rng = np.random.default_rng([graph.seed, 1])
    sizes = {name: int(rng.integers(2, 9)) for dims in graph.symbols.values() for name in dims.values()}
    if not sizes:
        return case
    inputs = {}
    for name, array in graph.inputs.items():
        dims = graph.symbols.get(name, {})
        shape = [sizes[dims[axis]] if axis in dims else size for axis, size in enumerate(array.shape)]
        inputs[name] = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
    try:
        return Case.of(graph, inputs)
    except Skip:
        return case


def union(graphs: Sequence[Graph]) -> onnx.ModelProto:
    """One model of graphs that share nothing."""
    models = [graph.model() for graph in graphs]
    whole = models[0]
    for model in models[1:]:
        for part in ("node", "input", "output", "initializer"):
            getattr(whole.graph, part).extend(getattr(model.graph, part))
    del whole.graph.value_info[:]
    return whole


def minimized(graph: Graph) -> Graph:
    """A smaller graph that fails, too: values become inputs, and outputs are dropped, while it fails."""

    def fails(candidate: Graph) -> bool:
        return bool(candidate.steps) and bool(candidate.inputs) and bool(alone(candidate))

    if not fails(graph):
        return graph  # only beside the others of its batch
    for name in list(graph.outputs):
        fewer = replace(
            graph, outputs=[other for other in graph.outputs if other != name], steps=list(graph.steps)
        )
        if fewer.outputs and fails(fewer.pruned()):
            graph = fewer
    values = graph.compute(graph.inputs)
    for step in list(graph.steps):
        for name in step.node.output:
            if name in graph.outputs or len(step.node.output) > 1 or name not in values:
                continue
            candidate = graph.without(name, values[name])
            if len(candidate.steps) < len(graph.steps) and fails(candidate):
                graph = candidate
    return graph


def save(graph: Graph, folder: Path) -> Path:
    """Write the model, and its inputs and expected outputs beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"graph-{graph.seed}.onnx"
    onnx.save(graph.model(), path)
    values = graph.compute(graph.inputs)
    arrays = {**graph.inputs, **{f"expected {name}": values[name] for name in graph.outputs}}
    np.savez(path.with_suffix(".npz"), **arrays)
    return path
