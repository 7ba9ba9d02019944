"""Measures the regions of an artifact one by one, and their operators, here or on a server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from farcall._core import Module
from farcall._html import table
from farcall._table import plain_table
from farcall._texts import duration
from farcall.abi._leaves import is_numeric
from farcall.drawing._diagram import Diagram
from farcall.errors import ArtifactError, UsageError
from farcall.ffi._dims import evaluate
from farcall.library import inspect, load_module
from farcall.library._step_times import step_times, steps_of
from farcall.rpc.client._roof import Roof, roof
from farcall.rpc.client._timing import Timing, TimingOptions

if TYPE_CHECKING:
    from farcall.library._manifest import Manifest, RegionInfo
    from farcall.rpc.client._session import Session

_OPTIONS = {"repeat": 5, "min_repeat_ms": 2}
_COLUMNS = ("region", "backend", "nodes", "time", "share")
_RATES = ("GFLOP/s", "GB/s", "roof")
STEP_COLUMNS = ("operator", "node", "region", "time", "share", *_RATES)
_HERE = "this process"


@dataclass(frozen=True)
class ProfiledRegion:
    """A region and its measured time. ``share`` is its part of the time of all regions, from 0 to 1.

    ``operations`` and ``traffic`` are the sums of its steps; 0 without steps.
    """

    name: str
    backend: str
    nodes: int
    operators: Mapping[str, int]
    timing: Timing
    share: float
    operations: int = 0
    traffic: int = 0

    @property
    def seconds(self) -> float:
        """The shortest measured time."""
        return self.timing.min


@dataclass(frozen=True)
class ProfiledStep:
    """A step of a region, an operator or a fused loop of several, in a call of ``main``.

    Attributes:
        region: its name.
        operator: the operators, joined by ``+``.
        nodes: the names of the nodes.
        seconds: the least of several calls.
        share: its part of the time of all steps, from 0 to 1.
        operations: additions and multiplications of elements; 0: they are not counted.
        traffic: the bytes that it reads and writes, each operand once; 0: the data decides them.
    """

    region: str
    operator: str
    nodes: tuple[str, ...]
    seconds: float
    share: float
    operations: int = 0
    traffic: int = 0


@dataclass(frozen=True)
class Profile:
    """The times of an artifact's regions. Made by :func:`profile`.

    Times are the shortest of several measurements, since other work on the machine only adds to them.

    ``main`` is the time of the whole model. It may be less than the sum of the regions: a region that is
    called alone checks its arguments and allocates its results.

    ``steps`` are the operators of the regions that count their time, as those of
    ``Plan.build(profile=True)`` do, in the order in which they run. ``roof`` is the most that a core of the
    machine does; None without steps, or if it could not be measured.
    """

    where: str
    main: Timing
    rows: tuple[ProfiledRegion, ...]
    manifest: Manifest
    steps: tuple[ProfiledStep, ...] = ()
    roof: Roof | None = None

    def svg(self) -> str:
        """The picture of the model, in which each region has the colour of its share.

        Raises:
            ArtifactError: the artifact was built by a version of farcall that put no diagram into it.
        """
        from farcall.drawing._heat import Heat
        from farcall.drawing._svg import svg

        heat = {
            row.name: Heat(row.share, f"{duration(row.seconds)} \u00b7 {row.share:.1%}") for row in self.rows
        }
        return svg(self._diagram(), heat)

    def _diagram(self) -> Diagram:
        found = msgspec.json.decode(self.manifest.diagram, type=Diagram | None)
        if found is None:
            raise ArtifactError(
                f"{self.manifest.model.name}: the artifact has no diagram, because {self.manifest.producer} "
                "built it; build it again with this farcall"
            )
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        """The heads of :meth:`cells`."""
        return (*_COLUMNS, *_RATES) if self.steps else _COLUMNS

    def cells(self) -> list[tuple[str, ...]]:
        """The regions as text: name, backend, nodes, time, share; those that take longest first.

        With steps, also GFLOP/s, GB/s, and the share of the roof.
        """
        by_time = sorted(self.rows, key=lambda row: -row.seconds)
        return [
            (
                row.name, row.backend, str(row.nodes), duration(row.seconds), f"{row.share:.1%}",
                *(self._rates(row) if self.steps else ()),
            )
            for row in by_time
        ]  # fmt: skip

    def step_cells(self) -> list[tuple[str, ...]]:
        """The steps as text: operator, node, region, time, share, GFLOP/s, GB/s, share of the roof.

        Those that take longest come first.
        """
        return [
            (
                step.operator, step.nodes[-1], step.region, duration(step.seconds), f"{step.share:.1%}",
                *self._rates(step),
            )
            for step in sorted(self.steps, key=lambda step: -step.seconds)
        ]  # fmt: skip

    def roof_share(self, one: ProfiledRegion | ProfiledStep) -> float | None:
        """The least time that the roof allows, as a part of the measured time; None if that is not known.

        It may be more than 1 where the caches hold what is read: the roof's bytes are those of memory.

        Args:
            one: one of ``rows`` or ``steps``.
        """
        if self.roof is None or not (one.operations or one.traffic) or not one.seconds:
            return None
        return self.roof.seconds(one.operations, one.traffic) / one.seconds

    def _rates(self, one: ProfiledRegion | ProfiledStep) -> tuple[str, str, str]:
        share, seconds = self.roof_share(one), max(one.seconds, 1e-9)
        rates = (
            f"{amount / seconds / 1e9:.1f}" if amount else "-" for amount in (one.operations, one.traffic)
        )
        return (*rates, "-" if share is None else f"{share:.0%}")  # type: ignore[return-value]

    def trace(self) -> bytes:
        """One call, as a trace for Perfetto (ui.perfetto.dev): regions one after another, steps inside.

        The times are those of the tables. Regions stand in the order in which they run.
        """
        events, start = [], 0.0
        for row in self.rows:
            steps = [step for step in self.steps if step.region == row.name]
            # A clock takes time, too, so that the steps may take longer than the region by itself.
            length = max(row.seconds, sum(step.seconds for step in steps))
            events.append(_event(row.name, "region", start, length, {"backend": row.backend}))
            inside = start
            for step in steps:
                facts = {"nodes": ", ".join(step.nodes), "operations": step.operations, "bytes": step.traffic}
                events.append(_event(step.operator, "step", inside, step.seconds, facts))
                inside += step.seconds
            start += length
        return msgspec.json.encode({"displayTimeUnit": "ns", "traceEvents": events})

    def __str__(self) -> str:
        numbers = [False, False, *([True] * (len(self.columns) - 2))]
        lines = [self.title, plain_table(numbers, [self.columns, *self.cells()])]
        if self.steps:
            lines += ["", self.step_title]
            lines.append(plain_table([*([False] * 3), *([True] * 5)], [STEP_COLUMNS, *self.step_cells()]))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The tables that notebooks show."""
        steps = table(self.step_title, STEP_COLUMNS, self.step_cells()) if self.steps else ""
        return table(self.title, self.columns, self.cells()) + steps

    @property
    def title(self) -> str:
        """The times of ``main`` and of all regions, in words."""
        total = duration(sum(row.seconds for row in self.rows))
        there = "in" if self.where == _HERE else "on"
        return f"main {there} {self.where}: {duration(self.main.min)}; its regions one by one: {total}"

    @property
    def step_title(self) -> str:
        """The time of all steps, and the roof, in words."""
        total = duration(sum(step.seconds for step in self.steps))
        peak = "not measured" if self.roof is None else str(self.roof)
        return f"steps in a call of main: {total}; roof of one core: {peak}"


def profile(
    artifact: str | os.PathLike[str] | Module, *args: Any, on: Session | None = None, **kwargs: Any
) -> Profile:
    """Measure each region of an artifact, with the values that it gets when ``main`` is called.

    ``main`` runs first. Then each region is called by itself on the results of those before it, as often as
    :func:`farcall.benchmark` needs for a time. Their memory stays in use until the last reader has run.

    An artifact of ``Plan.build(profile=True)`` also tells the time of each operator, in calls of ``main``.

    Args:
        artifact: the path of an artifact, or a module that was loaded from one.
        args: the arguments of ``main``, in order.
        on: the session on whose server to measure; default: this process.
        kwargs: arguments of ``main`` by name.

    Returns:
        The profile: ``print`` shows a table, :meth:`Profile.svg` draws the model in the colours of its times.

    Raises:
        ArtifactError: the file is no artifact, or was built by a version that gave regions no Signatures.
        UsageError: a region needs a size that no dim of the arguments shows.
    """
    path = Path(artifact.path if isinstance(artifact, Module) else artifact)
    manifest = inspect(path)
    if on is not None:
        return _There(manifest, on, path).profile(args, kwargs)
    return _Here(manifest, artifact if isinstance(artifact, Module) else load_module(path)).profile(
        args, kwargs
    )


class _Runner:
    """Calls the regions in order, with the values between them by name."""

    where = ""
    module: Any

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        # What is inside of a node is measured with it: nobody else has its inputs.
        self._regions = [region for region in manifest.regions if not region.inside]
        signatures = {region.name: region.signature for region in self._regions}
        self._signatures = {name: found for name, found in signatures.items() if found is not None}
        if len(self._signatures) < len(signatures):
            raise ArtifactError(
                f"{manifest.model.name}: {manifest.producer} built the artifact, and gave its regions no "
                "Signatures; build it again with this farcall"
            )
        self._last = {
            name: region.name
            for region in self._regions
            for name in _names(self._signatures[region.name].inputs)
        }

    def measure(self, name: str, args: Sequence[Any]) -> Timing:
        """Measure one function of the module."""
        raise NotImplementedError

    def profile(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Profile:
        """Measure ``main`` and every region."""
        self.module["main"](*args, **kwargs)  # checks the arguments, and names those that are wrong
        names = _names(self._manifest.functions["main"].signature.inputs)
        values = {**dict(zip(names, args, strict=False)), **kwargs}
        main = self.measure("main", self._raw("main", [values[name] for name in names]))
        values |= self._sizes(values)
        sizes = {name: value for name, value in values.items() if isinstance(value, int)}
        steps = self._steps(args, kwargs, main.min, sizes)
        timings = [self._step(region, values) for region in self._regions]
        roof = self.roof() if steps else None
        rows = _rows(self._regions, timings, steps)
        return Profile(self.where, main, rows, self._manifest, steps, roof)

    def _steps(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], seconds: float, sizes: Mapping[str, int]
    ) -> tuple[ProfiledStep, ...]:
        """The time of each step, in calls of ``main``, which takes about so many ``seconds``."""
        regions = self._manifest.regions
        infos = [(region.name, step) for region in regions for step in steps_of(region)]
        best = step_times(self.module, regions, lambda: self.module["main"](*args, **kwargs), seconds)
        total = max(sum(best), 1e-12)
        return tuple(
            ProfiledStep(
                region, step.operator, step.nodes, one, one / total,
                _amount(step.operations, sizes), _amount(step.bytes, sizes),
            )
            for (region, step), one in zip(infos, best, strict=True)
        )  # fmt: skip

    def roof(self) -> Roof | None:
        """The most that the machine does."""
        raise NotImplementedError

    def _step(self, region: RegionInfo, values: dict[str, Any]) -> Timing:
        """Measure a region, keep its results, and forget what no later region reads."""
        signature = self._signatures[region.name]
        inputs = _names(signature.inputs)
        args = [self._value(region.name, name, values) for name in inputs]
        timing = self.measure(region.name, self._raw(region.name, args))
        results = self.module[region.name](*args)
        outputs = _names(signature.outputs)
        values.update(zip(outputs, results if len(outputs) > 1 else [results], strict=True))
        for name in inputs:
            if self._last[name] == region.name:
                values.pop(name, None)
        return timing

    def _raw(self, name: str, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments as a function gets them from a timer, which knows no Signature."""
        function = self.module[name]
        is_plain = all(is_numeric(leaf) for leaf in function.signature.inputs)
        raw: Sequence[Any] = args if is_plain else function.abi.pack_inputs(*args)
        return raw

    def _sizes(self, values: Mapping[str, Any]) -> dict[str, int]:
        """The sizes that dims of the arguments show, under the names of the regions' parameters."""
        sizes: dict[str, int] = {}
        for spec in self._manifest.functions["main"].signature.inputs:
            dims = getattr(spec, "shape", None) or ()
            for dim, size in zip(dims, getattr(values[spec.name], "shape", ()), strict=False):
                sizes |= {f"size of {dim}": int(size)} | ({} if dim in values else {str(dim): int(size)})
        return sizes

    @staticmethod
    def _value(region: str, name: str, values: Mapping[str, Any]) -> Any:
        if name not in values:
            raise UsageError(
                f"region `{region}` needs `{name}`, a size that no dim of the model's arguments is; "
                "call the region by itself: benchmark(module[name], ...)"
            )
        return values[name]


class _Here(_Runner):
    where = _HERE

    def __init__(self, manifest: Manifest, module: Module) -> None:
        super().__init__(manifest)
        self.module = module

    def measure(self, name: str, args: Sequence[Any]) -> Timing:
        return TimingOptions.of(_OPTIONS).run_here(self.module[name], tuple(args))

    def roof(self) -> Roof | None:
        return roof(self._manifest.target.triple, None)


class _There(_Runner):
    def __init__(self, manifest: Manifest, session: Session, path: Path) -> None:
        super().__init__(manifest)
        self.module, self._session, self.where = session.load_module(path), session, session.url

    def profile(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Profile:
        named = {name: self._uploaded(value) for name, value in kwargs.items()}
        return super().profile([self._uploaded(arg) for arg in args], named)

    def measure(self, name: str, args: Sequence[Any]) -> Timing:
        timing: Timing = self.module.benchmark(name, *args, **_OPTIONS)
        return timing

    def roof(self) -> Roof | None:
        return roof(self._manifest.target.triple, self._session)

    def _uploaded(self, value: Any) -> Any:
        return self._session.tensor(value) if hasattr(value, "dtype") else value


def _names(leaves: Iterable[Any]) -> list[str]:
    return [leaf.name for leaf in leaves]


def _rows(
    regions: Sequence[RegionInfo], timings: Sequence[Timing], steps: Sequence[ProfiledStep]
) -> tuple[ProfiledRegion, ...]:
    total = max(sum(timing.min for timing in timings), 1e-12)
    own = {one.name: [step for step in steps if step.region == one.name] for one in regions}
    return tuple(
        ProfiledRegion(
            one.name, one.backend, one.nodes, one.operators, timing, timing.min / total,
            sum(step.operations for step in own[one.name]), sum(step.traffic for step in own[one.name]),
        )
        for one, timing in zip(regions, timings, strict=True)
    )  # fmt: skip


def _amount(amount: int | str, sizes: Mapping[str, int]) -> int:
    """The value of a number, or of an expression of sizes; 0 if a size is not known."""
    if isinstance(amount, int):
        return amount
    try:
        return int(evaluate(amount, sizes))
    except ValueError:
        return 0


def _event(
    name: str, kind: str, start: float, length: float, facts: Mapping[str, object]
) -> dict[str, object]:
    """A complete event of the format that Perfetto and chrome://tracing read; times in microseconds."""
    times = {"ts": start * 1e6, "dur": length * 1e6}
    return {"name": name, "cat": kind, "ph": "X", "pid": 1, "tid": 1, **times, "args": facts}
