"""The worker: a process, forked by the zygote, that serves one session and ends.

It waits on its control socket for a client's connection (SCM_RIGHTS).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NamedTuple, NoReturn

from farcall import _core
from farcall.errors import ConnectionLostError, ProtocolError, UsageError
from farcall.rpc.channels import channel_of
from farcall.rpc.server._confine import confine
from farcall.rpc.server._dispatch import Policy, Rights
from farcall.rpc.server._raw_packets import FIRST_REQUESTS
from farcall.rpc.server._scopes import parse_scopes
from farcall.rpc.server._status_page import StatusPage
from farcall.rpc.shared._limits import Limits


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
    policy: Policy,
    peer: str,
    rights: Rights | None = None,
    page: StatusPage | None = None,
) -> None:
    """Serve one session to its end, in this process.

    Args:
        channel: to the client, behind the handshake.
        policy: what the session may do, and by which limits.
        peer: how messages call the client.
        rights: what its token allows.
        page: where to note what is done.

    Raises:
        ProtocolError: the client broke the protocol, and was told.
    """
    memory = None if page is None else page.memory
    endpoint = _core.Endpoint(channel, peer, policy.limits, client=False, page=memory)
    try:
        policy.dispatcher(endpoint, rights).serve()
    except ConnectionLostError:
        pass
    finally:
        endpoint.close()


def _call_hook(name: str) -> None:
    """A function that TVM's servers call around a session, where one is registered."""
    if (function := _core.get_global_func(name, allow_missing=True)) is not None:
        function()


class _Client(NamedTuple):
    """Whom the supervisor gives to this worker."""

    descriptors: list[int]
    peer: str
    rights: Rights


def _receive(control: socket.socket) -> _Client | None:
    """The client; None when the supervisor closed: this spare was not needed."""
    with control:
        data, descriptors, _, _ = socket.recv_fds(control, 65536, 8)
    if not data:
        return None
    told = json.loads(data)
    rights = Rights(told["token"], parse_scopes(told["scopes"])) if "token" in told else Rights()
    return _Client(descriptors, told["peer"], rights)


def _rehearse(policy: Policy) -> None:
    """Serve the first requests of a session to nobody: the memory that this touches is copied after a fork,
    and a client need not wait for it."""
    ours, control = socket.socketpair()
    here, there = socket.socketpair()
    with ours, here, there:
        here.sendall(FIRST_REQUESTS)
        here.shutdown(socket.SHUT_WR)
        socket.send_fds(ours, [b'{"peer": "nobody"}'], [there.fileno()])
        if nobody := _receive(control):
            serve_channel(channel_of(nobody.descriptors), policy, nobody.peer, nobody.rights)


def main(
    control: socket.socket, page_fd: int, workdir: Path, limits: Limits, late_init: str | None
) -> NoReturn:
    """Take one session from ``control``, serve it, and end the process.

    All that needs no client is done before there is one.

    Args:
        control: to the supervisor.
        page_fd: of the memory in which it looks what we do.
        workdir: the session's own folder. Beside it is what the server's sessions share; both go with the
            server.
        limits: of the session.
        late_init: what the zygote could not run for us.
    """
    # A stop of the server reaches the whole group of processes; the supervisor decides when we end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_init(late_init)
    os.chdir(workdir)
    page = StatusPage(page_fd)
    policy = Policy(workdir, limits, store=workdir.parent / "store")
    _rehearse(policy)
    confine(limits)
    if (client := _receive(control)) is None:
        os._exit(0)
    _call_hook("tvm.rpc.server.start")
    page.listens = True
    try:
        serve_channel(channel_of(client.descriptors), policy, client.peer, client.rights, page)
    except ProtocolError as error:
        page.broken = str(error)
    _call_hook("tvm.rpc.server.shutdown")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without the destructors of libraries that a client sent
