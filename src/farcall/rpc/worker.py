"""The worker: a process that serves one session and ends. ``python -m farcall.rpc.worker CONTROL_FD``.

It is started ahead of time, imports what it needs, runs the ``--init`` function, says ``ready`` on its
control socket and waits there for a client's connection (SCM_RIGHTS). When the control socket closes, the
supervisor is gone, and the worker goes too: there are no orphans.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path

from farcall import _core
from farcall.errors import ConnectionLostError, ProtocolError, UsageError
from farcall.rpc.limits import Limits
from farcall.rpc.page import Page


def run_init(text: str | None) -> None:
    """Call the function that ``--init PKG.MOD:FUNC`` names.

    Raises:
        UsageError: there is none, or it failed.
    """
    if not text:
        return
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise UsageError(f"--init {text!r}: expected PKG.MOD:FUNC")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--init {text}: {error}") from error
    try:
        function()
    except Exception as error:
        raise UsageError(f"--init {text}: it failed with {type(error).__name__}: {error}") from error


def _leave_with_supervisor(control: socket.socket, workdir: Path) -> None:
    """Wait (in a thread) until the supervisor is gone, then take the folder and the process away."""
    with contextlib.suppress(OSError):
        while control.recv(1):
            pass
    shutil.rmtree(workdir, ignore_errors=True)
    os._exit(1)


def _serve(connection: socket.socket, peer: str, page: Page, workdir: Path, limits: Limits) -> None:
    from farcall.rpc.dispatch import Dispatcher

    endpoint = _core.Endpoint(connection.detach(), peer, limits.wire, client=False, page=page.memory)
    try:
        Dispatcher(endpoint, workdir, limits, page).serve()
    except ProtocolError as error:
        print(f"farcall worker: {error}", file=sys.stderr)
    except ConnectionLostError:
        pass
    finally:
        endpoint.close()


def _await_session(control: socket.socket) -> tuple[dict[str, str], list[int]]:
    data, fds, _, _ = socket.recv_fds(control, 65536, 2)
    if len(fds) != 2:
        sys.exit(0)  # the supervisor closed: this spare was not needed
    return json.loads(data), fds


def _say(control: socket.socket, message: dict[str, str]) -> None:
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(message).encode() + b"\n")


def main(control_fd: int, options: dict[str, object]) -> None:
    """Prepare, take one session, serve it."""
    import farcall.rpc.dispatch  # noqa: F401  (ahead of the session)

    # Ctrl-C in the terminal goes to the whole group; the supervisor decides when we end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    limits = Limits(**options["limits"])  # type: ignore[arg-type]
    try:
        run_init(options.get("init"))  # type: ignore[arg-type]
    except UsageError as error:
        _say(control, {"error": str(error)})
        sys.exit(1)
    _say(control, {"ready": ""})
    session, (connection_fd, page_fd) = _await_session(control)
    workdir = Path(session["workdir"])
    os.chdir(workdir)
    threading.Thread(target=_leave_with_supervisor, args=(control, workdir), daemon=True).start()
    _serve(socket.socket(fileno=connection_fd), session["peer"], Page(page_fd), workdir, limits)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without the destructors of libraries that a client sent


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
