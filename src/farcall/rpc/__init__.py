"""Sessions between processes and machines: connect to a server, or be one."""

from __future__ import annotations

from farcall._core import Call, Pipeline
from farcall.rpc.channels import Tls
from farcall.rpc.client._connecting import connect
from farcall.rpc.client._connecting_async import PendingSession, connect_async
from farcall.rpc.client._deadlines import deadline
from farcall.rpc.client._device import RemoteDevice, Stream
from farcall.rpc.client._module import RemoteMap, RemoteModule, RemoteObject
from farcall.rpc.client._profile import Profile, ProfiledRegion, ProfiledStep, profile
from farcall.rpc.client._remote import Stats
from farcall.rpc.client._roof import Roof
from farcall.rpc.client._session import Session
from farcall.rpc.client._timing import Timing, TimingOptions, benchmark
from farcall.rpc.client._tracing import trace
from farcall.rpc.server._event import EventServer
from farcall.rpc.server._server import Server, serve, serve_forever, serve_stdio
from farcall.rpc.shared._limits import Limits

__all__ = [
    "Call",
    "EventServer",
    "Limits",
    "PendingSession",
    "Pipeline",
    "Profile",
    "ProfiledRegion",
    "ProfiledStep",
    "RemoteDevice",
    "RemoteMap",
    "RemoteModule",
    "RemoteObject",
    "Roof",
    "Server",
    "Session",
    "Stats",
    "Stream",
    "Timing",
    "TimingOptions",
    "Tls",
    "benchmark",
    "connect",
    "connect_async",
    "deadline",
    "profile",
    "serve",
    "serve_forever",
    "serve_stdio",
    "trace",
]
__dir__ = [*__all__, "channels", "tokens"].copy
