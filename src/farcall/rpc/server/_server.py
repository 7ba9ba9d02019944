"""The server: ``serve`` for programs and notebooks (in a thread), ``serve_forever`` for the command line."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from farcall.errors import UsageError
from farcall.rpc.channels import Address, Channel, Listener, Tls, listen
from farcall.rpc.server._relay import check_devices
from farcall.rpc.server._supervisor import Log, Supervisor
from farcall.rpc.shared._handshake import check_key
from farcall.rpc.shared._limits import Limits
from farcall.rpc.tokens import TokenFile

if TYPE_CHECKING:
    from farcall.rpc.server._metrics_page import MetricsPage


def _check_arguments(
    key: str, init: str | None, limits: Limits | None, urls: Sequence[str], tls: Tls | None
) -> None:
    check_key(key)
    if isinstance(urls, str):
        raise UsageError(f"urls: expected a list of URLs, got one text; write urls=[{urls!r}]")
    for name, value, kind, example in (
        ("init", init, str, "the text 'PKG.MOD:FUNC', for workers import it by name"),
        ("limits", limits, Limits, "Limits(sessions=3)"),
        ("tls", tls, Tls, "Tls.of('certs/server')"),
    ):
        if value is not None and not isinstance(value, kind):
            raise UsageError(f"{name}: expected {example}, got {type(value).__name__}")


def _open(host: str, port: int, urls: Sequence[str], tls: Tls | None, *, insecure: bool) -> list[Listener]:
    """Listeners at ``urls``, or at a TCP port when there are none."""
    if not urls:
        if "://" in host:
            raise UsageError(
                f"host {host!r}: expected the name or address of a host; for a URL, urls=[{host!r}]"
            )
        if not 0 <= port <= 65535:
            raise UsageError(f"cannot listen on port {port}: a port is a number from 0 (any) to 65535")
        urls = [str(Address("tcp", host, port))]
    with contextlib.ExitStack() as stack:
        listeners: list[Listener] = []
        for url in urls:
            listeners.append(listen(url, tls=tls, insecure=insecure))
            stack.callback(listeners[-1].close)
        stack.pop_all()
    return listeners


def _token_file(path: str | os.PathLike[str] | None, urls: Sequence[str]) -> TokenFile | None:
    if path is None:
        return None
    for url in urls or ("tcp://",):
        if not url.startswith(("unix:", "shm:", "mailbox:", "tls:", "wss:")):
            raise UsageError(
                f"{url}: no client would send a token there, in plain text; with a token file, listen at "
                "tls://, wss://, unix:// or shm://"
            )
    file = TokenFile(path)
    file.tokens()  # a bad file fails here, before any client connects
    return file


def _metrics_page(place: str | None) -> MetricsPage | None:
    if place is None:
        return None
    from farcall.rpc.server._metrics_page import MetricsPage  # http.server takes 10 ms

    return MetricsPage(place)


@contextlib.contextmanager
def _closing_on_error(page: MetricsPage | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _close((), page)
        raise


def _close(listeners: Sequence[Listener], page: MetricsPage | None) -> None:
    for listener in listeners:
        listener.close()
    if page is not None:
        page.close()


class Server:
    """A server in this process's background; its sessions run in worker processes.

    ::

        with farcall.rpc.Server(init="my.exports:register") as server:
            with farcall.connect(server.url) as session: ...

    Args:
        host: address to listen on. A public one is refused unless ``insecure``.
        port: 0 takes a free one; see :attr:`port`.
        key: the key that clients must send.
        init: ``"PKG.MOD:FUNC"``, called for every worker to register its exported functions.
        limits: see :class:`Limits`.
        urls: URLs to listen at, instead of ``host`` and ``port``; see :func:`farcall.rpc.channels.listen`.
        tls: the files for ``tls://`` and ``wss://``.
        tokens: a token file, which lists the tokens that the server accepts and their scopes; None: every
            client may do everything.
        insecure: allow a public address, although any client that reaches it can run code on this machine.
        devices: devices behind this server, which sessions reach by name (``via=["device:dsp0"]``): name ->
            URL. Only the server's owner says where they are; a URL may be ``pipe:COMMAND``.
        log: called (in the server's thread) with each event, a dictionary: see docs/rpc.md.
        metrics: ``HOST:PORT`` of a page with the server's counters, in Prometheus' text format; port 0 takes
            a free one. None: there is no page.
        loop_factory: makes the event loop of the server's thread. The loop's clock decides about leases,
            handshakes and all other limits of time, except deadlines of calls, which workers keep. Tests pass
            a loop whose time they set. None: asyncio's own.

    Attributes:
        url: the first URL at which clients connect.
        urls: all such URLs.
        metrics_url: of the page with the counters, or None.

    Raises:
        UsageError: an address or a file cannot be used, or ``init`` fails.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        key: str = "",
        init: str | None = None,
        limits: Limits | None = None,
        *,
        urls: Sequence[str] = (),
        tls: Tls | None = None,
        tokens: str | os.PathLike[str] | None = None,
        insecure: bool = False,
        devices: Mapping[str, str] | None = None,
        log: Log | None = None,
        metrics: str | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        _check_arguments(key, init, limits, urls, tls)
        token_file = _token_file(tokens, urls)
        places = check_devices(devices or {})
        page = _metrics_page(metrics)
        with _closing_on_error(page):
            listeners = _open(host, port, urls, tls, insecure=insecure)
        self.metrics_url = None if page is None else page.url
        self.urls = [listener.url for listener in listeners]
        self.url = self.urls[0]
        self.host, self.port = listeners[0].address.host, listeners[0].address.port
        self._ready: Future[Callable[[], object]] = Future()
        supervise = functools.partial(
            Supervisor, listeners, key, init, limits or Limits(), token_file, log, places
        )
        self._thread = threading.Thread(
            target=self._run,
            args=(listeners, page, supervise, loop_factory),
            name="farcall-server",
            daemon=True,
        )
        self._thread.start()
        self._stop = self._ready.result()

    def _run(
        self,
        listeners: Sequence[Listener],
        page: MetricsPage | None,
        supervise: Callable[[], Supervisor],
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
    ) -> None:
        async def main() -> None:
            supervisor = supervise()
            await supervisor.prepare()
            if page is not None:
                page.start(supervisor.metrics)
            loop = asyncio.get_running_loop()
            self._ready.set_result(lambda: loop.call_soon_threadsafe(supervisor.stop))
            await supervisor.run()

        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(main())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
        finally:
            _close(listeners, page)

    def close(self) -> None:
        """End all sessions and workers. Safe to call twice."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has already ended
                self._stop()
            self._thread.join()

    def __repr__(self) -> str:
        state = "" if self._thread.is_alive() else ", closed"
        return f"<farcall server at {', '.join(self.urls)}{state}>"

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(
    init: str | Callable[[], object] | None = None,
    url: str = "tcp://127.0.0.1:0",
    *,
    key: str = "",
    limits: Limits | None = None,
    tls: Tls | None = None,
    tokens: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    devices: Mapping[str, str] | None = None,
    log: Log | None = None,
    metrics: str | None = None,
) -> Server:
    """Start a server in the background of a script or a notebook, and return at once.

    ::

        with fc.serve("my_kernels:register") as server, fc.connect(server.url) as session: ...

    Each session runs in a process of its own: a kernel that crashes ends its session, and nothing else.

    Args:
        init: ``"PKG.MOD:FUNC"``, or that function itself: it registers the functions that clients may call,
            in each session's process. Processes import it by name, so it must be in a module, not in the
            script or notebook. None: clients have the standard functions, such as those that load modules.
        url: the URL to listen at; port 0 takes a free port.
        key: the key that clients must send.
        limits: see :class:`Limits`.
        tls: the files for ``tls://`` and ``wss://``.
        tokens: a token file; None: every client may do everything.
        insecure: allow a public address without TLS.
        devices: devices behind this server, by name: see :class:`Server`.
        log: called with each event, a dictionary.
        metrics: ``HOST:PORT`` of a page with the server's counters: see :class:`Server`.

    Returns:
        The running server, a context manager; ``server.url`` is what clients connect to. It ends with its
        ``with`` block, by ``server.close()``, or with this process.

    Raises:
        UsageError: an address or a file cannot be used, or ``init`` fails or cannot be imported.
    """
    return Server(
        key=key,
        init=_name_of(init) if callable(init) else init,
        limits=limits,
        urls=[url],
        tls=tls,
        tokens=tokens,
        insecure=insecure,
        devices=devices,
        log=log,
        metrics=metrics,
    )


def _name_of(init: Callable[[], object]) -> str:
    module, name = getattr(init, "__module__", None), getattr(init, "__qualname__", "<unnamed>")
    if module in (None, "__main__") or not name.isidentifier():
        raise UsageError(
            f"init: other processes cannot import `{name}` of {module or 'no module'} by name; define it at "
            "the top of a module beside this program, and pass it, or 'MODULE:FUNCTION'"
        )
    return f"{module}:{name}"


def serve_forever(
    host: str = "127.0.0.1",
    port: int = 0,
    key: str = "",
    init: str | None = None,
    limits: Limits | None = None,
    *,
    urls: Sequence[str] = (),
    tls: Tls | None = None,
    tokens: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    devices: Mapping[str, str] | None = None,
    log: Log | None = None,
    metrics: str | None = None,
    on_listening: Callable[[str], object] | None = None,
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; then end every session and return.

    After SIGTERM or SIGHUP the server accepts no new clients. Idle sessions end at once; running calls get
    ``limits.drain_seconds`` to finish (a second SIGTERM ends them at once). SIGUSR1 logs every open session.
    If this process ignores SIGHUP when it starts (``nohup``), it goes on to ignore it.

    Args:
        on_listening: called with each URL once clients can connect. The other arguments are those of
            :class:`Server`.

    Raises:
        UsageError: as :class:`Server`.
    """
    _check_arguments(key, init, limits, urls, tls)
    token_file = _token_file(tokens, urls)
    places = check_devices(devices or {})
    page = _metrics_page(metrics)
    with _closing_on_error(page):
        listeners = _open(host, port, urls, tls, insecure=insecure)

    async def main() -> None:
        supervisor = Supervisor(listeners, key, init, limits or Limits(), token_file, log, places)
        loop = asyncio.get_running_loop()
        preparing = asyncio.create_task(supervisor.prepare())
        stops: dict[signal.Signals, Callable[[], object]] = {
            signal.SIGTERM: functools.partial(supervisor.stop, drain=True),
            signal.SIGINT: supervisor.stop,
        }
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            stops[signal.SIGHUP] = supervisor.drain
        for number in stops:
            loop.add_signal_handler(number, preparing.cancel)  # --init may never return
        await preparing
        for number, stop in stops.items():
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGUSR1, supervisor.report)
        if page is not None:
            page.start(supervisor.metrics)
        for listener in listeners:
            if on_listening is not None:
                on_listening(listener.url)
        await supervisor.run()

    try:
        with contextlib.suppress(asyncio.CancelledError):  # stopped while --init ran
            asyncio.run(main())
    finally:
        _close(listeners, page)


def serve_stdio(
    init: str | None = None, limits: Limits | None = None, devices: Mapping[str, str] | None = None
) -> None:
    """Serve one session on standard input and output, in this process; ``pipe:`` URLs start this.

    There is no handshake, as TVM's pipes have none. Text that functions print goes to standard error.

    Args:
        init: ``"PKG.MOD:FUNC"``, called first; it registers the functions that the client may call.
        limits: see :class:`Limits`.
        devices: devices behind this server, by name: see :class:`Server`.

    Raises:
        UsageError: ``init`` fails.
    """
    from farcall.rpc.server._confine import confine
    from farcall.rpc.server._dispatch import Policy
    from farcall.rpc.server._worker import run_init, serve_channel

    limits, places = limits or Limits(), check_devices(devices or {})
    line = Channel(os.dup(0), os.dup(1))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    run_init(init)
    with tempfile.TemporaryDirectory(prefix="farcall-session-") as folder:
        os.chdir(folder)
        confine(limits)
        serve_channel(line, Policy(Path(folder), limits, devices=places), "the parent process")
        os.chdir("/")
