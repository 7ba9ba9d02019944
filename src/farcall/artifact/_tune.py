"""Finds the fastest way of each step of a plan, by times that are measured where the plan will run.

A backend says in which ways it could compute a step (``Choice``). A build measures one way of every problem
at once: as many builds are made as the problem with most ways has, and one of the best ways, beside the
first. Times are kept in a file, so that a problem which any model had is not measured again.
"""

from __future__ import annotations

import copy
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farcall._core import set_threads
from farcall._progress import Phase
from farcall._texts import count
from farcall.artifact._arguments import made_up
from farcall.artifact._figures import Figures, identity, key_of, place_of
from farcall.artifact._generate import generate
from farcall.backends.base import Choice, RegionCode
from farcall.errors import UsageError
from farcall.library._step_times import step_times, steps_of
from farcall.toolchain import Target

if TYPE_CHECKING:
    from farcall._progress import Report
    from farcall.artifact._plan import Plan
    from farcall.backends.base import Backend
    from farcall.library._manifest import Manifest
    from farcall.rpc import Session

_GAIN = 0.97  # the part of the first way's time from which another one is taken
_Ways = dict[tuple[str, str], str]  # backend and problem -> way


@dataclass(frozen=True)
class Tuning:
    """How to tune: what ``Plan.build(tune=True)`` is told.

    Args:
        on: the session on whose server to measure; None: this process.
        budget_s: seconds for all measurements. None begins that is not likely to end within them, by the
            longest one so far.
        inputs: arrays for the model's inputs, by name; the others get random ones.
        figures: the file that keeps the times; None: one in the user's cache.
        clock: seconds, by which the budget is counted.
    """

    on: Session | None = None
    budget_s: float = 60.0
    inputs: Mapping[str, Any] | None = None
    figures: str | os.PathLike[str] | None = None
    clock: Callable[[], float] = time.monotonic


def tuned(plan: Plan, target: Target, how: Tuning, progress: Report | None) -> Plan:
    """The same plan, whose backends take the fastest ways that were measured."""
    return _Tuner(plan, target, how).run(progress)


class _Tuner:
    def __init__(self, plan: Plan, target: Target, how: Tuning) -> None:
        here = Target.parse(None)
        if how.on is None and target.arch != here.arch:
            raise UsageError(
                f"tune=True measures on the machine that runs the model, but this one ({here}) runs no code "
                f"for {target}; pass on=session of a server on such a machine"
            )
        self._plan, self._target, self._how = plan, target, how
        self._arguments = made_up(plan.signature, how.inputs or {})
        self._figures = Figures(how.figures)
        self._choices = self._find_choices()
        self._longest = self._end = 0.0

    def run(self, progress: Report | None) -> Plan:
        """The plan by the fastest ways, of those that could be measured in time."""
        self._end = self._how.clock() + self._how.budget_s
        rounds = list(self._rounds())
        problems = count(len(self._choices), "operator")
        phase = Phase(progress, "tune", len(rounds) + 2, "builds", f"tuning {problems}")
        for ways in rounds:
            self._measure(ways)
            phase.step(f"measured {phase.done + 1} of {len(rounds)} ways")
        best = self._best()
        if rounds and best:  # once more beside each other: the load of the machine may have changed
            self._measure({})
            self._measure(best)
            best = self._best()
        phase.end(f"{len(best)} of {problems} by another way")
        return self._with(best)

    def _find_choices(self) -> dict[tuple[str, str], Choice]:
        """The choices of all steps, by backend and problem."""
        codes = generate(self._plan, self._target, profile=True)
        found: dict[tuple[str, str], Choice] = {}
        for region in self._plan.regions:
            code = codes[region.name]
            for work in code.work if isinstance(code, RegionCode) else ():
                if work.choice:
                    found.setdefault((region.backend, work.choice.problem), work.choice)
        return found

    def _rounds(self) -> Iterator[_Ways]:
        """Ways to measure, until each problem has a time for every way."""
        unknown = {
            problem: [way for way in choice.ways if self._key(problem, way) not in self._figures]
            for problem, choice in self._choices.items()
        }
        while any(unknown.values()):
            yield {problem: ways.pop(0) for problem, ways in unknown.items() if ways}

    def _best(self) -> _Ways:
        """The ways that are faster than the first ones."""
        found: _Ways = {}
        for problem, choice in self._choices.items():
            times = {
                way: self._figures[key]
                for way in choice.ways
                if (key := self._key(problem, way)) in self._figures
            }
            first = times.get(choice.ways[0])
            best = min(times, key=lambda way: times[way], default="")
            if first is not None and times[best] < _GAIN * first:
                found[problem] = best
        return found

    def _key(self, problem: tuple[str, str], way: str) -> str:
        backend, text = problem
        where = place_of(self._how.on)
        threads = "" if self._how.on is not None else f"{_threads()} threads"
        sizes = sorted(
            f"{name}{list(getattr(value, 'shape', ()))}" for name, value in self._arguments.items()
        )
        return key_of(
            where, threads, str(self._target), *sizes, identity(self._plan.backends[backend]), text, way
        )

    def _with(self, ways: _Ways) -> Plan:
        """The plan whose backends take these ways."""

        def tuned_backend(backend: Backend) -> Backend:
            own = {problem: way for (name, problem), way in ways.items() if name == backend.name}
            made = copy.copy(backend)
            made.options = {**backend.options, "ways": own}
            return made if own else backend

        backends = {name: tuned_backend(backend) for name, backend in self._plan.backends.items()}
        return type(self._plan)(self._plan.partition, backends, self._plan.model)

    def _measure(self, ways: _Ways) -> None:
        """Build the plan with these ways, and keep the time of each problem; nothing if the time is up."""
        start = self._how.clock()
        if start + self._longest >= self._end:
            return
        with tempfile.TemporaryDirectory(prefix="farcall-tune-") as folder:
            artifact = self._with(ways).build(self._target, profile=True)
            on = self._how.on
            module: Any = on.load_module(artifact.save(Path(folder) / "model.so")) if on else artifact.load()
            arguments = {name: self._there(value) for name, value in self._arguments.items()}
            took = _times(module, artifact.manifest, lambda: module["main"](**arguments))
        for backend, problem, way, seconds in took:
            self._figures.add(self._key((backend, problem), way), seconds)
        self._figures.write()
        self._longest = max(self._longest, self._how.clock() - start)

    def _there(self, value: Any) -> Any:
        on = self._how.on
        return on.tensor(value) if on and hasattr(value, "dtype") else value


def _threads() -> int | str:
    """On how many threads calls of this thread compute; those of a server are its own."""
    set_here = set_threads(None)
    set_threads(set_here)
    return set_here or os.environ.get("FARCALL_THREADS", "") or len(os.sched_getaffinity(0))


def _times(
    module: Any, manifest: Manifest, call: Callable[[], object]
) -> Iterator[tuple[str, str, str, float]]:
    """Backend, problem, way and seconds of each node of a problem: its steps together."""
    call()  # touches the memory
    begin = time.perf_counter()
    call()
    regions = manifest.regions
    times = step_times(module, regions, call, time.perf_counter() - begin)
    steps = [(region.backend, step) for region in regions for step in steps_of(region)]
    found: dict[tuple[str, str, str, tuple[str, ...]], float] = {}
    for (backend, step), seconds in zip(steps, times, strict=True):
        if step.problem:
            place = (backend, step.problem, step.way, step.nodes)
            found[place] = found.get(place, 0) + seconds
    for (backend, problem, way, _), seconds in found.items():
        yield backend, problem, way, seconds
