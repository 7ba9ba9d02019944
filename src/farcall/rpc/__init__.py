"""Sessions between processes and machines: connect to a server, or be one."""

from __future__ import annotations

from farcall.rpc.channels import Tls
from farcall.rpc.connecting import connect
from farcall.rpc.event import EventServer
from farcall.rpc.limits import Limits
from farcall.rpc.server import Server, serve, serve_stdio
from farcall.rpc.session import RemoteModule, Session

__all__ = [
    "EventServer",
    "Limits",
    "RemoteModule",
    "Server",
    "Session",
    "Tls",
    "connect",
    "serve",
    "serve_stdio",
]
