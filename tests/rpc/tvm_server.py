"""A real TVM RPC server in a separate process: ``[MAX_PACKET=n] python tvm_server.py``.

It prints its port as the first line, and serves until stdin closes. With MAX_PACKET it accepts packets of at
most so many bytes, as servers for microcontrollers do.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import rpc


def register() -> None:
    """Register the functions that the server exports."""

    def array(*items: Any) -> Any:
        return tvm.runtime.convert(list(items))

    def fail(text: str) -> None:
        raise ValueError(text)

    def make(n: int) -> Any:
        return tvm.runtime.tensor(np.arange(n, dtype="float32"))

    exports: dict[str, Any] = {
        "add": lambda a, b: a + b,
        "adder": lambda n: tvm_ffi.convert(lambda x: x + n),
        "array": array,
        "call": lambda f, x: f(x),
        "echo": lambda x: x,
        "fail": fail,
        "make": make,
        "map": lambda: tvm.runtime.convert({"a": 1}),
        "nop": lambda: None,
        "pid": os.getpid,
        "pair": lambda n: [make(n), make(n + 1)],
        "size": len,
        "wait": threading.Event().wait,
        "sum": lambda x: float(x.numpy().astype("float64").sum()),
    }
    for name, function in exports.items():
        tvm.register_global_func(f"test.{name}", function, override=True)
    if limit := int(os.environ.get("MAX_PACKET", "0")):  # the server runs in a further process
        tvm.register_global_func("tvm.rpc.server.GetCRTMaxPacketSize", lambda: limit, override=True)


if __name__ == "__main__":
    server = rpc.Server(
        "127.0.0.1", port=20090, port_end=20999, key="k", server_init_callback=register, silent=True
    )
    print(server.port, flush=True)
    sys.stdin.read()
    server.terminate()
