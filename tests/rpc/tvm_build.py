"""Build a library with Apache TVM's own compiler: ``python tvm_build.py FILE``."""

# ruff: noqa: N805, N806, N812  (names that TVMScript requires)

from __future__ import annotations

import sys

import tvm
from tvm.script import ir as I
from tvm.script import tirx as T


@I.ir_module
class Kernels:
    """``add_one(x, out)`` at any length, and ``answer()``."""

    @T.prim_func
    def add_one(x: T.handle, out: T.handle):
        n = T.int32()
        X = T.match_buffer(x, (n,), "float32")
        Out = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            Out[i] = X[i] + T.float32(1)

    @T.prim_func
    def answer() -> T.int64:
        return T.int64(42)


if __name__ == "__main__":
    target = "llvm" if tvm.get_global_func("target.build.llvm", allow_missing=True) else "c"
    tvm.compile(Kernels, target=target).export_library(sys.argv[1])
