"""Products, convolutions and networks over the backends that call libraries, beside c and onnxruntime."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser

import farcall as fc
from bench.harness import Row, blocks, rows, rows_of
from bench.networks import CASES

BACKENDS = ("blas", "onednn")
CALLS = 5
NETWORKS = {  # the ratios to `c` that we allow ourselves
    "ResNet-50": {"blas": 1.02, "onednn": 0.99},
    "MobileNetV3": {"blas": 1.02, "onednn": 0.95},
    "EfficientNet-B0": {"blas": 1.02, "onednn": 1.0},
    "MLP": {"blas": 1.02, "onednn": 1.1},
    "MiniLM": {"blas": 1.02, "onednn": 1.0},
}


def run() -> list[Row]:
    """One thread each; the results are compared first."""
    return [*_parts(), *_networks()]


def _networks() -> list[Row]:
    """Whole networks, beside the backend c alone, by the time of the CPU."""
    found: list[Row] = []
    for name, limits in NETWORKS.items():
        model = CASES[name].model()
        reference = fc.partition(model, backends=["c"]).build().load()["main"]
        for backend, limit in limits.items():
            ours = fc.partition(model, backends=[backend, "c"]).build().load()["main"]
            for size, make in CASES[name].inputs.items():
                calls = {"farcall": ours, "farcall over c": reference}
                contenders = {who: partial(call, *make(), threads=1) for who, call in calls.items()}
                _compare(*(call() for call in contenders.values()))
                times = blocks({who: partial(_warm, call) for who, call in contenders.items()}, 15)
                work = ", ".join(filter(None, (name, size, backend)))
                found += rows_of(work, times, ratios={"farcall over c": limit})
    return found


def _compare(found: Any, expected: Any) -> None:
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for one, other in pairs:
        wanted = np.from_dlpack(other)
        np.testing.assert_allclose(np.from_dlpack(one), wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())


def _warm(call: Callable[[], object]) -> float:
    """Seconds of a call by the CPU's time, when a first one has its weights in the caches."""
    call()
    start = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - start) / CALLS


def _parts() -> list[Row]:
    found: list[Row] = []
    for work, (text, shape, weights) in _works().items():
        model = _model(text, weights)
        x = _numbers(shape)
        reference = _farcall(model, ["c"], x)
        session = _session(model, x)
        for backend in BACKENDS:
            ours = _farcall(model, [backend, "c"], x)
            np.testing.assert_allclose(ours(), reference(), rtol=1e-3, atol=1e-3)
            contenders = {"farcall": ours, "farcall over c": reference, "onnxruntime, 1 thread": session}
            found += rows(f"{work}, {backend}", contenders)
    return found


def _works() -> dict[str, tuple[str, tuple[int, ...], dict[str, tuple[int, ...]]]]:
    works = {}
    for m, k, n in ((1, 512, 512), (128, 384, 1536), (1024, 1024, 1024)):
        text = f"g (float[{m}, {k}] x) => (float[{m}, {n}] y) {{ y = MatMul(x, w) }}"
        works[f"MatMul {m}x{k}x{n}"] = (text, (m, k), {"w": (k, n)})
    for size, ins, outs, taps, stride in (
        (56, 64, 64, 3, 1),
        (56, 256, 64, 1, 1),
        (7, 512, 512, 3, 1),
        (224, 3, 64, 7, 2),
    ):
        pad, out = taps // 2, size // stride
        attributes = f"pads = [{pad}, {pad}, {pad}, {pad}], strides = [{stride}, {stride}]"
        borders = f"(float[1, {ins}, {size}, {size}] x) => (float[1, {outs}, {out}, {out}] y)"
        text = f"g {borders} {{ c = Conv <{attributes}> (x, w, b) y = Relu(c) }}"
        weights = {"w": (outs, ins, taps, taps), "b": (outs,)}
        works[f"Conv+Relu {taps}x{taps}, {ins} to {outs} at {size}"] = (text, (1, ins, size, size), weights)
    text = """g (float[1, 256, 56, 56] x) => (float[1, 256, 56, 56] y) {
      a = Conv(x, u, b) c = Relu(a) d = Conv <pads = [1, 1, 1, 1]> (c, v, b) e = Relu(d)
      f = Conv(e, w) s = Add(f, x) y = Relu(s) }"""
    weights = {"u": (64, 256, 1, 1), "v": (64, 64, 3, 3), "w": (256, 64, 1, 1), "b": (64,)}
    works["a block of ResNet-50"] = (text, (1, 256, 56, 56), weights)
    return works


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).uniform(-0.1, 0.1, shape).astype(np.float32)


def _model(text: str, weights: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    for name, shape in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(_numbers(shape), name))
    return model


def _farcall(model: onnx.ModelProto, backends: list[str], x: np.ndarray) -> Callable[[], object]:
    main = fc.partition(model, backends=backends).build().load()["main"]
    return lambda: main(x)


def _session(model: onnx.ModelProto, x: np.ndarray) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": x})
