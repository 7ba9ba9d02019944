"""Sessions between processes and machines: connect to a server, or be one."""

from __future__ import annotations

from farcall._core import Call, Pipeline
from farcall.rpc.channels import Tls
from farcall.rpc.connecting import connect
from farcall.rpc.deadlines import deadline
from farcall.rpc.device import RemoteDevice, Stream
from farcall.rpc.event import EventServer
from farcall.rpc.limits import Limits
from farcall.rpc.module import RemoteModule, RemoteObject
from farcall.rpc.remote import Stats
from farcall.rpc.server import Server, serve, serve_stdio
from farcall.rpc.session import Session
from farcall.rpc.timing import Timing, TimingOptions, benchmark
from farcall.rpc.tracing import trace

__all__ = [
    "Call",
    "EventServer",
    "Limits",
    "Pipeline",
    "RemoteDevice",
    "RemoteModule",
    "RemoteObject",
    "Server",
    "Session",
    "Stats",
    "Stream",
    "Timing",
    "TimingOptions",
    "Tls",
    "benchmark",
    "connect",
    "deadline",
    "serve",
    "serve_stdio",
    "trace",
]
