"""A real TVM client of a session that continues to another server; it does not import farcall.

``python tvm_chain.py HOST PORT KEY NEXT_PORT NEXT_KEY``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tvm
from tvm import rpc
from tvm_client import caught


def through(host: str, port: int, key: str, next_port: int, next_key: str) -> dict[str, Any]:
    """The results that the client gets over two hops."""
    hop = ["rpc.Connect", "127.0.0.1", next_port, next_key, False]
    remote = rpc.connect(host, port, key=key, session_constructor_args=hop)
    x = np.arange(3_000_000, dtype="uint8")
    there = tvm.runtime.tensor(x, remote.cpu(0))
    small = tvm.runtime.tensor(np.arange(4, dtype="float32"), remote.cpu(0))
    made = remote.get_function("test.make")(5)
    seen = {
        "add": remote.get_function("test.add")(20, 22),
        "text": remote.get_function("test.echo")("hello"),
        "large": bool((there.numpy() == x).all()),
        "sum": remote.get_function("test.sum")(small),
        "made": made.numpy().tolist(),
        "sum of made": remote.get_function("test.sum")(made),
        "exception": caught(lambda: remote.get_function("test.fail")("not today")),
        "missing": caught(lambda: remote.get_function("test.missing")),
    }
    del there, small, made
    seen["after frees"] = remote.get_function("test.add")(1, 2)
    return seen


if __name__ == "__main__":
    host, port, key, next_port, next_key = sys.argv[1:]
    print(json.dumps(through(host, int(port), key, int(next_port), next_key)))
