"""Places nodes by measurement: times cuts of a model where they will run, and takes the fastest.

The first cut is that of the backends' order. Then regions, single matches and all nodes are kept from
their backend, one after another, as long as the time of the whole model falls. That time counts every
transfer once: a tensor that stays on a device between two regions is not moved, though each region alone
would move it. Times are kept in a file, by what is computed, the backends, the target and the device.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from farcall._logs import Log
from farcall.artifact._arguments import made_up
from farcall.artifact._figures import Figures, check_measuring, identity, key_of, place_of
from farcall.errors import (
    ConnectError,
    ConnectionLostError,
    ProtocolError,
    UnsupportedOperatorError,
    UsageError,
    WorkerCrashedError,
)
from farcall.library._why import CONTROL

if TYPE_CHECKING:
    import onnx_ir as ir

    from farcall.artifact import Plan
    from farcall.artifact._plan import Propose
    from farcall.backends.base import Backend
    from farcall.graph import Match, Partition, Region
    from farcall.graph._annotate import Answer
    from farcall.graph._partition import Body
    from farcall.rpc import Profile, Session

__all__ = ["Measured", "measured"]
__dir__ = __all__.copy

Meter: TypeAlias = (
    "Callable[[Plan], Mapping[str, float]]"  # seconds by name: each region of a plan, and `main`
)
_ROUNDS = 3
_OF_SESSIONS = (ConnectError, ConnectionLostError, ProtocolError, WorkerCrashedError)
_LOG = Log("placement")
_T = TypeVar("_T")
_Moves: TypeAlias = "dict[ir.Node, list[Answer]]"


def measured(
    *,
    on: Session | None = None,
    budget_s: float = 60.0,
    inputs: Mapping[str, Any] | None = None,
    target: str | None = None,
    devices: Mapping[str, Session | str] | None = None,
    targets: Mapping[str, str] | None = None,
    meter: Meter | None = None,
    figures: Path | str | None = None,
    gain: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> Measured:
    """A choice for ``fc.partition(..., choose=...)``: the fastest cut, by times that are measured.

    Args:
        on: the session on whose server to measure; default: this process.
        budget_s: seconds for all measurements. None begins that is not likely to end within them, by the
            longest one so far; but the first cut is always measured.
        inputs: arrays for the model's inputs; default: random ones, with 1 for every symbolic dim.
        target: for which to build, as ``plan.build`` takes it; default: that of a device which
            :func:`farcall.launch` started a server on, else this machine.
        devices: where the devices are that backends name by their option ``on``, as ``load_module`` takes
            them; of a server, its owner says that.
        targets: for which to build the regions on these devices, as ``plan.build(devices=...)`` takes them.
        meter: measures a plan instead: gives the seconds of each region by name, and those of the whole model
            as ``main``; without ``main``, the sum of the regions counts.
        figures: the file that keeps the times; default: one in the user's cache.
        gain: the least part of the time that another cut must save to be taken, such as 0.05.
        clock: seconds, by which the budget is counted.

    Raises:
        UsageError: ``gain`` is not from 0 to 1, ``on`` is no session, or ``budget_s`` is no number.
    """
    check_measuring(on, budget_s)
    if not 0 <= gain < 1:
        raise UsageError(
            f"gain: expected a part of the time, from 0 to less than 1, such as 0.05, got {gain!r}"
        )
    places = _Places(on, target, devices or {}, targets or {})
    return Measured(places, budget_s, inputs, meter, figures, gain, clock)


class _Places:
    """Where to measure, and what to build for there."""

    def __init__(
        self,
        on: Session | None,
        target: str | None,
        devices: Mapping[str, Session | str],
        targets: Mapping[str, str],
    ) -> None:
        self._on, self._devices, self._targets = on, devices, targets
        self._target = target or (on.target if on is not None else None)

    def __str__(self) -> str:
        from farcall.toolchain import Target

        devices = {name: place_of(on) for name, on in sorted(self._devices.items())}
        about = [devices, *sorted(self._targets.items())] if devices or self._targets else []
        return " ".join(map(str, (place_of(self._on), Target.parse(self._target), *about)))

    def profile(self, plan: Plan, inputs: Mapping[str, Any]) -> Profile:
        """Build a plan, load it there, and measure it with these inputs."""
        from farcall.library import load_module
        from farcall.rpc import profile

        with tempfile.TemporaryDirectory(prefix="farcall-measured-") as folder:
            artifact = plan.build(self._target, devices=self._targets)
            path = artifact.save(Path(folder) / "model.so")
            if self._on is not None:
                return profile(path, on=self._on, **inputs)
            module = load_module(path, devices={**artifact.sessions, **self._devices})
            return profile(module, **inputs)


class Measured:
    """Made by :func:`measured`."""

    def __init__(
        self,
        places: _Places,
        budget_s: float,
        inputs: Mapping[str, Any] | None,
        meter: Meter | None,
        figures: Path | str | None,
        gain: float,
        clock: Callable[[], float],
    ) -> None:
        self._places, self._inputs, self._clock, self._part = places, inputs, clock, 1 - gain
        self._budget_s, self._end, self._longest = budget_s, 0.0, 0.0
        self._meter, self._profiles = meter or self._profiled, meter is None
        sizes = {name: list(np.shape(value)) for name, value in (inputs or {}).items()}
        self._context = f"{places} {json.dumps(sizes, sort_keys=True)}"
        self._figures = Figures(figures)

    def __call__(self, propose: Propose) -> Plan:
        """The fastest plan of those that ``propose`` makes of nodes that backends cannot get."""
        self._end = self._clock() + self._budget_s
        kept: _Moves = {}
        first = best = propose(kept)
        known = len(self._figures)
        self._cost(first)
        improved = True
        while improved:
            improved = False
            for move in list(self._moves(best)):
                if self._clock() >= self._end:
                    break
                for moves in _added(kept, move):
                    tried = self._faster(propose, moves, best)
                    if tried is not None:
                        kept, best, improved = moves, tried, True
        if best is not first and len(self._figures) > known:
            best = self._confirmed(first, best)
        best.figures = {
            "main": self._cost(best),
            **{name: self._figures[key] for name, key in self._keys(best).items()},
        }
        return best

    def _confirmed(self, first: Plan, best: Plan) -> Plan:
        """The faster of two plans, measured in turn: the load of the machine may have changed meanwhile."""
        for plan in (first, best) * _ROUNDS:
            if self._has_time():
                self._measure(plan)
        return min(best, first, key=self._cost)

    def _faster(self, propose: Propose, moves: _Moves, best: Plan) -> Plan | None:
        """The plan of these moves, if it is faster than the best one.

        None also if no other backend takes the nodes, if its code cannot be built, loaded or run where the
        first cut can, or if there is no time to measure it. Other work on the machine may have slowed the
        best one when it was measured: it is measured once more beside a new one.
        """
        try:
            plan = propose(moves)
            is_new = not self._is_measured(plan)
            if is_new and not self._has_time():
                return None
            if is_new and self._is_faster(plan, best) and self._has_time():
                self._measure(best)
            return plan if self._is_faster(plan, best) else None
        except UnsupportedOperatorError:
            return None
        except Exception as error:  # a backend's code may raise anything when it runs
            of_a_region = self._profiles or isinstance(error, UsageError)
            if isinstance(error, _OF_SESSIONS) or not of_a_region:
                raise
            _LOG.info("a cut cannot be measured: %s", error)
            return None

    def _is_faster(self, plan: Plan, best: Plan) -> bool:
        return self._cost(plan) < self._cost(best) * self._part

    def _moves(self, plan: Plan) -> Iterator[_Moves]:
        """What can be kept from a backend; what may change most comes first.

        All nodes; regions that compute the same, together; matches that do; then each region by itself.
        """
        if len(plan.backends) < 2:
            return
        regions = [region for region in plan.regions if region.backend != CONTROL]
        nodes = [node for region in plan.regions for node in region.nodes]
        for backend in plan.backends:
            yield _without(backend, nodes)
        seconds = dict(self._seconds(plan.partition, self._keys(plan)))
        alike = _grouped(regions, lambda region: self._key(plan.backends, region, ()))
        for same in sorted(alike, key=lambda same: -sum(seconds[one.name] for one in same)):
            yield _without(same[0].backend, [node for region in same for node in region.nodes])
        parts = [(region, match) for region in regions if len(region.matches) > 1 for match in region.matches]
        for equal in _grouped(parts, lambda part: (part[0].backend, *_lines([part[1]]))):
            yield _without(equal[0][0].backend, [node for _, match in equal for node in match.nodes])
        for same in alike:
            for region in same if len(same) > 1 else ():
                yield _without(region.backend, region.nodes)

    def _seconds(
        self, part: Partition, keys: Mapping[str, str], around: float = 0.0
    ) -> Iterator[tuple[str, float]]:
        """The time of each region; that of the node around it, if it is inside of one."""
        for region in part.regions:
            seconds = self._figures[keys[region.name]] if region.name in keys else around
            yield region.name, seconds
            for body in part.inside.get(region.name, ()):
                yield from self._seconds(body.partition, keys, seconds)

    # ---- measuring

    def _cost(self, plan: Plan) -> float:
        if not self._is_measured(plan):
            self._measure(plan)
        return self._figures[self._whole(plan)]

    def _is_measured(self, plan: Plan) -> bool:
        return all(key in self._figures for key in (self._whole(plan), *self._keys(plan).values()))

    def _has_time(self) -> bool:
        return self._clock() + self._longest < self._end

    def _measure(self, plan: Plan) -> None:
        """Measure a plan. The least of all its measurements counts: other work only adds to them."""
        start = self._clock()
        found = self._meter(plan)
        self._longest = max(self._longest, self._clock() - start)
        _check_times(found, plan)
        main = float(found.get("main", sum(found.values())))
        took = {self._whole(plan): main} | {key: float(found[name]) for name, key in self._keys(plan).items()}
        for key, seconds in took.items():
            self._figures.add(key, seconds)
        self._figures.write()

    def _whole(self, plan: Plan) -> str:
        return self._wired(plan.backends, plan.partition)

    def _wired(self, backends: Mapping[str, Backend], part: Partition) -> str:
        """What a graph computes: its regions, and which values go from one to the other."""
        graph, numbers = part.model.graph, _Numbers()
        lines = [f"{numbers(graph.inputs)} -> {numbers(graph.outputs)}"]
        for region in part.regions:
            key = self._key(backends, region, part.inside.get(region.name, ()))
            lines.append(f"{key} {numbers(region.inputs)} -> {numbers(region.outputs)}")
        return key_of(*lines)

    def _profiled(self, plan: Plan) -> Mapping[str, float]:
        found = self._places.profile(plan, made_up(plan.signature, self._inputs or {}))
        return {"main": found.main.min} | {row.name: row.timing.min for row in found.rows}

    # ---- figures

    def _keys(self, plan: Plan) -> dict[str, str]:
        """The keys of the regions that are measured; what is inside of a node is measured with it."""
        part = plan.partition
        return {
            region.name: self._key(plan.backends, region, part.inside.get(region.name, ()))
            for region in part.regions
        }

    def _key(self, backends: Mapping[str, Backend], region: Region, inside: Sequence[Body]) -> str:
        """What a region computes, and by whom and where: equal keys take equal times."""
        bodies = [f"{body.attribute} {self._wired(backends, body.partition)}" for body in inside]
        return key_of(self._context, identity(backends[region.backend]), *_content(region), *bodies)


def _check_times(found: Any, plan: Plan) -> None:
    """Refuse what a meter gave.

    Raises:
        UsageError: a region has no time.
    """
    for region in plan.partition.regions:
        seconds = found.get(region.name) if isinstance(found, Mapping) else None
        if not isinstance(seconds, Real) or not float(seconds) >= 0:
            raise UsageError(
                f"meter: expected the seconds of each region by name, got {seconds!r} for `{region.name}`"
            )


class _Numbers:
    """Numbers of values in place of their names."""

    def __init__(self) -> None:
        self._found: dict[ir.Value, int] = {}

    def __call__(self, values: Iterable[ir.Value]) -> list[int]:
        return [self._found.setdefault(value, len(self._found)) for value in values]


def _without(backend: str, nodes: Sequence[ir.Node]) -> _Moves:
    from farcall.graph._annotate import Answer

    return {node: [Answer(backend, "measured", "another backend is faster here")] for node in nodes}


def _grouped(items: Iterable[_T], key: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Items with equal keys together, in the order of the first one of each group."""
    groups: dict[Hashable, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _added(kept: _Moves, move: _Moves) -> list[_Moves]:
    """A move beside the earlier ones of its nodes; and instead of them, which gives nodes back."""
    beside = {node: [*kept.get(node, ()), *answers] for node, answers in move.items()}
    ways = [{**kept, **beside}]
    return [*ways, {**kept, **move}] if beside != move else ways


def _content(region: Region) -> list[str]:
    """What a region computes, as lines without the model's names."""
    return _lines(region.matches, region.outputs)


def _lines(matches: Iterable[Match], outputs: Sequence[ir.Value] = ()) -> list[str]:
    """The graph of some matches as lines, without the model's names."""
    numbers: dict[Any, int] = {}

    def shown(value: ir.Value | None) -> str:
        if value is None:
            return "-"
        constant = " constant" if value.const_value is not None else ""
        return f"{numbers.setdefault(value, len(numbers))}:{value.dtype}{value.shape}{constant}"

    lines = []
    for match in matches:
        lines.append(match.pattern)
        for node in match.nodes:
            given = ", ".join(map(shown, node.inputs))
            made = ", ".join(map(shown, node.outputs))
            attributes = sorted(
                f"{name}={one.value!r}"
                for name, one in node.attributes.items()
                if one.type.name not in ("GRAPH", "GRAPHS")
            )
            lines.append(f"{node.domain}::{node.op_type} {attributes} ({given}) -> ({made})")
    return [*lines, ", ".join(map(shown, outputs))]
