"""The worker: a process, forked by the zygote, that serves one session and ends.

It waits on its control socket for a client's connection (SCM_RIGHTS).
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from farcall import _core
from farcall.errors import ConnectionLostError, ProtocolError, UsageError
from farcall.rpc.channels import channel_of
from farcall.rpc.confine import confine
from farcall.rpc.limits import Limits
from farcall.rpc.packets import FIRST_REQUESTS
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


def serve_channel(
    channel: _core.Channel | _core.SharedChannel,
    session: dict[str, Any],
    limits: Limits,
    page: Page | None = None,
) -> None:
    """Serve one session to its end, in this process.

    Args:
        channel: to the client, behind the handshake.
        session: ``peer`` and ``workdir``, ``token`` and ``scopes`` where a token limits it, and ``store``, a
            folder of what sessions uploaded, where there is one.
        limits: of the session.
        page: where to note what is done.

    Raises:
        ProtocolError: the client broke the protocol, and was told.
    """
    from farcall.rpc.dispatch import Rights, dispatcher
    from farcall.rpc.scopes import parse_scopes
    from farcall.rpc.store import ContentStore

    memory = None if page is None else page.memory
    endpoint = _core.Endpoint(channel, session["peer"], limits.wire, client=False, page=memory)
    rights = Rights(session["token"], parse_scopes(session["scopes"])) if "token" in session else Rights()
    # Sessions find what others of the same token uploaded, and nothing else.
    owner = hashlib.sha256(rights.token.encode()).hexdigest()[:16]
    store = ContentStore(Path(session["store"]) / owner) if "store" in session else None
    try:
        dispatcher(endpoint, Path(session["workdir"]), limits, rights, store=store).serve()
    except ConnectionLostError:
        pass
    finally:
        endpoint.close()


def _call_hook(name: str) -> None:
    """A function that TVM's servers call around a session, where one is registered."""
    if (function := _core.get_global_func(name, allow_missing=True)) is not None:
        function()


def _rehearse(limits: Limits) -> None:
    """Serve the first requests of a session to nobody: the memory that this touches is copied after a fork,
    and a client need not wait for it."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(FIRST_REQUESTS)
        ours.shutdown(socket.SHUT_WR)
        serve_channel(channel_of([theirs.detach()]), {"peer": "", "workdir": "."}, limits, None)


def main(control: socket.socket, limits: Limits, late_init: str | None) -> NoReturn:
    """Take one session from ``control``, serve it, and end the process.

    Args:
        control: to the supervisor.
        limits: of the session.
        late_init: what the zygote could not run for us.
    """
    # A stop of the server reaches the whole group of processes; the supervisor decides when we end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_init(late_init)
    _rehearse(limits)
    data, descriptors, _, _ = socket.recv_fds(control, 65536, 8)
    if not data:
        os._exit(0)  # the supervisor closed: this spare was not needed
    control.close()
    session = json.loads(data)
    # Beside the folders of the server's sessions, and gone with them.
    session["store"] = str(Path(session["workdir"]).parent / "store")
    page = Page(descriptors.pop())
    os.chdir(session["workdir"])
    confine(limits)
    _call_hook("tvm.rpc.server.start")
    try:
        serve_channel(channel_of(descriptors), session, limits, page)
    except ProtocolError as error:
        page.broken = str(error)
    _call_hook("tvm.rpc.server.shutdown")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without the destructors of libraries that a client sent
