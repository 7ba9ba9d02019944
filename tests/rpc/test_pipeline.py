"""Calls that do not wait: pipelines, futures, asyncio."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import farcall as fc
from farcall.rpc import Call, Server, Session, connect

from ..waiting import SECONDS


def test_calls_are_sent_together(session: Session) -> None:
    add = session.get_function("test.add")
    before = session.stats
    with session.pipeline() as p:
        calls = [p(add, i, i) for i in range(100)]
    assert [call.result() for call in calls] == [2 * i for i in range(100)]
    assert session.stats.calls - before.calls == 100
    assert session.stats.round_trips - before.round_trips in (1, 2)  # the first pipeline looks `keep` up
    assert all(call.done() for call in calls)


def test_a_call_takes_a_result_that_is_not_here(session: Session) -> None:
    add, scale = session.get_function("test.add"), session.get_function("test.scale")
    x = session.tensor(np.arange(4, dtype="float32"))
    with session.pipeline() as p:
        p(add, 0, 0).result()  # looks `keep` up
        before = session.stats.round_trips
        call: Any = 1
        for _ in range(5):
            call = p(add, call, call)
        y = p(scale, p(scale, x, 2.0), 3.0)
        assert session.stats.round_trips == before
    assert call.result() == 32
    np.testing.assert_array_equal(y.result().numpy(), [0, 6, 12, 18])


def test_a_failure_reaches_what_depends_on_it(session: Session) -> None:
    add, fail = session.get_function("test.add"), session.get_function("test.fail")
    with session.pipeline() as p:
        first = p(fail, "ValueError", "reason")
        second = p(add, first, 1)
        third = p(add, 1, 1)
        p.wait()
        fourth = p(add, second, 1)  # its failure is known here, and is the call's own all the same
        fifth = p(add, fourth, 1)
    for call in (first, second, fourth, fifth):
        assert isinstance(call.exception(), ValueError)
        with pytest.raises(ValueError, match="reason"):
            call.result()
    assert third.result() == 2
    assert third.exception() is None


def test_a_result_outlives_its_session_s_calls(session: Session) -> None:
    """Kept results are forgotten with their calls: nothing piles up on the server."""
    make = session.get_function("test.range")
    for _ in range(3):
        with session.pipeline() as p:
            calls = [p(make, 10) for _ in range(50)]
        assert sum(float(call.result().numpy().sum()) for call in calls) == 45 * 50
        del calls, p
    assert session.get_function("test.add")(1, 1) == 2


def test_map(session: Session) -> None:
    add, nop = session.get_function("test.add"), session.get_function("test.nop")
    with session.pipeline() as p:
        assert p.map(add, ((i, 1) for i in range(10_000))) == [i + 1 for i in range(10_000)]
        assert p.map(session.get_function("test.echo"), ["a", 2, None]) == ["a", 2, None]
        assert p.map(nop, []) == []
        with pytest.raises(TypeError):
            p.map(add, [(1, 2), (object(), 1)])
        with pytest.raises(ZeroDivisionError):
            p.map(nop, (() for i in (1, 0) if 1 // i))
        with pytest.raises(KeyError, match="gone"):
            p.map(session.get_function("test.fail"), [("KeyError", "gone")] * 20)
        assert p.map(add, [(1, 1)]) == [2]


def test_tensors_of_this_process_in_a_pipeline(session: Session) -> None:
    total = session.get_function("test.sum")
    with session.pipeline() as p:
        calls = [p(total, np.full(3, i, dtype="float32")) for i in range(20)]
    assert [call.result() for call in calls] == [3.0 * i for i in range(20)]


def test_both_directions_full(session: Session) -> None:
    """Large arguments and large results: a client that only sent, or only read, would wait for ever."""
    echo, block = session.get_function("test.echo"), b"x" * 200_000
    with session.pipeline() as p:
        results = p.map(echo, [block] * 200)
    assert all(result == block for result in results)


@given(st.lists(st.sampled_from(["add", "fail", "text", "sync", "free"]), max_size=30))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_replies_belong_to_their_calls(session: Session, steps: list[str]) -> None:
    add, fail, echo = (session.get_function(f"test.{name}") for name in ("add", "fail", "echo"))
    expected: list[tuple[Call, Any]] = []
    with session.pipeline() as p:
        for i, step in enumerate(steps):
            if step == "add":
                expected.append((p(add, i, 1), i + 1))
            elif step == "text":
                expected.append((p(echo, "t" * i), "t" * i))
            elif step == "fail":
                expected.append((p(fail, "OSError", str(i)), OSError))
            elif step == "sync":
                assert add(i, i) == 2 * i
            else:
                session.empty((1,))
    for call, value in expected:
        if value is OSError:
            assert isinstance(call.exception(), OSError)
        else:
            assert call.result() == value


def test_functions_that_do_not_belong(session: Session, server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as other, session.pipeline() as p:
        with pytest.raises(ValueError, match="another session"):
            p(other.get_function("test.nop"))
        with pytest.raises(TypeError, match="Function of a session"):
            p(len, "x")
        with pytest.raises(TypeError, match=r"p\(function"):
            p()  # type: ignore[call-arg]
        call = p(session.get_function("test.add"), 1, 1)
        with pytest.raises(ValueError, match="another session"):
            other.get_function("test.echo")(call)


def test_callables_in_a_pipeline_are_called_at_once(session: Session) -> None:
    with session.pipeline() as p:
        first = p(session.get_function("test.add"), 1, 2)
        second = p(session.get_function("test.call"), lambda x: x + first.result(), 10)
        assert second.done()
    assert second.result() == 13


# ---- futures


def test_submit(session: Session) -> None:
    add = session.get_function("test.add")
    call = add.submit(20, 22)
    assert call.result(timeout=SECONDS) == 42
    assert call.done()
    assert not call.running()
    assert not call.cancelled()
    assert not call.cancel()
    assert "test.add" in repr(call)
    assert fc.ffi.Function(lambda x: x + 1).submit(1).result(timeout=SECONDS) == 2


def test_several_results_of_a_call(session: Session) -> None:
    x = session.tensor(np.arange(4, dtype="float32"))
    with session.pipeline() as p:
        call = p(session.get_function("test.several"), x)
        after = p(session.get_function("test.add"), 1, 1)
    same, number, text, _ = call.result()
    assert (number, text, after.result()) == (7, "text", 2)
    np.testing.assert_array_equal(same.numpy(), x.numpy())


def test_the_session_ends_under_calls(server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        wait = session.get_function("test.wait_for")
        calls = [wait.submit("never") for _ in range(3)]
    for call in calls:
        with pytest.raises(fc.errors.ConnectionLostError, match="closed"):
            call.result(timeout=SECONDS)


def test_the_worker_dies_under_calls(server: Server) -> None:
    with connect(server.url, key="k", timeout=SECONDS) as session:
        add, leave = session.get_function("test.add"), session.get_function("test.exit")
        p = session.pipeline()
        first, died, after = p(add, 1, 1), p(leave, 3), p(add, 1, 1)
        p.flush()
        assert first.result() == 2
        for call in (died, after):
            assert isinstance(call.exception(), fc.errors.WorkerCrashedError)
        with pytest.raises(fc.errors.WorkerCrashedError):
            p.wait()


def test_threads_share_a_session(session: Session) -> None:
    add = session.get_function("test.add")
    wrong: list[Any] = []

    def work(n: int) -> None:
        with session.pipeline() as p:
            for i in range(20):
                if i % 3 == 0 and add(n, i) != n + i:
                    wrong.append((n, i))
                calls = [p(add, n, j) for j in range(10)]
                other = add.submit(n, n)
                if [call.result() for call in calls] != [n + j for j in range(10)] or other.result() != 2 * n:
                    wrong.append((n, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS * 2)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
