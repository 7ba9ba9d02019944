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
from farcall.rpc.server._relay import Devices
from farcall.rpc.server._scopes import parse_scopes
from farcall.rpc.server._status_page import StatusPage
from farcall.rpc.shared._limits import Limits


def run_init(text: str | None) -> None:
    """Call the function that ``--init PKG.MOD:FUNC`` names.

    Raises:
        UsageError: the function does not exist, or it failed.
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
        channel: to the client, after the handshake.
        policy: the session's functions and limits.
        peer: the client's name in messages.
        rights: what its token allows.
        page: the status page to write; None: there is no supervisor.

    Raises:
        ProtocolError: the client broke the protocol, and has been told.
    """
    memory = None if page is None else page.memory
    endpoint = _core.Endpoint(channel, peer, policy.limits, client=False, page=memory)
    try:
        policy.dispatcher(endpoint, rights).serve()
    except ConnectionLostError:
        pass
    finally:
        endpoint.close()
        policy.device_sessions.close()


def _call_hook(name: str) -> None:
    """Call a function that TVM's servers call before or after a session, if it is registered."""
    if (function := _core.get_global_func(name, allow_missing=True)) is not None:
        function()


class _Client(NamedTuple):
    """The client that the supervisor assigns to this worker."""

    descriptors: list[int]
    peer: str
    rights: Rights
    supervisor_at: str | None


def _receive(control: socket.socket) -> _Client | None:
    """Wait for the client; None when the supervisor closed the socket: this spare was not needed."""
    with control:
        data, descriptors, _, _ = socket.recv_fds(control, 65536, 8)
    if not data:
        return None
    told = json.loads(data)
    rights = Rights(told["token"], parse_scopes(told["scopes"])) if "token" in told else Rights()
    return _Client(descriptors, told["peer"], rights, told.get("supervisor_at"))


def _rehearse(policy: Policy) -> None:
    """Serve the first requests of a session without a client: this touches memory that the kernel copies
    after a fork, so that the client need not wait for the copies."""
    ours, control = socket.socketpair()
    here, there = socket.socketpair()
    with ours, here, there:
        here.sendall(FIRST_REQUESTS)
        here.shutdown(socket.SHUT_WR)
        socket.send_fds(ours, [b'{"peer": "nobody"}'], [there.fileno()])
        if nobody := _receive(control):
            serve_channel(channel_of(nobody.descriptors), policy, nobody.peer, nobody.rights)


def main(
    control: socket.socket,
    page_fd: int,
    workdir: Path,
    limits: Limits,
    late_init: str | None,
    devices: Devices,
) -> NoReturn:
    """Take one session from ``control``, serve it, and end the process.

    It does all work that needs no client before the client comes.

    Args:
        control: the socket to the supervisor.
        page_fd: descriptor of the status page, which the supervisor reads.
        workdir: the session's folder. Beside it is the store that the server's sessions share; both are
            removed when the server ends.
        limits: of the session.
        late_init: the ``--init`` that the zygote could not run; None: it has run.
        devices: the devices of the server.
    """
    # Ctrl-C reaches the whole process group; the supervisor decides when a worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_init(late_init)
    os.chdir(workdir)
    page = StatusPage(page_fd)
    policy = Policy(workdir, limits, store=workdir.parent / "store", devices=devices)
    _rehearse(policy)
    confine(limits)
    if (client := _receive(control)) is None:
        os._exit(0)
    _call_hook("tvm.rpc.server.start")
    page.listens = True
    policy.supervisor_at = client.supervisor_at
    try:
        serve_channel(channel_of(client.descriptors), policy, client.peer, client.rights, page)
    except ProtocolError as error:
        page.broken = str(error)
    _call_hook("tvm.rpc.server.shutdown")
    policy.flush_spans()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # skips the destructors of libraries that a client sent
