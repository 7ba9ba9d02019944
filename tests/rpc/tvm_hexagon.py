"""A real TVM client of a Hexagon session, as TVM's launchers opened them; it does not import farcall.

``python tvm_hexagon.py PORT KEY``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tvm
from tvm import rpc
from tvm_client import caught

_CONSTRUCTOR = "tvm.contrib.hexagon.create_hexagon_session"


def on_hexagon(port: int, key: str) -> dict[str, Any]:
    """The results that the client gets."""
    arguments = [_CONSTRUCTOR, "hexagon-rpc", 256 * 1024, "", 256 * 1024 * 1024]
    remote = rpc.connect("127.0.0.1", port, key=key, session_constructor_args=arguments)
    x = np.arange(300_000, dtype="float32")
    there = tvm.runtime.tensor(x, remote.cpu(0))
    remote.get_function("test.twice")(there)
    return {
        "text": remote.get_function("test.echo")("hello"),
        "twice": bool((there.numpy() == 2 * x).all()),
        "missing": caught(lambda: remote.get_function("test.missing")),
    }


if __name__ == "__main__":
    port, key = sys.argv[1:]
    print(json.dumps(on_hexagon(int(port), key)))
