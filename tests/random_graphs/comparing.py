"""Random graphs through farcall, beside their values: many in one model, which is built once."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import re
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx

import farcall as fc
from farcall.artifact import Plan, _sources
from farcall.errors import UnsupportedOperatorError
from farcall.graph.dims import evaluate, parse
from farcall.toolchain import Compiler, Source, Target
from farcall.toolchain import _build as _toolchain
from farcall.toolchain._target import host_cpu_flags, host_triple, missing_features

from .building import Graph, Refused, Skip
from .kinds import random_graph

BATCH = 32
"""Graphs of one build; they have one setting."""
OPSETS = range(11, 27)
BACKENDS = (("c",),) * 7 + (("json", "c"), ("blas", "c"), ("onednn", "c"))
OPTIMIZED = 0.04
"""Share of the batches that are compiled as users compile: they take ten times as long as the others."""
_LEVELS = ("x86-64", "x86-64-v3")
_JOINS = "ConcatFromSequence: "  # onnxruntime joins no empty sequence; farcall's result has no elements
_BLURS, _MORE_BLURS = 3, 24

Values = dict[str, np.ndarray]


@dataclass
class Case:
    """A graph with inputs, all of its values, and how far rounding errors move these."""

    graph: Graph
    inputs: Values
    values: Values
    blurs: list[Values]
    refused: str = ""
    """Why onnxruntime refuses the inputs."""

    @classmethod
    def of(cls, graph: Graph, inputs: Values) -> Case:
        """Raises: Skip, if the graph cannot be computed with these inputs."""
        values = graph.compute(inputs)
        rng = np.random.default_rng(graph.seed)
        return cls(graph, inputs, values, [graph.compute(inputs, rng) for _ in range(_BLURS)])

    @classmethod
    def of_misfits(cls, graph: Graph, inputs: Values) -> Case:
        """A case of inputs that need not fit each other.

        Where onnxruntime refuses them, so may farcall; it may as well stretch them, as numpy does.

        Raises:
            Skip: nothing can be said about the results.
        """
        try:
            return cls.of(graph, inputs)
        except Refused as error:
            refused = str(error)[:200]
        try:
            values = graph.compute(inputs, stretching=True)
        except Refused:
            return cls(graph, inputs, {}, [], refused)
        rng = np.random.default_rng(graph.seed)
        blurs = [graph.compute(inputs, rng, stretching=True) for _ in range(_BLURS)]
        return cls(graph, inputs, values, blurs, refused)

    def fault(self, results: Sequence[np.ndarray]) -> str | None:
        """The first output that is not as onnxruntime has it.

        Few rounding errors may all go one way, so that more are asked before a result counts as wrong.
        """
        if self.refused and not self.values:
            if self.refused.startswith(_JOINS):
                return None
            return f"onnxruntime refuses these inputs: {self.refused}"
        if self._fault(results):
            rng, stretching = np.random.default_rng([self.graph.seed, 1]), bool(self.refused)
            more = [self.graph.compute(self.inputs, rng, stretching) for _ in range(_MORE_BLURS)]
            self.blurs = [*self.blurs, *more]
        return self._fault(results)

    def _fault(self, results: Sequence[np.ndarray]) -> str | None:
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
        least = 64 * float(
            np.finfo(theirs.dtype).smallest_subnormal
        )  # of products that have lost their digits
        least = float(np.finfo(theirs.dtype).tiny) if theirs.dtype == np.float32 else 0.0  # of a sigmoid
        ours, theirs, *blurs = (array.astype(np.float64) for array in (ours, theirs, *blurs))
        moved = np.max([np.abs(blur - theirs) for blur in blurs], axis=0)
        moved = np.where(np.isnan(moved), np.inf, moved)
        usual = np.median(moved) if moved.size else 0.0  # three errors may all be small by chance
        close = (
            32 * eps * np.abs(theirs)
            + 8 * eps * np.abs(theirs).max(initial=0)
            + 64 * moved
            + 16 * usual
            + least
        )
        close += least
        bad = ~(np.abs(ours - theirs) <= close) & (close < np.inf)
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
    kinds: Counter[str] = field(default_factory=Counter)
    """How many of the compared graphs have an operator, a set of backends, a level of optimization."""

    def add(self, other: Report) -> None:
        self.compared += other.compared
        self.refused += other.refused
        self.failures |= other.failures
        self.kinds += other.kinds

    def count(self, graph: Graph) -> None:
        """Count a graph that was compared."""
        self.compared += 1
        setting = setting_of(graph.seed)
        self.kinds[f"opset {setting.opset}"] += 1
        self.kinds[f"backends {','.join(setting.backends)}"] += 1
        self.kinds[f"target {setting.target or 'of this machine'}"] += 1
        self.kinds["built as users build" if setting.optimized else "built without optimization"] += 1
        self.kinds["symbolic dims"] += any(graph.symbols.values())
        self.kinds.update({node.op_type for step in graph.steps for node in step.nodes})


@dataclass(frozen=True)
class Setting:
    """How a batch is built."""

    opset: int
    backends: tuple[str, ...]
    optimized: bool
    """As users build; otherwise by clang, if it is there, without optimization."""
    target: str | None = None
    """A lower level of the CPU than this machine's."""


def setting_of(seed: int) -> Setting:
    """How the batch of a seed is built."""
    rng = np.random.default_rng([seed // BATCH, 14])
    opset = OPSETS[int(rng.integers(len(OPSETS)))]
    backends = BACKENDS[int(rng.integers(len(BACKENDS)))]
    optimized = bool(rng.random() < OPTIMIZED)
    levels = [f"{host_triple()}:{level}" for level in _LEVELS if _runs(level)]
    lower = levels and rng.random() < 0.4
    return Setting(opset, backends, optimized, str(rng.choice(levels)) if lower else None)


def _runs(level: str) -> bool:
    """Whether this machine runs code of a level."""
    return host_triple().startswith("x86_64-") and not missing_features(level, host_cpu_flags())


@contextlib.contextmanager
def building(setting: Setting) -> Iterator[None]:
    """Compile as the setting says, and keep no object but that of the code which all libraries share."""
    folder = _cache()
    before = set(folder.iterdir())
    with contextlib.ExitStack() as stack:
        values = {"FARCALL_CACHE_DIR": str(folder)}
        if not setting.optimized:
            if "CC" not in os.environ and (clang := shutil.which("clang")):
                values["CC"] = clang
            stack.enter_context(mock.patch.object(_toolchain, "_compile", _compiled_unoptimized))
            stack.enter_context(mock.patch.object(_sources, "_TOGETHER", 1 << 30))
        stack.enter_context(mock.patch.dict(os.environ, values))
        yield
    for path in set(folder.iterdir()) - before:
        if before:
            path.unlink()


_compile = _toolchain._compile


def _compiled_unoptimized(
    compiler: Compiler, target: Target, source: Source, headers: str
) -> tuple[Path, bool]:
    flags = [flag for flag in source.flags if not flag.startswith("-O")]
    return _compile(compiler, target, replace(source, flags=(*flags, "-O0")), headers)


@functools.cache
def _cache() -> Path:
    """The folder of objects of this process."""
    folder = tempfile.mkdtemp(prefix="random-graphs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def compare(seeds: Sequence[int]) -> Report:
    """Graphs of these seeds, which are of one batch, beside onnxruntime."""
    report = Report()
    setting = setting_of(seeds[0])
    cases = []
    for seed in seeds:
        graph = random_graph(seed, setting.opset)
        try:
            cases.append(Case.of(graph, graph.inputs))
        except Skip:
            report.refused["rounding errors decide shapes"] += 1
    with building(setting):
        taken, plan = _taken(cases, report)
        try:
            _compare(taken, plan, report)
        except Exception:  # of one of the graphs: each alone
            for case in taken:
                report.failures |= alone(case.graph)
    for case in taken:
        report.count(case.graph)
    return report


def _taken(cases: list[Case], report: Report) -> tuple[list[Case], Plan | None]:
    """The cases whose graphs the backends take, and the plan of all of them."""
    left = list(cases)
    while left:
        try:
            return left, partition([case.graph for case in left])
        except Exception as error:  # it names nodes, and their names have the seeds of their graphs
            named = {int(seed) for seed in re.findall(r"_(\d+)\b", str(error))}
        suspects = [case.graph for case in left if case.graph.seed in named] or [case.graph for case in left]
        gone = set()
        for graph in suspects:
            try:
                if not (reason := refusal(graph)):
                    continue
                report.refused[reason] += 1
            except Exception as error:
                if _RANK.search(str(error)) and _squeezes(graph):
                    report.refused["an operator that does not take the rank which a Squeeze may give"] += 1
                else:
                    report.failures[graph.seed] = f"partition: {type(error).__name__}: {error}"
            gone.add(graph.seed)
        if not gone:
            raise AssertionError("graphs are refused beside others only")
        left = [case for case in left if case.graph.seed not in gone]
    return [], None


def quietly(seeds: range) -> Report:
    """Compare, without the warnings of packages."""
    with warnings.catch_warnings(action="ignore"):
        return compare(seeds)


def alone(graph: Graph) -> dict[int, str]:
    """What is wrong with one graph."""
    report = Report()
    try:
        with building(setting_of(graph.seed)):
            _compare([Case.of(graph, graph.inputs)], partition([graph]), report)
        return report.failures
    except Skip:
        return {}
    except Exception as error:
        if _SQUEEZED.search(str(error)) or _COPIED.search(str(error)) or stretches(str(error)):
            return {}
        return {graph.seed: f"{type(error).__name__}: {error}"}


def partition(graphs: Sequence[Graph]) -> Plan:
    """A plan of one model of these graphs, which are of one batch."""
    return fc.partition(union(graphs), backends=setting_of(graphs[0].seed).backends)


def refusal(graph: Graph) -> str | None:
    """The operator that the backends refuse, with the reason."""
    try:
        partition([graph])
    except UnsupportedOperatorError as error:
        lines = str(error).splitlines()
        operator = lines[1].split("ai.onnx::")[-1].split(",")[0]
        reason = next(line for line in lines if line.strip().startswith("c: "))
        return f"{operator}: {re.sub(r'_[0-9]+', '_', reason.strip().removeprefix('c: '))}"
    return None


def _compare(cases: Sequence[Case], plan: Plan | None, report: Report) -> None:
    """Build the plan of all graphs, and compare the results of calls with several sizes.

    The first call has the sizes of the graphs' inputs; then the symbols of one graph after the other have
    other sizes.
    """
    if plan is None:
        return
    main = plan.build(setting_of(cases[0].graph.seed).target).load()["main"]
    for case, results in zip(cases, _call(main, cases), strict=True):
        if wrong := case.fault(results):
            report.failures[case.graph.seed] = wrong
    for index, case in enumerate(cases):
        for other, edge in other_sizes(case):
            try:
                results = _call(main, [*cases[:index], other, *cases[index + 1 :]])[index]
                wrong = other.fault(results)
            except Exception as error:
                refuses = isinstance(error, ValueError | IndexError | MemoryError)
                wrong = None if other.refused and refuses else f"{type(error).__name__}: {error}"
            edge = edge or not all(array.size for array in other.inputs.values())
            if wrong and _SQUEEZED.search(wrong):
                report.refused["a call in which a Squeeze without axes would give another rank"] += 1
            elif wrong and (stretches(wrong) or (edge and _STRETCHED.search(wrong))):
                report.refused["a call with a dim of 1 (or 0) that is another number elsewhere"] += 1
            elif wrong:
                shapes = ", ".join(str(array.shape) for array in other.inputs.values())
                report.failures.setdefault(case.graph.seed, f"inputs {shapes}: {wrong}")


# farcall fixes a dim by the dims that it meets: a 1 is not stretched, and Concat leaves out no empty tensor.
_STRETCHED = re.compile(
    "pass arguments of other sizes|do not fit together|expected .*, got .*; dimension| instead of |"
    "expected .* == .* with "
)
_UNEQUAL = re.compile("expected (.+) == (.+) with (.+); pass arguments of other sizes")
# It fixes the rank of a Squeeze without axes, too, as if no dim were 1 that may be another number.
_SQUEEZED = re.compile("as it has no axes, and its rank is fixed")
# A size that the data decides is a dim of its own: as 0, it would be that of Reshape's input in its place.
_COPIED = re.compile("of its shape must not be 0, which would mean a dim of the input")
_RANK = re.compile("an input has another rank than it needs")


def _squeezes(graph: Graph) -> bool:
    """Whether a Squeeze has no axes: one of symbolic sizes has the rank that fits if none of them is 1."""
    squeezes = (node for step in graph.steps for node in step.nodes if node.op_type == "Squeeze")
    return any(len(node.input) < 2 and not node.attribute for node in squeezes)


def stretches(message: str) -> bool:
    """Whether a call is refused because one of two computed dims, which it makes differ, is 1 or 0."""
    if not (found := _UNEQUAL.search(message)):
        return False
    *sides, given = found.groups()
    sizes = {name: int(size) for name, size in (item.split("=") for item in given.split(", "))}
    return min(abs(evaluate(parse(side), sizes)) for side in sides) < 2


def _call(main: Callable[..., Any], cases: Sequence[Case]) -> list[list[np.ndarray]]:
    results = main(*itertools.chain.from_iterable(case.inputs.values() for case in cases))
    total = sum(len(case.graph.outputs) for case in cases)
    left = iter(results if total > 1 else [results])
    return [
        [np.from_dlpack(one) for one in itertools.islice(left, len(case.graph.outputs))] for case in cases
    ]


def other_sizes(case: Case) -> Iterator[tuple[Case, bool]]:
    """The case with other sizes for its symbols, if its graph has some: of several elements, and of 0 or 1.

    The second of a pair is whether a size may be 0 or 1.
    """
    graph = case.graph
    rng = np.random.default_rng([graph.seed, 1])
    symbols = list(dict.fromkeys(name for dims in graph.symbols.values() for name in dims.values()))
    if not symbols:
        return
    if graph.loose:
        yield from _misfits(graph, rng)
        return
    several = {name: int(rng.integers(2, 10)) for name in symbols}
    edge = {**several, symbols[int(rng.integers(len(symbols)))]: int(rng.integers(0, 2))}
    for sizes in (several, edge):
        with contextlib.suppress(Skip):
            yield Case.of(graph, _resized(graph, sizes)), sizes is edge


def _misfits(graph: Graph, rng: np.random.Generator) -> Iterator[tuple[Case, bool]]:
    """Inputs of which one dim is another than in the graph, so that most do not fit each other."""
    if any(node.op_type in ("Shape", "Size") for step in graph.steps for node in step.nodes):
        return  # of which a model may compute less than onnxruntime checks
    sizes = {
        symbol: graph.inputs[name].shape[axis]
        for name, dims in graph.symbols.items()
        if name in graph.inputs
        for axis, symbol in dims.items()
    }
    for symbol in rng.permutation(list(sizes))[:4]:
        size = sizes[symbol]
        changed = int(rng.choice([size + 1, max(size - 1, 0), 1, 2 * size]))
        inputs = _resized(graph, {**sizes, symbol: changed})
        with contextlib.suppress(Skip):
            yield Case.of_misfits(graph, inputs), True


def _resized(graph: Graph, sizes: dict[str, int]) -> Values:
    """The inputs with other sizes of symbols."""
    inputs = {}
    for name, array in graph.inputs.items():
        dims = graph.symbols.get(name, {})
        shape = [sizes[dims[axis]] if axis in dims else size for axis, size in enumerate(array.shape)]
        inputs[name] = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
    return inputs


def union(graphs: Sequence[Graph]) -> onnx.ModelProto:
    """One model of graphs that share nothing."""
    models = [graph.model() for graph in graphs]
    whole = models[0]
    for model in models[1:]:
        for part in ("node", "input", "output", "initializer"):
            getattr(whole.graph, part).extend(getattr(model.graph, part))
    imports = {item.domain: item for model in models for item in model.opset_import}
    del whole.opset_import[:]
    whole.opset_import.extend(imports.values())
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
