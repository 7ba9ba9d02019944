"""Measures the regions of an artifact one by one, here or on a server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from farcall._core import Module
from farcall._html import table
from farcall._texts import duration
from farcall.abi._leaves import is_numeric
from farcall.drawing._diagram import Diagram
from farcall.errors import ArtifactError, UsageError
from farcall.library import inspect, load_module
from farcall.rpc.client._timing import Timing, TimingOptions

if TYPE_CHECKING:
    from farcall.library._manifest import Manifest, RegionInfo
    from farcall.rpc.client._session import Session

_OPTIONS = {"repeat": 5, "min_repeat_ms": 2}
_COLUMNS = ("region", "backend", "nodes", "time", "share")
_HERE = "this process"


@dataclass(frozen=True)
class ProfiledRegion:
    """A region and its measured time. ``share`` is its part of the time of all regions, from 0 to 1."""

    name: str
    backend: str
    nodes: int
    operators: Mapping[str, int]
    timing: Timing
    share: float


@dataclass(frozen=True)
class Profile:
    """The times of an artifact's regions. Made by :func:`profile`.

    Times are the shortest of several measurements, since other work on the machine only adds to them.

    ``main`` is the time of the whole model. It may be less than the sum of the regions: a region that is
    called alone checks its arguments and allocates its results.
    """

    where: str
    main: Timing
    rows: tuple[ProfiledRegion, ...]
    manifest: Manifest

    def svg(self) -> str:
        """The picture of the model, in which each region has the colour of its share.

        Raises:
            ArtifactError: the artifact was built by a version of farcall that put no diagram into it.
        """
        from farcall.drawing._heat import Heat
        from farcall.drawing._svg import svg

        heat = {
            row.name: Heat(row.share, f"{duration(row.timing.min)} \u00b7 {row.share:.1%}")
            for row in self.rows
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

    def cells(self) -> list[tuple[str, ...]]:
        """The rows as text: region, backend, nodes, time, share; those that take longest first."""
        by_time = sorted(self.rows, key=lambda row: -row.timing.min)
        return [
            (row.name, row.backend, str(row.nodes), duration(row.timing.min), f"{row.share:.1%}")
            for row in by_time
        ]

    def __str__(self) -> str:
        cells = [_COLUMNS, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        rows = [
            "  ".join([*map(str.ljust, row[:2], widths[:2]), *map(str.rjust, row[2:], widths[2:])])
            for row in cells
        ]
        return "\n".join([self.title, *rows])

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        return table(self.title, _COLUMNS, self.cells())

    @property
    def title(self) -> str:
        """The times of ``main`` and of all regions, in words."""
        total = duration(sum(row.timing.min for row in self.rows))
        there = "in" if self.where == _HERE else "on"
        return f"main {there} {self.where}: {duration(self.main.min)}; its regions one by one: {total}"


def profile(
    artifact: str | os.PathLike[str] | Module, *args: Any, on: Session | None = None, **kwargs: Any
) -> Profile:
    """Measure each region of an artifact, with the values that it gets when ``main`` is called.

    ``main`` runs first. Then each region is called by itself on the results of those before it, as often as
    :func:`farcall.benchmark` needs for a time. Their memory stays in use until the last reader has run.

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
        timings = [self._step(region, values) for region in self._regions]
        return Profile(self.where, main, _rows(self._regions, timings), self._manifest)

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

    def _uploaded(self, value: Any) -> Any:
        return self._session.tensor(value) if hasattr(value, "dtype") else value


def _names(leaves: Iterable[Any]) -> list[str]:
    return [leaf.name for leaf in leaves]


def _rows(regions: Sequence[RegionInfo], timings: Sequence[Timing]) -> tuple[ProfiledRegion, ...]:
    total = max(sum(timing.min for timing in timings), 1e-12)
    return tuple(
        ProfiledRegion(one.name, one.backend, one.nodes, one.operators, timing, timing.min / total)
        for one, timing in zip(regions, timings, strict=True)
    )
