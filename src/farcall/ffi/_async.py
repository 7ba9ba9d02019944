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
        TimeoutError: it took longer. A remote call's reply is passed over; the session goes on.
    """
    loop = asyncio.get_running_loop()
    # Off the loop's thread: beginning waits while another thread has the session, and while tensors travel.
    call = await loop.run_in_executor(None, submit, function, *args)
    waiting = _on_loop(call) if isinstance(call, _core.Call) else asyncio.wrap_future(call)
    async with asyncio.timeout(timeout):
        return await waiting


def await_call(call: _core.Call) -> Generator[Any, None, Any]:
    """``await call``."""
    return _on_loop(call).__await__()


def add_done_callback(call: _core.Call, function: Callable[[_core.Call], object]) -> None:
    """Have ``function(call)`` called when it has ended, by a thread that waits for it."""
    with _watchers_lock:
        watcher = _watchers.get(call.slot)
        if watcher is None or not watcher.add(call, function):
            watcher = _watchers[call.slot] = _Watcher()
            watcher.add(call, function)
            threading.Thread(target=watcher.run, name=f"farcall-replies-{call.slot}", daemon=True).start()


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
        self._calls: deque[tuple[_core.Call, Callable[[_core.Call], object]]] = deque()
        self._lock = threading.Lock()
        self._left = False

    def add(self, call: _core.Call, function: Callable[[_core.Call], object]) -> bool:
        """False when the thread has left."""
        with self._lock:
            if not self._left:
                self._calls.append((call, function))
            return not self._left

    def run(self) -> None:
        while (item := self._next()) is not None:
            call, function = item
            with contextlib.suppress(CancelledError):
                call.exception()
            try:
                function(call)
            except Exception:
                logging.getLogger("farcall").exception("a callback of %r failed", call)

    def _next(self) -> tuple[_core.Call, Callable[[_core.Call], object]] | None:
        with self._lock:
            self._left = not self._calls
            return None if self._left else self._calls.popleft()
