"""The exports of tvm_server.py, on a farcall server."""

from __future__ import annotations

import numpy as np

import farcall as fc

INIT = f"{__name__}:register"


def _fail(text: str) -> None:
    raise ValueError(text)


def register() -> None:
    """Register everything."""
    exports = {
        "add": lambda a, b: a + b,
        "echo": lambda x: x,
        "fail": _fail,
        "make": lambda n: np.arange(n, dtype="float32"),
        "sum": lambda x: float(x.numpy().sum()),
    }
    for name, function in exports.items():
        fc.register_global_func(f"test.{name}", function)
