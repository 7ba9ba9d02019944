"""Detects that a peer hung up without consuming its bytes, which the worker reads."""

from __future__ import annotations

import asyncio
import contextlib
import select


class HangupWatch:
    """One epoll object for all connections of a server."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._poll.fileno(), self._on_ready)

    def watch(self, descriptor: int) -> asyncio.Future[None]:
        """A future that is done when the peer behind ``descriptor`` has closed."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._poll.register(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)
        self._waiting[descriptor] = waiting
        return waiting

    def forget(self, descriptor: int) -> None:
        """Stop watching ``descriptor``. Call this before it is closed."""
        if self._waiting.pop(descriptor, None) is not None:
            with contextlib.suppress(OSError):
                self._poll.unregister(descriptor)

    def _on_ready(self) -> None:
        for descriptor, _ in self._poll.poll(0):
            waiting = self._waiting.get(descriptor)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def close(self) -> None:
        """Stop watching all connections."""
        self._loop.remove_reader(self._poll.fileno())
        self._poll.close()
