"""More requests of a TVM client to a farcall server: ``tvm_sweep.py HOST PORT KEY BYTES LIBRARY OTHER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import rpc
from tvm_client import caught

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64"]


def sweep(remote: Any) -> list[str]:
    """The dtypes and sizes for which a download differs from the upload."""
    wrong = []
    for dtype in DTYPES:
        for size in (0, 1, 3, 1001):
            x = (np.arange(size) % 2).astype(dtype)
            back = tvm.runtime.tensor(x, remote.cpu(0)).numpy()
            if back.dtype != x.dtype or not (back == x).all():
                wrong.append(f"{dtype}[{size}]")
    return wrong


def large(remote: Any, size: int) -> bool:
    """Whether ``size`` bytes survive an upload and a download."""
    x = np.random.default_rng(7).integers(0, 255, size, dtype="uint8")
    return bool((tvm.runtime.tensor(x, remote.cpu(0)).numpy() == x).all())


def library(remote: Any, path: str) -> dict[str, Any]:
    """The results of calling and timing a library's function."""
    remote.upload(path, "kernels.so")
    module = remote.load_module("kernels.so")
    same = bytes(remote.download_linked_module("kernels.so")) == Path(path).read_bytes()
    x = tvm.runtime.tensor(np.arange(5, dtype="float32"), remote.cpu(0))
    y = tvm.runtime.empty((5,), "float32", remote.cpu(0))
    module["add_one"](x, y)
    timer = module.time_evaluator("add_one", remote.cpu(0), number=3, repeat=4)
    seconds = timer(x, y).results
    return {
        "add_one": y.numpy().tolist(),
        "times": len(seconds),
        "same": same and all(t > 0 for t in seconds),
    }


def own_library(remote: Any, path: str) -> dict[str, Any]:
    """A library that TVM built; its functions check their arguments, and one takes none."""
    seen = library(remote, path)
    module = remote.load_module("kernels.so")
    x = tvm.runtime.tensor(np.zeros(5, "int32"), remote.cpu(0))
    seen["wrong dtype"] = caught(lambda: module["add_one"](x, x))
    seen["wrong number"] = caught(lambda: module["add_one"](x))
    seen["answer"] = module["answer"]()
    other = remote.load_module("kernels.so")
    other.import_module(module)
    return seen


def many(host: str, port: int, key: str) -> list[int]:
    """Open as many sessions as a TVM client can have, minus the one that is open."""
    sessions = [rpc.connect(host, port, key=key) for _ in range(30)]
    return [session.get_function("test.add")(i, 1) for i, session in enumerate(sessions)]


def timeout(host: str, port: int, key: str) -> str:
    """A session that ends in the middle of a call."""
    short = rpc.connect(host, port, key=key, session_timeout=1)
    return caught(short.get_function("test.forever"))


def main(host: str, port: int, key: str, size: int, path: str, built: str) -> dict[str, Any]:
    remote = rpc.connect(host, port, key=key)
    echo = remote.get_function("test.echo")
    return {
        "wrong": sweep(remote),
        "large": large(remote, size),
        "cut at NUL": echo("a\0b"),
        "device": str(remote.get_function("test.echo")(remote.cpu(0))),
        "library": library(remote, path),
        "own library": own_library(remote, built),
        "many": many(host, port, key),
        "timeout": timeout(host, port, key),
    }


if __name__ == "__main__":
    host, port, key, size, *libraries = sys.argv[1:]
    print(json.dumps(main(host, int(port), key, int(size), *libraries)))
