"""One call from Python into a C kernel, beside apache-tvm-ffi: same kernels, same GIL policy (released)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm_ffi

from bench.harness import Row, rows
from farcall import ffi
from farcall.toolchain.compiler import find_compiler

KERNELS = """
#include <farcall/c_api.h>

FARCALL_KERNEL(nothing) { return 0; }

FARCALL_KERNEL(fail) {
  TVMFFIErrorSetRaisedFromCStr("ValueError", "as it was asked to");
  return -1;
}

static DLTensor* tensor(const TVMFFIAny* any) {
  return any->type_index == kTVMFFITensor ? TVMFFITensorGetDLTensorPtr(any->v_obj) : (DLTensor*)any->v_ptr;
}

FARCALL_KERNEL(chain) {
  const float *a = tensor(&args[0])->data, *b = tensor(&args[1])->data;
  const float *c = tensor(&args[2])->data, *d = tensor(&args[3])->data;
  TVMFFIObjectHandle out;
  int64_t n = 1;
  if (TVMFFIEnvTensorAlloc(tensor(&args[0]), &out) != 0) return -1;
  float* y = TVMFFITensorGetDLTensorPtr(out)->data;
  for (int32_t i = 0; i < tensor(&args[0])->ndim; ++i) n *= tensor(&args[0])->shape[i];
  for (int64_t i = 0; i < n; ++i) y[i] = ((a[i] + b[i]) - c[i]) * d[i];
  result->type_index = kTVMFFITensor;
  result->v_obj = out;
  return 0;
}
"""
BATCH = 200


def run() -> list[Row]:
    """Calls of an empty kernel by kind of argument, and of one that allocates its result."""
    with tempfile.TemporaryDirectory() as folder:
        ours = ffi.load_library(_build(Path(folder), "ours"))
        # A file of its own: one that is loaded twice is mapped once, and bound to one runtime.
        theirs = tvm_ffi.load_module(str(_build(Path(folder), "theirs")))
        return [*_empty(ours, theirs), *_chain(ours, theirs), *_errors(ours, theirs)]


def _build(folder: Path, name: str) -> Path:
    (folder / f"{name}.c").write_text(KERNELS)
    flags = ["-O3", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{ffi.include_dir()}"]
    find_compiler().run([*flags, f"{name}.c", "-o", f"{name}.so"], folder, "benchmark kernels")
    return folder / f"{name}.so"


def _batch(function: Callable[..., object], args: tuple[Any, ...]) -> Callable[[], None]:
    """BATCH calls written as a user writes them: no wrapper around the call takes part in the time."""
    scope = {"f": function, "repeat": range(BATCH)} | {f"a{i}": arg for i, arg in enumerate(args)}
    actual = ", ".join(f"a{i}" for i in range(len(args)))
    local = ", ".join(f"{name}={name}" for name in scope)
    exec(f"def batch({local}):\n    for _ in repeat:\n        f({actual})\n", scope)  # noqa: S102 - our own text
    batch: Callable[[], None] = scope["batch"]
    return batch


def _single(row: Row) -> Row:
    return replace(row, ours=row.ours / BATCH, theirs=row.theirs / BATCH if row.theirs else None)


def _rows(
    work: str, ours: Callable[[], None], theirs: Callable[[], None], reach: float | None = None
) -> list[Row]:
    limits = {"apache-tvm-ffi": reach} if reach else None
    return [_single(row) for row in rows(work, {"farcall": ours, "apache-tvm-ffi": theirs}, ratios=limits)]


def _empty(ours: Any, theirs: Any) -> list[Row]:
    arrays = tuple(np.ones((10, 10), np.float32) for _ in range(3))
    f, g = ours["nothing"], theirs["nothing"]
    cases: list[tuple[str, tuple[Any, ...], float | None]] = [
        ("call: 3 ints", (1, 2, 3), 0.6),
        ("call: 3 torch tensors", tuple(map(torch.from_numpy, arrays)), 0.6),
        ("call: 3 numpy arrays", arrays, None),
        ("call: str of 26 characters", ("abcdefghijklmnopqrstuvwxyz",), None),
    ]
    result = [
        row for work, args, reach in cases for row in _rows(work, _batch(f, args), _batch(g, args), reach)
    ]
    own, rival = tuple(map(ffi.from_dlpack, arrays)), tuple(map(tvm_ffi.from_dlpack, arrays))
    return [*result, *_rows("call: 3 of the library's own Tensors", _batch(f, own), _batch(g, rival))]


def _chain(ours: Any, theirs: Any) -> list[Row]:
    arrays = tuple(np.random.default_rng(0).random((4, 10, 10), dtype=np.float32))
    a, b, c, d = arrays
    np.testing.assert_array_equal(ours["chain"](*arrays), ((a + b) - c) * d)
    rivals = {"numpy": _batch(lambda a, b, c, d: ((a + b) - c) * d, arrays)}
    timed = rows(
        "call: kernel chain, 4 numpy 10x10 -> numpy", {"farcall": _batch(ours["chain"], arrays)} | rivals
    )
    torches = tuple(map(torch.from_numpy, arrays))
    own, rival = _batch(ours["chain"], torches), _batch(theirs["chain"], torches)
    return [
        *(replace(_single(row), reach_seconds=0.7e-6) for row in timed),
        *_rows("call: kernel chain, 4 torch 10x10 -> torch", own, rival),
    ]


def _errors(ours: Any, theirs: Any) -> list[Row]:
    def caught(function: Callable[[], object]) -> Callable[[], None]:
        def call() -> None:
            try:
                function()
            except ValueError:
                return
            raise AssertionError("the kernel did not fail")

        return call

    contenders = {"farcall": caught(ours["fail"]), "apache-tvm-ffi": caught(theirs["fail"])}
    return rows("call: C error -> Python except", contenders)
