"""Products and convolutions of ResNet over the backends that call libraries, beside c and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser

import farcall as fc
from bench.harness import Row, rows

BACKENDS = ("blas", "onednn")


def run() -> list[Row]:
    """One thread each; the results are compared first."""
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
