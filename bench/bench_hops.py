"""Sessions through other servers: the cost of a hop, and the time that a pipeline saves.

The compared calls alternate one by one. The processes of a round trip work one after the other; see rpc_ends
for why they share a core.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import farcall as fc
from bench import rpc_exports
from bench.harness import Row, blocks, once, rows_of
from bench.rpc_ends import LAST, on_core, serve

HOPS = 3
DEPENDENT = 5
ROUNDS = 3000


def run() -> list[Row]:
    """All rows."""
    with ExitStack() as stack:
        rpc_exports.build(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        stack.enter_context(on_core(LAST))
        urls = [stack.enter_context(serve()) for _ in range(HOPS)]
        near = stack.enter_context(fc.connect(urls[0]))
        far = stack.enter_context(fc.connect(urls[-1], via=urls[:-1]))
        one, three = near.get_function("bench.nop"), far.get_function("bench.nop")
        times = blocks(
            {
                "one": lambda: once(one),
                "three": lambda: once(three),
                "chain": lambda: once(lambda: _chain(far, three)),
            },
            ROUNDS,
        )
    hop = {"farcall": times["three"], "one hop": times["one"]}
    chain = {"farcall": times["chain"], "one round trip": times["three"]}
    return [
        *rows_of(f"null call through {HOPS} hops", hop, ratios={"one hop": 3.5}),
        *rows_of(f"{DEPENDENT} dependent calls through {HOPS} hops", chain, ratios={"one round trip": 1.2}),
    ]


def _chain(session: fc.Session, function: fc.ffi.Function) -> None:
    """Each call takes the result of the previous one, which has not arrived yet."""
    with session.pipeline() as pipeline:
        call: object = 1
        for _ in range(DEPENDENT):
            call = pipeline(function, call)
