"""``rpc_tvm CALLS``: TVM's client and server, measured on request: a name a line on stdin, seconds on stdout.

A small work's seconds are the median of CALLS.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import rpc
from tvm.runtime import tensor

CALLS = int(sys.argv[1])


def _median(call: Callable[[], object], count: int = CALLS) -> float:
    clock, times = time.perf_counter, []
    for _ in range(count):
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times)


def works(remote: Any) -> dict[str, Callable[[], float]]:
    """By name: what gives the seconds of one unit."""
    device = remote.cpu(0)
    nop = remote.get_function("testing.nop")
    here, small = np.zeros(64 << 20, "uint8"), np.zeros(1024, "uint8")
    there, there_small = tensor(here, device), tensor(small, device)
    file = bytearray(32 << 20)
    return {
        "nop": lambda: _median(nop),
        "up": lambda: _median(lambda: there.copyfrom(here), 1),
        "down": lambda: _median(there.numpy, 1),
        "up1k": lambda: _median(lambda: there_small.copyfrom(small)),
        "down1k": lambda: _median(there_small.numpy),
        "file": lambda: _median(lambda: remote.upload(file, "bench.bin"), 1),
    }


def main() -> None:
    server = rpc.Server("127.0.0.1", port=21090, port_end=21999, key="k", silent=True)

    def open_session() -> Any:
        return rpc.connect("127.0.0.1", server.port, key="k")

    def connect() -> float:
        """One session at a time: that of the other works is closed for it."""
        nonlocal remote, known
        known = {}
        remote = None
        start = time.perf_counter()
        session = open_session()
        took = time.perf_counter() - start
        del session
        return took

    remote = open_session()
    known = works(remote)
    for line in sys.stdin:
        name = line.strip()
        print(connect() if name == "connect" else known[name](), flush=True)
    server.terminate()


if __name__ == "__main__":
    main()
