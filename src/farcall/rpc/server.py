"""The server: ``Server`` for tests and notebooks (in a thread of its own), ``serve`` for the command line."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType

from farcall.errors import UsageError
from farcall.rpc.limits import Limits
from farcall.rpc.supervisor import Log, Supervisor


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int, *, insecure: bool) -> socket.socket:
    if not (insecure or is_loopback(host)):
        raise UsageError(
            f"--host {host}: anyone who reaches that address could run code here, in plain text. "
            "Listen on 127.0.0.1 (and tunnel, with ssh -L), or pass --insecure on a network that you trust"
        )
    if not 0 <= port <= 65535:
        raise UsageError(f"cannot listen on port {port}: a port is a number from 0 (any) to 65535")
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(info[4][:2], family=info[0], backlog=512)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {error}; choose another --port, or 0 for any"
        ) from None


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


class Server:
    """A server in this process's background; its sessions run in worker processes.

    ::

        with farcall.rpc.Server(init="my.exports:register") as server:
            with farcall.connect(server.url) as session: ...

    Args:
        host: address to listen on. A public one is refused unless ``insecure``.
        port: 0 takes a free one; see :attr:`port`.
        key: what clients must name.
        init: ``"PKG.MOD:FUNC"``, called in every worker to register what it exports.
        limits: see :class:`Limits`.
        insecure: allow a public address although anyone there could run code here.
        log: called (in the server's thread) with each event, a dictionary: see docs/rpc.md.

    Raises:
        UsageError: the address cannot be used, or ``init`` fails.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        key: str = "",
        init: str | None = None,
        limits: Limits | None = None,
        *,
        insecure: bool = False,
        log: Log | None = None,
    ) -> None:
        listener = _listen(host, port, insecure=insecure)
        self.url = _url(listener)
        self.host, self.port = listener.getsockname()[:2]
        self._ready: Future[Callable[[], object]] = Future()
        self._thread = threading.Thread(
            target=self._run,
            args=(listener, key, init, limits or Limits(), log),
            name="farcall-server",
            daemon=True,
        )
        self._thread.start()
        self._stop = self._ready.result()

    def _run(
        self, listener: socket.socket, key: str, init: str | None, limits: Limits, log: Log | None
    ) -> None:
        async def main() -> None:
            supervisor = Supervisor(listener, key, init, limits, log)
            await supervisor.prepare()
            loop = asyncio.get_running_loop()
            self._ready.set_result(lambda: loop.call_soon_threadsafe(supervisor.stop))
            await supervisor.run()

        with listener:
            try:
                asyncio.run(main())
            except BaseException as error:
                if self._ready.done():
                    raise
                self._ready.set_exception(error)

    def close(self) -> None:
        """End all sessions and workers. Safe to call twice."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._stop()
            self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(
    host: str = "127.0.0.1",
    port: int = 0,
    key: str = "",
    init: str | None = None,
    limits: Limits | None = None,
    *,
    insecure: bool = False,
    log: Log | None = None,
    on_listening: Callable[[str], object] | None = None,
) -> None:
    """Serve until SIGINT, or SIGTERM; then end every session and return.

    After SIGTERM nobody new is served, and the sessions that are open may finish, for
    ``limits.drain_seconds`` (a second signal ends them at once). SIGUSR1 logs every open session.

    Args:
        on_listening: called with the address once clients can connect.

    Raises:
        UsageError: as :class:`Server`.
    """
    listener = _listen(host, port, insecure=insecure)

    async def main() -> None:
        supervisor = Supervisor(listener, key, init, limits or Limits(), log)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, functools.partial(supervisor.stop, drain=True))
        loop.add_signal_handler(signal.SIGINT, supervisor.stop)
        loop.add_signal_handler(signal.SIGUSR1, supervisor.report)
        await supervisor.prepare()
        if on_listening is not None:
            on_listening(_url(listener))
        await supervisor.run()

    with listener:
        asyncio.run(main())
