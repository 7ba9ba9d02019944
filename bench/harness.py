"""How the benchmarks measure: alternating rounds, medians, ratios.

The machines are noisy, so an absolute time means little. In each round, all contenders of a row run in turn.
The slower half of the rounds, by the sum over all contenders, is left out, because the machine was then busy
with other work. The result is the ratio of the medians over the other half. The spread is (third quartile -
first quartile) / median of farcall's rounds.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Clock = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    ``reach`` is the limit that we set ourselves: on ``ours`` in seconds, or on the ratio to ``rival``.
    Where ``unit`` is ``B``, ``ours`` and ``theirs`` are bytes of memory.
    """

    work: str
    ours: float  # seconds, median
    spread: float = 0.0
    rival: str = ""
    theirs: float | None = None  # seconds, median
    reach_ratio: float | None = None
    reach_seconds: float | None = None
    unit: Literal["s", "B"] = "s"

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.ours / self.theirs

    @property
    def met(self) -> bool | None:
        """Whether this run kept the limit; None without a limit."""
        if self.reach_ratio is not None and self.ratio is not None:
            return self.ratio <= self.reach_ratio
        if self.reach_seconds is not None:
            return self.ours <= self.reach_seconds
        return None


def loops(call: Callable[[], object], seconds: float = 0.01, clock: Clock = time.perf_counter) -> int:
    """How many calls take about ``seconds``. The first call, which may import modules, is not timed."""
    call()
    count = 1
    while True:
        start = clock()
        for _ in range(count):
            call()
        took = clock() - start
        if took >= seconds / 4:
            return max(1, round(count * seconds / took))
        count *= 4


def in_turn(
    contenders: Mapping[str, Callable[[], object]], rounds: int = 61, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds per call, by contender and round, of the quieter half; contenders alternate in each round.

    ``clock`` is another one where other programs must not count: ``time.process_time``.
    """
    counts = {name: loops(call, clock=clock) for name, call in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in contenders.items():
                count = range(counts[name])
                start = clock()
                for _ in count:
                    call()
                times[name].append((clock() - start) / counts[name])
    finally:
        gc.enable()
    return quieter_half(times)


def blocks(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """As :func:`in_turn`, for contenders that measure themselves, perhaps in another process."""
    for measure in contenders.values():
        measure()  # warms up
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            times[name].append(measure())
    return quieter_half(times)


def once(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def median_call(call: Callable[[], object], count: int) -> float:
    """The median of ``count`` calls, each timed."""
    clock, times = time.perf_counter, []
    for _ in range(count):
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times)


def quieter_half(times: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """The half of the rounds with the least total time, each contender relative to its own median."""
    medians = {name: statistics.median(samples) for name, samples in times.items()}
    rounds = range(len(next(iter(times.values()))))
    loads = [sum(samples[i] / medians[name] for name, samples in times.items()) for i in rounds]
    quiet = sorted(rounds, key=loads.__getitem__)[: (len(rounds) + 1) // 2]
    return {name: [samples[i] for i in quiet] for name, samples in times.items()}


def spread(samples: list[float]) -> float:
    """Interquartile range divided by the median."""
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / middle


def rows(
    work: str,
    contenders: Mapping[str, Callable[[], object]],
    *,
    ratios: Mapping[str, float] | None = None,
    seconds: float | None = None,
    rounds: int = 61,
) -> list[Row]:
    """Rows that compare ``contenders["farcall"]`` with each other one.

    Args:
        work: what is done.
        contenders: name -> a call without arguments that does the work once.
        ratios: rival -> the largest ratio that we allow ourselves.
        seconds: the largest time that we allow ourselves, on the first row.
    """
    return rows_of(work, in_turn(contenders, rounds), ratios=ratios, seconds=seconds)


def rows_of(
    work: str,
    times: Mapping[str, list[float]],
    *,
    ratios: Mapping[str, float] | None = None,
    seconds: float | None = None,
) -> list[Row]:
    """Rows from measured ``times``, as the functions above return them; see :func:`rows`."""
    medians = {name: statistics.median(samples) for name, samples in times.items()}
    rivals = [name for name in times if name != "farcall"]
    ours, ours_spread = medians["farcall"], spread(times["farcall"])
    result = [
        Row(work, ours, ours_spread, rival, medians[rival], reach_ratio=(ratios or {}).get(rival))
        for rival in rivals
    ]
    if seconds is not None:
        result.insert(0, Row(work, ours, ours_spread, reach_seconds=seconds))
    return result
