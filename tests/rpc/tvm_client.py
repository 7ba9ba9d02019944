"""A real TVM client in a separate process, without farcall: ``tvm_client.py HOST PORT KEY``."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tvm
from tvm import rpc


def caught(call: Any) -> str:
    """The class and text of the error."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def tensors(remote: Any) -> dict[str, Any]:
    """Upload and download arrays."""
    same = {}
    for dtype in ("float32", "float64", "float16", "int8", "int32", "int64", "uint8", "uint64", "bool"):
        for shape in ((1,), (5,), (2, 3), (0, 4)):
            x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
            back = tvm.runtime.tensor(x, remote.cpu(0)).numpy()
            same[f"{dtype}{shape}"] = back.dtype == x.dtype and bool((back == x).all())
    return same


def call(host: str, port: int, key: str) -> dict[str, Any]:
    """The results that a TVM client gets from a farcall server."""
    remote = rpc.connect(host, port, key=key)
    function = remote.get_function
    echo = function("test.echo")
    values = [None, True, 7, -(2**40), 1.5, "", "short", "x" * 100]
    raw = [b"", b"ab", b"y" * 100]
    x = tvm.runtime.tensor(np.arange(6, dtype="float32").reshape(2, 3), remote.cpu(0))
    scaled = function("test.scale")(x, 2.0)
    twice = function("test.scale")(scaled, 2.0)
    remote.upload(bytearray(b"hello"), "a.bin")
    module = function("test.module")()
    timing = module.time_evaluator("answer", remote.cpu(0), number=3, repeat=4, f_preproc="test.count")()
    seen = {
        "timing": [*timing.results, timing.mean, timing.median, timing.min, timing.max, timing.std],
        "add": function("test.add")(20, 22),
        "values": [echo(value) == value for value in values],
        "bytes": [bytes(echo(value)) == value for value in raw],
        "dtype": str(echo(tvm.DataType("float16"))),
        "closure": function("test.adder")(5)(1),
        "exception": caught(lambda: function("test.fail")("ValueError", "reason")),
        "missing": caught(lambda: function("test.missing")),
        "escape": caught(lambda: remote.upload(bytearray(b"x"), "../x")),
        "sum": function("test.sum")(x),
        "twice": twice.numpy().tolist(),
        "array": type(function("test.several")(x)).__name__,
        "tensors": tensors(remote),
        "download": bytes(remote.download("a.bin")).decode(),
        "listdir": remote.listdir(""),
        "cuda": remote.cuda(0).exist,
    }
    remote.remove("a.bin")
    seen["removed"] = caught(lambda: remote.download("a.bin"))
    del x, scaled, twice, echo
    seen["after frees"] = function("test.add")(1, 2)
    timed = rpc.connect(host, port, key=key, session_timeout=100.0)
    seen["with timeout"] = timed.get_function("test.add")(1, 2)
    seen["wrong key"] = caught(lambda: rpc.connect(host, port, key="wrong"))
    return seen


if __name__ == "__main__":
    print(json.dumps(call(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
