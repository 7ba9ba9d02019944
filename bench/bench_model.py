"""Elementwise chains beside a loop written by hand, and the build of a small model."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import farcall as fc
from bench.harness import Row, rows

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits" / "digits.onnx"
FUSED = """
void fused(const float* restrict a, const float* restrict b, const float* restrict c,
           const float* restrict d, float* restrict y, long n) {
    for (long i = 0; i < n; ++i) y[i] = ((a[i] + b[i]) - c[i]) * d[i];
}
"""


def run() -> list[Row]:
    """Elementwise chains against numpy, onnxruntime and a hand-fused loop; the build of the demo model."""
    with tempfile.TemporaryDirectory() as folder:
        fused = {flags: _fused(Path(folder), flags) for flags in ("-O3", "-O3 -march=native")}
        return [*_chain(10, fused), *_chain(1000, fused), *_build(Path(folder))]


def _chain_model(n: int) -> onnx.ModelProto:
    """((a + b) - c) * d on float32[n, n]."""
    square = [n, n]
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["a", "b"], ["s"]),
            helper.make_node("Sub", ["s", "c"], ["t"]),
            helper.make_node("Mul", ["t", "d"], ["y"]),
        ],
        "chain",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, square) for name in "abcd"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, square)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _fused(folder: Path, flags: str) -> Callable[..., object]:
    """The hand-fused loop, built by the system compiler, called through ctypes with a preallocated result."""
    (folder / "fused.c").write_text(FUSED)
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("gcc") or "cc"]
    library = folder / f"fused{flags.replace(' ', '')}.so"
    subprocess.run(
        [*compiler, *flags.split(), "-shared", "-fPIC", "-o", library, folder / "fused.c"], check=True
    )
    function = ctypes.CDLL(str(library)).fused
    function.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_long]
    function.restype = None
    return function  # type: ignore[no-any-return]


def _chain(n: int, fused: Mapping[str, Callable[..., object]]) -> list[Row]:
    model = _chain_model(n)
    main = fc.partition(model).build().load()["main"]
    session = _session(model.SerializeToString())
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(4))
    y = np.empty_like(a)
    np.testing.assert_array_equal(main(a, b, c, d), ((a + b) - c) * d)
    pointers = [x.ctypes.data for x in (a, b, c, d, y)]
    size = a.size
    feeds = {"a": a, "b": b, "c": c, "d": d}
    contenders: dict[str, Callable[[], object]] = {
        "farcall": lambda: main(a, b, c, d),
        **{f"hand-fused {flags}": lambda loop=loop: loop(*pointers, size) for flags, loop in fused.items()},
        "numpy": lambda: ((a + b) - c) * d,
        "onnxruntime, 1 thread": lambda: session.run(None, feeds),
    }
    if n == 10:
        return rows(f"((a+b)-c)*d, float32 {n}x{n}", contenders, seconds=1e-6)
    limits = {"hand-fused -O3": 1.1, "numpy": 1.0, "onnxruntime, 1 thread": 1.0}
    return rows(f"((a+b)-c)*d, float32 {n}x{n}", contenders, ratios=limits)


def _build(folder: Path) -> list[Row]:
    """The demo model from ONNX to a saved artifact, with an empty object cache every time."""
    return [
        _build_row(folder, "c", "digits CNN, build (cold cache)", 0.5),
        _build_row(folder, "json", "digits CNN, build, only json", 0.1),
    ]


def _build_row(folder: Path, backend: str, name: str, reach: float) -> Row:
    samples = []
    for attempt in range(5):
        with patch.dict(os.environ, {"FARCALL_CACHE_DIR": str(folder / f"{backend}{attempt}")}):
            start = time.perf_counter()
            fc.partition(DIGITS, backends=[backend]).build().save(folder / "digits.so")
            samples.append(time.perf_counter() - start)
    low, middle, high = statistics.quantiles(samples, n=4)
    return Row(name, middle, (high - low) / middle, reach_seconds=reach)
