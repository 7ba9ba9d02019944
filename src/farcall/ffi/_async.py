"""Asynchronous calls: the code of ``Function.submit``, ``Function.call_async`` and :class:`farcall.Call`."""

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
    """Start a call and return at once: a Call for a remote Function, a thread's Future for a local one."""
    call = _core.submit(function, args)
    return _executor().submit(function, *args) if call is None else call


async def call_async(function: _core.Function, *args: Any, timeout: float | None = None) -> Any:
    """Call without blocking the event loop.

    Args:
        timeout: the seconds to wait for the call.

    Raises:
        DeadlineExceededError: the call took longer. The client drops the reply of a remote call, and the
            session goes on.
    """
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            # Not in the loop's thread: submit blocks while another thread uses the session, and during
            # uploads.
            call = await asyncio.to_thread(submit, function, *args)
            return await (_on_loop(call) if isinstance(call, _core.Call) else asyncio.wrap_future(call))
    except TimeoutError:
        if not limit.expired():
            raise  # the function itself raised it
        text = f"`{function.name}` did not end within {timeout:g} s; the call is abandoned"
        raise DeadlineExceededError(text) from None


def await_call(call: _core.Call) -> Generator[Any, None, Any]:
    """Implements ``await call``."""
    return _on_loop(call).__await__()


def add_done_callback(call: _core.Call, function: _Callback) -> None:
    """Call ``function(call)`` when the call has ended, in a waiting thread or in the one that cancels it."""
    with _watchers_lock:
        watcher = _watchers.get(call.slot)
        if watcher is None or not watcher.add(call, function):
            watcher = _watchers[call.slot] = _Watcher()
            watcher.add(call, function)
            threading.Thread(target=watcher.run, name=f"farcall-replies-{call.slot}", daemon=True).start()


def cancelled(call: _core.Call) -> None:
    """Run the callbacks of a cancelled call at once, since its thread may be waiting for another call."""
    with _watchers_lock:
        watcher = _watchers.get(call.slot)
    if watcher is not None:
        watcher.forget(call)


class FutureShape:
    """The attributes of a future that ``concurrent.futures.wait`` uses, there with a ``_`` in front."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.waiters: list[Any] = []
        self.state = "RUNNING"

    def end(self, call: _core.Call) -> None:
        """Enter the final state, and notify the waiters."""
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
    """The attributes of a call for ``concurrent.futures``."""
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
    """A future of the running loop that ends when the call ends. Cancelling it cancels the call."""
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
    """A thread that waits for the calls of one session, in the order of their replies, until none is left."""

    def __init__(self) -> None:
        self._calls: deque[tuple[_core.Call, _Callback]] = deque()
        self._lock = threading.Lock()
        self._left = False

    def add(self, call: _core.Call, function: _Callback) -> bool:
        """Add a callback; returns False if the thread has ended."""
        with self._lock:
            if not self._left:
                self._calls.append((call, function))
            return not self._left

    def forget(self, call: _core.Call) -> None:
        """Run the callbacks of ``call`` at once, and remove them."""
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
