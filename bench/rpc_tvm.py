"""``python -m bench.rpc_tvm CALLS``: TVM's client and server. Reads a name per line, prints seconds.

The seconds of small work are the median of CALLS.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import rpc
from tvm.runtime import tensor

from bench.harness import median_call, once

CALLS = int(sys.argv[1])


def works(remote: Any) -> dict[str, Callable[[], float]]:
    """By name: functions that return the seconds of one unit of work."""
    device = remote.cpu(0)
    nop = remote.get_function("testing.nop")
    here, small = np.zeros(64 << 20, "uint8"), np.zeros(1024, "uint8")
    there, there_small = tensor(here, device), tensor(small, device)
    file = bytearray(32 << 20)
    return {
        "nop": lambda: median_call(nop, CALLS),
        "up": lambda: once(lambda: there.copyfrom(here)),
        "down": lambda: once(there.numpy),
        "up1k": lambda: median_call(lambda: there_small.copyfrom(small), CALLS),
        "down1k": lambda: median_call(there_small.numpy, CALLS),
        "file": lambda: once(lambda: remote.upload(file, "bench.bin")),
    }


def main() -> None:
    server = rpc.Server("127.0.0.1", port=21090, port_end=21999, key="k", silent=True)

    def open_session() -> Any:
        return rpc.connect("127.0.0.1", server.port, key="k")

    def connect() -> float:
        """TVM's server has one session at a time, so this closes the session of the other work."""
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
