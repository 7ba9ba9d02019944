"""Opens and closes a session without blocking the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Generator
from typing import Any, ParamSpec

from farcall.rpc.client._connecting import connect
from farcall.rpc.client._session import Session

_P = ParamSpec("_P")


class PendingSession:
    """A session that :func:`connect_async` opens when you await it, or enter it by ``async with``."""

    def __init__(self, connect: Callable[[], Session]) -> None:
        self._connect = connect
        self._session: Session | None = None

    def __await__(self) -> Generator[Any, None, Session]:
        return self._open().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self
        return self._session

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await asyncio.to_thread(self._session.close)

    async def _open(self) -> Session:
        opening = asyncio.get_running_loop().run_in_executor(None, self._connect)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:  # the thread goes on, for at most connect's timeout
            opening.add_done_callback(_close)
            raise


def _close(opening: asyncio.Future[Session]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _with_arguments_of(
    function: Callable[_P, Session],
) -> Callable[[Callable[..., PendingSession]], Callable[_P, PendingSession]]:
    def same(wrapper: Callable[..., PendingSession]) -> Callable[_P, PendingSession]:
        wrapper.__wrapped__ = function  # type: ignore[attr-defined] # for inspect.signature
        return wrapper

    return same


@_with_arguments_of(connect)
def connect_async(*args: Any, **kwargs: Any) -> PendingSession:
    """Open a session without blocking the event loop; the arguments are those of :func:`connect`.

    ::

        async with fc.connect_async("tcp://board:9090") as session:     # closes it at the end of the block
            model = await asyncio.to_thread(session.load_module, "model.so")
            y = await model["main"].call_async(x)

        session = await fc.connect_async("tcp://board:9090")            # you close it

    A thread connects, and at the end closes. ``Function.call_async`` awaits a call. The other methods of the
    session block: run them by ``asyncio.to_thread`` if they may take long.

    Raises:
        UsageError, ConnectError, MissingExtraError: as :func:`connect`, when you await it.
    """
    return PendingSession(functools.partial(connect, *args, **kwargs))
