"""The times of the steps of a library's regions, which count them (``Plan.build(profile=True)``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from farcall.library._manifest import RegionInfo, StepInfo

_LEAST_CALLS, _MOST_CALLS, _SECONDS = 7, 51, 0.5


def steps_of(region: RegionInfo) -> tuple[StepInfo, ...]:
    """The steps of a region; empty if it does not count their time."""
    return () if region.steps is msgspec.UNSET else region.steps


def step_times(
    module: Any, regions: Iterable[RegionInfo], call: Callable[[], object], seconds: float
) -> list[float]:
    """The least time of each step, of all regions in order, in several calls of ``main``.

    Args:
        module: the loaded library, here or on a server.
        regions: those of its manifest.
        call: calls ``main``.
        seconds: about how long a call takes; it decides how many are made.
    """
    places = [(region.name, number) for region in regions for number in range(len(steps_of(region)))]
    readers = [(module[f"{name}_steps"], number) for name, number in places]
    best = [math.inf] * len(readers)
    calls = max(_LEAST_CALLS, min(_MOST_CALLS, round(_SECONDS / max(seconds, 1e-9)))) if readers else 0
    for _ in range(calls):
        for reader, number in readers:
            reader(number)  # sets it back
        call()
        best = [
            min(least, reader(number) / 1e9) for least, (reader, number) in zip(best, readers, strict=True)
        ]
    return best
