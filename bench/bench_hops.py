"""Sessions that go on through other servers: what a hop costs, and what a pipeline saves.

All ends run on this machine. The processes of one round trip work one after the other: two cores are enough.
"""

from __future__ import annotations

from contextlib import ExitStack

import farcall as fc
from bench.harness import Row, rows
from farcall.rpc import Session

EXPORTS = "bench.bench_hops:register"
HOPS = 3
DEPENDENT = 5


def register() -> None:
    """The workers' ``--init``."""
    fc.register_global_func("bench.echo", lambda x: x)


def run() -> list[Row]:
    """All rows."""
    with ExitStack() as stack:
        servers = [stack.enter_context(fc.rpc.Server(init=EXPORTS)) for _ in range(HOPS)]
        urls = [server.url for server in servers]
        near = stack.enter_context(fc.connect(urls[0]))
        far = stack.enter_context(fc.connect(urls[-1], via=urls[:-1]))
        one, three = near.get_function("bench.echo"), far.get_function("bench.echo")
        return [
            *rows(
                f"null call through {HOPS} hops",
                {"farcall": lambda: three(1), "one hop": lambda: one(1)},
                ratios={"one hop": 3.5},
            ),
            *rows(
                f"{DEPENDENT} dependent calls through {HOPS} hops",
                {"farcall": lambda: _chain(far, three), "one round trip": lambda: three(1)},
                ratios={"one round trip": 1.2},
            ),
        ]


def _chain(session: Session, function: fc.ffi.Function) -> None:
    """Each call takes the result of the one before, which is not here yet."""
    with session.pipeline() as pipeline:
        call: object = 1
        for _ in range(DEPENDENT):
            call = pipeline(function, call)
