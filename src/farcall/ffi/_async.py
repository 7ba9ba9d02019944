"""Calls that are awaited: behind ``Function.submit``, ``Function.call_async`` and :class:`farcall.Call`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from farcall import _core
from farcall.errors import DeadlineExceededError, RemoteError

_Callback = Callable[[_core.Call], object]

_threads: ThreadPoolExecutor | None = None
_watchers: dict[int, _Watcher] = {}
_watchers_lock = threading.Lock()


def submit(function: _core.Function, *args: Any) -> _core.Call | Future[Any]:
    """Begin a call and return at once: a Call of a remote Function, a Future (in a thread) of a local one."""
    call = _core.submit(function, args)
    return _executor().submit(function, *args) if call is None else call


async def call_async(function: _core.Function, *args: Any, timeout: float | None = None) -> Any:
    """Call without blocking the event loop.

    Args:
        timeout: seconds; after them the call is given up.

    Raises:
        DeadlineExceededError: it took longer. A remote call's reply is passed over; the session goes on.
    """
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            # Off the loop's thread: it waits while another one has the session, and while tensors travel.
            call = await loop.run_in_executor(None, submit, function, *args)
            return await (_on_loop(call) if isinstance(call, _core.Call) else asyncio.wrap_future(call))
    except TimeoutError:
        if not limit.expired():
            raise  # the function's own
        text = f"`{function.name}` was not done within {timeout:g} s, and is given up"
        raise DeadlineExceededError(text) from None


def await_call(call: _core.Call) -> Generator[Any, None, Any]:
    """``await call``."""
    return _on_loop(call).__await__()


def add_done_callback(call: _core.Call, function: _Callback) -> None:
    """Have ``function(call)`` called when it has ended, by a thread that waits for it, or by who cancels."""
    with _watchers_lock:
        watcher = _watchers.get(call.slot)
        if watcher is None or not watcher.add(call, function):
            watcher = _watchers[call.slot] = _Watcher()
            watcher.add(call, function)
            threading.Thread(target=watcher.run, name=f"farcall-replies-{call.slot}", daemon=True).start()


def cancelled(call: _core.Call) -> None:
    """Tell those who asked, for a call that was cancelled: its thread may wait for others for long."""
    with _watchers_lock:
        watcher = _watchers.get(call.slot)
    if watcher is not None:
        watcher.forget(call)


class FutureShape:
    """What ``concurrent.futures.wait`` and ``as_completed`` look at in a future, with a ``_`` in front."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.waiters: list[Any] = []
        self.state = "RUNNING"

    def end(self, call: _core.Call) -> None:
        """Be one that has ended, and tell who waits."""
        with self.condition:
            self.state = "CANCELLED_AND_NOTIFIED" if call.cancelled() else "FINISHED"
            for waiter in self.waiters:
                if call.cancelled():
                    waiter.add_cancelled(call)
                elif call.exception() is not None:
                    waiter.add_exception(call)
                else:
                    waiter.add_result(call)


def shape_of(call: _core.Call) -> FutureShape:
    """What a call shows to ``concurrent.futures``."""
    shape = FutureShape()
    if call.done():
        shape.end(call)
    else:
        add_done_callback(call, shape.end)
    return shape


def _executor() -> ThreadPoolExecutor:
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(thread_name_prefix="farcall-submit")
    return _threads


def _on_loop(call: _core.Call) -> asyncio.Future[Any]:
    """A future of the running loop that ends as the call does; its cancellation gives the call up."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle() -> None:
        if future.done():
            return
        try:
            future.set_result(call.result())
        except CancelledError:
            future.cancel()
        except BaseException as error:
            future.set_exception(error)

    def ended(_: _core.Call) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle)

    future.add_done_callback(lambda done: call.cancel() if done.cancelled() else None)
    add_done_callback(call, ended)
    return future


class _Watcher:
    """Waits for the calls of one session, in the order in which they end, and leaves when there are none."""

    def __init__(self) -> None:
        self._calls: deque[tuple[_core.Call, _Callback]] = deque()
        self._lock = threading.Lock()
        self._left = False

    def add(self, call: _core.Call, function: _Callback) -> bool:
        """False when the thread has left."""
        with self._lock:
            if not self._left:
                self._calls.append((call, function))
            return not self._left

    def forget(self, call: _core.Call) -> None:
        """Tell at once whom the end of ``call`` concerns."""
        with self._lock:
            found = [function for other, function in self._calls if other is call]
            self._calls = deque(item for item in self._calls if item[0] is not call)
        for function in found:
            _tell(function, call)

    def run(self) -> None:
        while (call := self._first()) is not None:
            while not call.done():
                with contextlib.suppress(CancelledError, RemoteError):
                    call.exception()
            while (function := self._take(call)) is not None:
                _tell(function, call)

    def _first(self) -> _core.Call | None:
        with self._lock:
            self._left = not self._calls
            return None if self._left else self._calls[0][0]

    def _take(self, call: _core.Call) -> _Callback | None:
        with self._lock:
            return self._calls.popleft()[1] if self._calls and self._calls[0][0] is call else None


def _tell(function: _Callback, call: _core.Call) -> None:
    try:
        function(call)
    except Exception:
        logging.getLogger("farcall").exception("a callback of %r failed", call)
