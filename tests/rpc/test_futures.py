"""Calls in the shapes of concurrent.futures and asyncio: waiting, giving up, cancelling."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import farcall as fc
from farcall.errors import DeadlineExceededError
from farcall.rpc import Call, Server, Session, connect

from ..waiting import SECONDS


@contextmanager
def busy(server: Server, session: Session) -> Iterator[Call]:
    """While a call of the session does not end."""
    name = uuid.uuid4().hex
    yield session.get_function("test.wait_for").submit(name)
    with connect(server.url, key="k", timeout=SECONDS) as other:
        other.get_function("test.touch")(name)


# ---- waiting


def test_a_result_that_is_late(server: Server, session: Session) -> None:
    add = session.get_function("test.add")
    with busy(server, session) as call:
        with pytest.raises(DeadlineExceededError, match="has not answered"):
            call.result(timeout=0.01)
        with fc.deadline(0.01), pytest.raises(DeadlineExceededError):
            call.exception()
        assert call.running()
        assert call.cancel()
        assert call.cancelled()
        with pytest.raises(concurrent.futures.CancelledError):
            call.result()
        after = add.submit(1, 1)
    assert after.result(timeout=SECONDS) == 2  # the reply of the cancelled call was passed over
    assert add(2, 2) == 4


def test_callbacks_of_a_call(session: Session) -> None:
    seen: list[int] = []
    done = threading.Event()
    for i in range(5):
        session.get_function("test.add").submit(i, 0).add_done_callback(
            lambda call: seen.append(call.result())
        )
    session.get_function("test.nop").submit().add_done_callback(lambda call: done.set())
    assert done.wait(SECONDS)
    assert seen == list(range(5))


def test_callbacks_of_a_cancelled_call_do_not_wait_for_others(server: Server, session: Session) -> None:
    told: list[Call] = []
    add = session.get_function("test.add")
    with busy(server, session) as first:
        first.add_done_callback(told.append)
        second = add.submit(1, 1)
        second.add_done_callback(told.append)
        second.cancel()
        assert told == [second]


def test_concurrent_futures_wait_for_calls(server: Server, session: Session) -> None:
    add, fail = session.get_function("test.add"), session.get_function("test.fail")
    calls = [add.submit(i, 2) for i in range(5)]
    found = [call.result() for call in concurrent.futures.as_completed(calls, timeout=SECONDS)]
    assert sorted(found) == [2, 3, 4, 5, 6]
    bad = fail.submit("ValueError", "reason")
    done, rest = concurrent.futures.wait([bad, *calls], timeout=SECONDS)
    assert (done, rest) == ({bad, *calls}, set())
    with busy(server, session) as slow:
        queued = add.submit(1, 1)
        done, rest = concurrent.futures.wait([slow, queued], timeout=0.01)
        assert (done, rest) == (set(), {slow, queued})
        threading.Timer(0.05, queued.cancel).start()
        first = concurrent.futures.wait(
            [slow, queued], SECONDS, return_when=concurrent.futures.FIRST_COMPLETED
        )
        assert (first.done, first.not_done) == ({queued}, {slow})
        mixed = concurrent.futures.wait(
            [slow, fail.submit("ValueError", "reason")], 0.01, return_when=concurrent.futures.FIRST_EXCEPTION
        )
        assert not mixed.done
    assert concurrent.futures.wait([slow], SECONDS).done == {slow}


# ---- cancelling


def test_what_was_not_sent_is_never_made(session: Session) -> None:
    add, touch, exists = (session.get_function(f"test.{name}") for name in ("add", "touch", "exists"))
    names = [uuid.uuid4().hex for _ in range(3)]
    p = session.pipeline()
    p(add, 0, 0).result()
    calls, before = session.stats.calls, session.stats.bytes_out
    made = [p(touch, name) for name in names]
    sums = [p(add, i, i) for i in range(3)]
    assert all(call.cancel() for call in (made[0], made[2], sums[1]))
    p.wait()
    assert [exists(name) for name in names] == [False, True, False]
    assert [sums[0].result(), sums[2].result()] == [0, 4]
    assert session.stats.calls - calls == 3 + 3
    for call in (made[0], made[2], sums[1]):
        with pytest.raises(concurrent.futures.CancelledError):
            call.result()
    for call in [p(add, 1, 1) for _ in range(3)]:
        assert call.cancel()
    p.wait()
    assert session.stats.bytes_out > before
    assert add(20, 22) == 42


def test_what_another_call_takes_is_made(session: Session) -> None:
    add = session.get_function("test.add")
    p = session.pipeline()
    first = p(add, 1, 2)
    second = p(add, first, 10)
    assert first.cancel()
    assert second.result() == 13
    with pytest.raises(ValueError, match="was cancelled"):
        p(add, first, 1)


def test_releases_go_although_the_call_behind_them_does_not(session: Session) -> None:
    import numpy as np

    add = session.get_function("test.add")
    p = session.pipeline()
    p(add, 0, 0).result()
    x = session.tensor(np.zeros(3, "float32"))
    del x
    call = p(add, 1, 1)  # with the release in front
    assert call.cancel()
    after = p(add, 1, 2)
    assert after.result() == 3
    assert add(2, 2) == 4


def test_who_cancels_does_not_wait_for_the_session(server: Server, session: Session) -> None:
    with busy(server, session) as slow:
        held = threading.Thread(target=session.get_function, args=("test.add",))
        queued = session.get_function  # bound before the thread takes the session
        held.start()
        assert slow.cancel()  # whoever has the session now waits for this very call
        assert slow.cancelled()
    held.join(SECONDS)
    assert not held.is_alive()
    assert queued("test.add")(1, 1) == 2


# ---- asyncio


def test_asyncio(session: Session) -> None:
    add, fail = session.get_function("test.add"), session.get_function("test.fail")

    async def main() -> None:
        assert await asyncio.gather(*(add.call_async(i, 1) for i in range(20))) == list(range(1, 21))
        assert await add.submit(1, 2) == 3
        with pytest.raises(ValueError, match="reason"):
            await fail.call_async("ValueError", "reason")
        assert await fc.ffi.Function(lambda x: x * 2).call_async(21) == 42

    asyncio.run(main())


def test_asyncio_gives_up_after_a_timeout_and_the_session_goes_on(server: Server, session: Session) -> None:
    add, wait = session.get_function("test.add"), session.get_function("test.wait_for")
    name = uuid.uuid4().hex

    async def main() -> None:
        with pytest.raises(DeadlineExceededError, match=r"`test\.wait_for` did not end within 0\.01 s"):
            await wait.call_async(name, timeout=0.01)
        other = asyncio.create_task(add.call_async(1, 1))
        with connect(server.url, key="k", timeout=SECONDS) as another:
            another.get_function("test.touch")(name)
        assert await other == 2
        with pytest.raises(DeadlineExceededError, match=r"within 0\.01 s"):
            await fc.ffi.Function(lambda: given_up.wait(SECONDS)).call_async(timeout=0.01)
        given_up.set()

    given_up = threading.Event()
    asyncio.run(main())
    assert add(1, 1) == 2


def test_a_timeout_of_the_function_itself_is_no_deadline() -> None:
    async def main() -> None:
        def late() -> None:
            raise TimeoutError("mine")

        with pytest.raises(TimeoutError, match="mine") as caught:
            await fc.ffi.Function(late).call_async(timeout=SECONDS)
        assert not isinstance(caught.value, DeadlineExceededError)

    asyncio.run(main())


def test_a_cancelled_task_leaves_the_others_alone(server: Server, session: Session) -> None:
    add = session.get_function("test.add")

    async def main() -> None:
        with busy(server, session):
            tasks = [asyncio.create_task(add.call_async(i, i)) for i in range(6)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            ends = await asyncio.gather(*tasks[::2], return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        assert await asyncio.gather(*tasks[1::2]) == [2, 6, 10]
        assert await add.call_async(20, 22) == 42

    asyncio.run(main())
