"""Timing functions on the machine that runs them, and the printed results."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import farcall as fc
from farcall import _core
from farcall.rpc import Server, Session, Timing, TimingOptions, benchmark, connect
from farcall.rpc.client._timing import _decode

from ..waiting import SECONDS, at_some_speed
from .servers import INIT


def test_a_remote_function(session: Session) -> None:
    timing = session.benchmark("test.nop", number=20, repeat=3)
    assert len(timing.results) == 3
    assert 0 < timing.min <= timing.median <= timing.max
    with pytest.raises(Exception, match=r"test\.missing"):
        session.benchmark("test.missing")


def test_a_remote_module(session: Session, kernels: Path) -> None:
    module = session.load_module(kernels)
    x, out = np.arange(4, dtype="float32"), session.empty((4,))
    timing = module.benchmark("add_one", x, out, number=5, repeat=2)
    assert len(timing.results) == 2
    np.testing.assert_array_equal(out.numpy(), x + 1)


def test_failures_are_the_function_s(session: Session) -> None:
    with pytest.raises(ValueError, match="reason"):
        session.benchmark("test.fail", "ValueError", "reason")
    assert session.get_function("test.add")(1, 1) == 2


def count(calls: list[str]) -> tuple[Any, Any]:
    def function(*args: int) -> None:
        calls.append("call")

    def before(*args: int) -> None:
        calls.append("before")

    return _core.Function(function), _core.Function(before)


def test_calls_are_counted() -> None:
    calls: list[str] = []
    function, before = count(calls)
    data = _core.time_evaluator(function, before, 3, 2, 0, 1, 0, 1, 0)(1, 2)
    assert calls == ["call", *(["before", "call", "call", "call"] * 2)]
    assert len(struct.unpack("<2d", data)) == 2


def test_the_number_grows_until_it_takes_long_enough() -> None:
    def attempt(scale: float) -> None:
        calls: list[str] = []
        function, _ = count(calls)
        _core.time_evaluator(function, None, 1, 1, int(2 * scale), 100, 0, 1, 0)()
        assert len(calls) > 100  # of a few hundred nanoseconds, in 2 ms
        timing = benchmark(lambda: None, number=1, repeat=5, min_repeat_ms=int(scale))
        assert 0 < timing.min < 1e-3

    at_some_speed(attempt, AssertionError)


def test_caches_are_flushed_and_pauses_kept() -> None:
    timing = benchmark(
        lambda: None,
        number=1,
        repeat=4,
        cache_flush_bytes=1 << 16,
        cooldown_interval_ms=1,
        repeats_to_cooldown=2,
    )
    assert len(timing.results) == 4


def test_the_rules_of_a_measurement() -> None:
    """One call warms up; each measurement, also one that was too short, is prepared; `number` stays grown."""

    def attempt(scale: float) -> None:
        calls: list[str] = []
        _, before = count(calls)

        def slow() -> None:
            calls.append("call")
            until = time.monotonic() + 0.0004 * scale
            while time.monotonic() < until:
                pass

        data = _core.time_evaluator(_core.Function(slow), before, 1, 3, int(2 * scale), 100, 0, 1, 0)()
        results = struct.unpack("<3d", data)
        warm, *sizes = [group.count("call") for group in " ".join(calls).split("before")]
        assert (warm, sizes[0]) == (1, 1)
        assert sizes == sorted(sizes)
        assert all(0.002 * scale / sizes[-1] <= seconds for seconds in results)
        assert all(seconds >= 0.0004 * scale for seconds in results)
        assert len(sizes) >= 4  # three that count, behind one that was too short

    at_some_speed(attempt, AssertionError)


def test_the_clock_may_stand_still() -> None:
    """Measurements of zero length end after so many: of a kernel of 2 ns, by a clock of 1 ns."""
    timing = benchmark(lambda: None, number=1, repeat=2, limit_zero_time_iterations=1)
    assert all(seconds >= 0 for seconds in timing.results)


def test_there_is_no_pause_behind_the_last(session: Session) -> None:
    hour = 3_600_000
    assert len(benchmark(lambda: None, repeat=1, cooldown_interval_ms=hour).results) == 1
    options = {"repeat": 3, "repeats_to_cooldown": 3, "cooldown_interval_ms": hour}
    assert len(session.benchmark("test.nop", **options).results) == 3


def test_through_another_server(server: Server, kernels: Path) -> None:
    with (
        Server(init=INIT, key="second") as second,
        connect(second.url, "second", via=[(server.url, "k")], timeout=SECONDS) as far,
    ):
        x, out = np.arange(4, dtype="float32"), far.empty((4,))
        timing = far.load_module(kernels).benchmark("add_one", x, out, number=5, repeat=2)
        assert len(timing.results) == 2
        np.testing.assert_array_equal(out.numpy(), x + 1)
        assert (
            len(far.benchmark("test.length", [1.0], preprocess="test.count", number=1, repeat=3).results) == 3
        )


@pytest.mark.parametrize(
    "data", [b"", bytes(7), struct.pack("<d", -1), struct.pack("<d", float("nan")), 7, None]
)
def test_results_that_are_none(data: object) -> None:
    with pytest.raises(fc.errors.ProtocolError, match="the measurement of `f` gave"):
        _decode(data, 1, "f")


def test_preprocess_by_name(session: Session) -> None:
    assert len(session.benchmark("test.count", 1, number=2, preprocess="test.count").results) == 10
    with pytest.raises(Exception, match="nothing"):
        session.benchmark("test.nop", preprocess="nothing")


@pytest.mark.parametrize(
    "options",
    [
        {"number": 0},
        {"repeat": 0},
        {"min_repeat_ms": -1},
        {"cache_flush_bytes": -1},
        {"repeats_to_cooldown": 0},
    ],
    ids=str,
)
def test_numbers_out_of_range(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        TimingOptions(**options)


@pytest.mark.parametrize("options", [{"number": 1.5}, {"repeat": "2"}, {"preprocess": None}], ids=str)
def test_options_of_another_type(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=rf"benchmark: {next(iter(options))} is (a whole number|the name of)"):
        benchmark(lambda: None, **options)
    assert len(benchmark(lambda: None, number=np.int64(2)).results) == 10


def test_numbers_that_a_foreign_client_sends(session: Session) -> None:
    evaluator = session.get_function("runtime.RPCTimeEvaluator")
    for numbers in ((0, 1), (1, 0), (1, 1 << 40), (-1, 1)):
        with pytest.raises(ValueError, match="number and repeat"):
            evaluator(None, "test.nop", 1, 0, *numbers, 0, 100, 0, 1, 0, "")
    with pytest.raises(ValueError, match="no device cuda:0"):
        evaluator(None, "test.nop", 2, 0, 1, 1, 0, 100, 0, 1, 0, "")
    with pytest.raises(TypeError, match="expected a module"):
        evaluator(7, "test.nop", 1, 0, 1, 1, 0, 100, 0, 1, 0, "")


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=20))
def test_statistics(results: list[float]) -> None:
    timing = Timing(tuple(results))
    assert timing.min <= timing.median <= timing.max
    assert timing.mean == pytest.approx(np.mean(results))
    assert timing.std == pytest.approx(np.std(results), abs=1e-9)
    assert sum(int(line.split()[-1]) for line in timing.histogram().splitlines()) == len(results)
    assert "mean" in str(timing)


def test_a_measurement_without_options_shows_a_spread() -> None:
    """Ten measurements of at least 10 ms each: of one call, if that takes as long."""
    calls: list[str] = []
    function, _ = count(calls)
    timing = benchmark(function)
    assert len(timing.results) == 10
    assert timing.mean * (len(calls) - 1) > 0.1
    assert "(10 repeats)" in str(timing)
    assert str(Timing((1.0,))).endswith("(1 repeat)")


def test_how_it_looks() -> None:
    timing = Timing((1e-6, 2e-6, 2e-6, 4e-6))
    assert str(timing) == "mean 2.25 us  median 2 us  min 1 us  max 4 us  std 1.09 us  (4 repeats)"
    assert [line.split()[-1] for line in timing.histogram(3).splitlines()] == ["1", "2", "1"]
    assert Timing((1e-6,)).histogram().endswith(" 1")
    with pytest.raises(ValueError, match="bins must be at least 1"):
        timing.histogram(0)
    html = timing._repr_html_()
    assert ">2.25 us</td>" in html
    assert fc.benchmark is benchmark
