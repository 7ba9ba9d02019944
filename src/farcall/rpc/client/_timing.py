"""Measures how long a function takes, in the process that runs it."""

from __future__ import annotations

import math
import statistics
import struct
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, SupportsIndex

from farcall import _core, _html
from farcall._progress import Phase, Report
from farcall._suggest import did_you_mean
from farcall._texts import duration
from farcall.errors import ProtocolError

if TYPE_CHECKING:
    from farcall.rpc.client._remote import Remote

_LEAST_MS = 10  # of one measurement, if the caller does not say how many calls it makes
_WIDTH = 40  # characters of the histogram's longest bar


@dataclass(frozen=True)
class Timing:
    """Seconds per call, one number for each repeat."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean of the results, in seconds."""
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        """The median of the results, in seconds."""
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        """The shortest result, in seconds."""
        return min(self.results)

    @property
    def max(self) -> float:
        """The longest result, in seconds."""
        return max(self.results)

    @property
    def std(self) -> float:
        """Standard deviation over the repeats (of the population, as in TVM)."""
        return statistics.pstdev(self.results)

    def histogram(self, bins: int = 10) -> str:
        """The distribution as text, one line for each bin.

        Raises:
            ValueError: there are no bins.
        """
        if bins < 1:
            raise ValueError(f"histogram: bins must be at least 1, got {bins}")
        low, high = self.min, self.max
        if high == low:
            return f"{duration(low):>9} | {'#' * _WIDTH} {len(self.results)}"
        counts = [0] * bins
        for value in self.results:
            counts[min(int((value - low) / (high - low) * bins), bins - 1)] += 1
        step, most = (high - low) / bins, max(counts)
        return "\n".join(
            f"{duration(low + i * step):>9} | {'#' * math.ceil(_WIDTH * n / most):<{_WIDTH}} {n}"
            for i, n in enumerate(counts)
        )

    def __str__(self) -> str:
        numbers = "  ".join(f"{name} {duration(value)}" for name, value in self._numbers())
        return f"{numbers}  ({len(self.results)} repeat{'s' * (len(self.results) != 1)})"

    def __repr__(self) -> str:
        return f"<farcall timing: {self}>"

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        count = len(self.results)
        title = f"Seconds per call, of {count} repeat{'s' * (count != 1)}"
        rows = [(name, duration(value)) for name, value in self._numbers()]
        return _html.table(title, (), rows) + _html.pre(self.histogram())

    def _numbers(self) -> list[tuple[str, float]]:
        return [(name, getattr(self, name)) for name in ("mean", "median", "min", "max", "std")]


@dataclass(frozen=True, kw_only=True)
class TimingOptions:
    """How to measure. An extra first call warms up and is not counted.

    If :func:`benchmark` is given no ``number``, each measurement makes as many calls as take 10 ms.

    Raises:
        ValueError: a number is out of range.
    """

    number: int = 1  # calls in one measurement; the result is their mean
    repeat: int = 10  # measurements
    min_repeat_ms: int = 0  # `number` grows until a measurement takes this long
    cooldown_interval_ms: int = 0  # a pause between measurements
    repeats_to_cooldown: int = 1  # measurements from one pause to the next
    cache_flush_bytes: int = 0  # memory that is written before each measurement, to empty the caches
    limit_zero_time_iterations: int = 100  # measurements of zero length before `number` grows no more
    preprocess: str = ""  # name of a function that is called with the arguments before each measurement

    @classmethod
    def of(cls, options: dict[str, Any]) -> TimingOptions:
        """Options from the keywords of a ``benchmark``.

        Raises:
            TypeError: there is no such option.
        """
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                meant = did_you_mean(name, known)
                raise TypeError(f"benchmark has no option `{name}`{meant}; there are {', '.join(known)}")
        return cls(**options if "number" in options else {"min_repeat_ms": _LEAST_MS, **options})

    def __post_init__(self) -> None:
        for field in fields(self):
            value, kind = getattr(self, field.name), str if field.name == "preprocess" else SupportsIndex
            if not isinstance(value, kind):
                words = "the name of a function" if kind is str else "a whole number"
                raise TypeError(f"benchmark: {field.name} is {words}, got {value!r:.60}")
        for name in ("number", "repeat", "limit_zero_time_iterations", "repeats_to_cooldown"):
            if getattr(self, name) < 1:
                raise ValueError(f"benchmark: {name} must be at least 1, got {getattr(self, name)}")
        for name in ("min_repeat_ms", "cooldown_interval_ms", "cache_flush_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"benchmark: {name} must not be negative, got {getattr(self, name)}")

    def _numbers(self) -> tuple[int, ...]:
        """The numbers in the argument order of TVM's ``runtime.RPCTimeEvaluator``."""
        return (
            self.number,
            self.repeat,
            self.min_repeat_ms,
            self.limit_zero_time_iterations,
            self.cooldown_interval_ms,
            self.repeats_to_cooldown,
            self.cache_flush_bytes,
        )

    def run(
        self, remote: Remote, module: Any, name: str, args: tuple[Any, ...], progress: Report | None = None
    ) -> Timing:
        """Measure the function ``name`` of a remote module, or (None) one that the server exports.

        ``progress`` is told about the phase ``measure``.
        """
        if progress is not None:
            return self._each(name, progress, lambda one: one.run(remote, module, name, args))
        there = tuple(_upload(remote, arg) for arg in args)
        device = _device_of(there)
        evaluator = remote.call_for(
            _core.Function,
            "runtime.RPCTimeEvaluator",
            module,
            name,
            device.dlpack_device_type(),
            device.index,
            *self._numbers(),
            self.preprocess,
        )
        return _decode(evaluator(*there), self.repeat, name)

    def run_here(
        self, function: Callable[..., Any], args: tuple[Any, ...], progress: Report | None = None
    ) -> Timing:
        """Measure ``function`` in this process; ``progress`` is told about the phase ``measure``."""
        if progress is not None:
            name = str(getattr(function, "name", "") or getattr(function, "__name__", "the function"))
            return self._each(name, progress, lambda one: one.run_here(function, args))
        before = _core.get_global_func(self.preprocess) if self.preprocess else None
        native = function if isinstance(function, _core.Function) else _core.Function(function)
        evaluator = _core.time_evaluator(native, before, *self._numbers())
        return _decode(evaluator(*args), self.repeat, native.name)

    def _each(self, name: str, progress: Report, measure: Callable[[TimingOptions], Timing]) -> Timing:
        """Measure one repeat at a time, and report each as a step of the phase ``measure``."""
        results: tuple[float, ...] = ()
        phase = Phase(progress, "measure", self.repeat, "repeats", name)
        for repeat in range(1, self.repeat + 1):
            pause = 0 if repeat % self.repeats_to_cooldown else self.cooldown_interval_ms
            one = replace(self, repeat=1, repeats_to_cooldown=1, cooldown_interval_ms=pause)
            results += measure(one).results
            phase.step(f"{name}: {duration(results[-1])}")
        return Timing(results)


def benchmark(
    function: Callable[..., Any], *args: Any, progress: Report | None = None, **options: Any
) -> Timing:
    """Measure a function of this process; ``session.benchmark`` measures those of a server.

    Args:
        function: a Function, or any callable.
        args: its arguments.
        progress: called with each :class:`farcall.Progress` of the phase ``measure``, in repeats. Each repeat
            then warms up for itself.
        options: see :class:`TimingOptions`.

    Returns:
        Seconds per call, one number for each repeat. The loop is native: an empty kernel takes about 2 ns.
    """
    return TimingOptions.of(options).run_here(function, args, progress)


def _upload(remote: Remote, arg: Any) -> Any:
    """Copy a local tensor to the server, before the clock starts."""
    if isinstance(arg, _core.Tensor):
        return (
            arg
            if arg.device.dlpack_device_type() >= _core.REMOTE_STEP
            else remote.endpoint.tensor(arg, "cpu:0")
        )
    return remote.endpoint.tensor(arg, "cpu:0") if hasattr(arg, "__dlpack__") else arg


def _device_of(args: tuple[Any, ...]) -> _core.Device:
    """The device of the first tensor, by the server's numbers: its clock measures."""
    for arg in args:
        if isinstance(arg, _core.Tensor):
            return _core.Device(arg.device.dlpack_device_type() % _core.REMOTE_STEP, arg.device.index)
    return _core.Device("cpu", 0)


def _decode(data: object, repeat: int, name: str) -> Timing:
    if not isinstance(data, bytes) or len(data) != 8 * repeat:
        raise ProtocolError(
            f"the measurement of `{name}` gave {data!r:.60}, expected {repeat} numbers of 8 bytes"
        )
    results = struct.unpack(f"<{repeat}d", data)
    if not all(math.isfinite(seconds) and seconds >= 0 for seconds in results):
        raise ProtocolError(f"the measurement of `{name}` gave {results!r:.60}, expected seconds")
    return Timing(results)
