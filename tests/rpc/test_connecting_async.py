"""Sessions that an event loop opens, and servers that a program starts for itself."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest

import farcall as fc
from farcall.errors import ConnectError, UsageError
from farcall.rpc import PendingSession, Server

from ..waiting import SECONDS
from .exports import register


def test_a_block_opens_and_closes_the_session(server: Server) -> None:
    async def main() -> fc.Session:
        async with fc.connect_async(server.url, key="k") as session:
            assert not session.closed
            add = await asyncio.to_thread(session.get_function, "test.add")
            assert await asyncio.gather(*(add.call_async(i, 1) for i in range(3))) == [1, 2, 3]
        return session

    assert asyncio.run(main()).closed


def test_an_awaited_session_stays_open(server: Server) -> None:
    async def main() -> fc.Session:
        return await fc.connect_async(server.url, key="k")

    with asyncio.run(main()) as session:
        assert session.get_function("test.add")(20, 22) == 42


def test_errors_come_when_it_is_awaited() -> None:
    async def main() -> None:
        pending = fc.connect_async("tcp://127.0.0.1:1")
        with pytest.raises(ConnectError):
            await pending
        with pytest.raises(UsageError, match="timeout"):
            async with fc.connect_async("tcp://127.0.0.1:1", timeout=-1):
                raise AssertionError

    asyncio.run(main())


def test_a_cancelled_task_leaves_no_session() -> None:
    """The session that opens after the cancellation is closed."""

    async def main() -> None:
        loop, begun, closed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        allowed = threading.Event()

        class Opened:
            close = staticmethod(closed.set)

        def slow() -> Opened:
            loop.call_soon_threadsafe(begun.set)
            assert allowed.wait(SECONDS)
            return Opened()

        task = asyncio.ensure_future(PendingSession(slow)._open())  # type: ignore[arg-type]
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        allowed.set()
        async with asyncio.timeout(SECONDS):
            await closed.wait()

    asyncio.run(main())


def test_the_parameters_are_those_of_connect() -> None:
    assert inspect.signature(fc.connect_async).parameters == inspect.signature(fc.connect).parameters


def test_a_program_serves_the_functions_of_a_module() -> None:
    with fc.serve(register) as server, fc.connect(server.url) as session:
        assert session.get_function("test.add")(20, 22) == 42
    with fc.serve("tests.rpc.exports:register", key="word") as server:
        assert server.url.startswith("tcp://127.0.0.1:")
        with fc.connect(server.url, key="word") as session:
            assert "test.add" in session.function_names()


def test_functions_that_other_processes_cannot_import_are_refused() -> None:
    def inner() -> None: ...

    for init in (lambda: None, inner):
        with pytest.raises(UsageError, match=r"cannot import .* by name; define it at the top of a module"):
            fc.serve(init)
    with pytest.raises(UsageError, match="nonsense"):
        fc.serve(url="nonsense://x")
