"""Operators between DequantizeLinear and QuantizeLinear, on integers: with onnxruntime's bits."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import farcall as fc
from farcall.graph import load_model

from ..exact_bytes import seven_bits
from .harness import compile_regions, whole_region

ort = pytest.importorskip("onnxruntime")

HEAD = '<ir_version: 9, opset_import: ["" : 17]> g '


def model(text: str, **constants: Any) -> onnx.ModelProto:
    """A model from text, with further initializers."""
    found = parser.parse_model(HEAD + text)
    for name, data in constants.items():
        found.graph.initializer.append(numpy_helper.from_array(np.asarray(data), name))
    return found


def narrow(*shape: int, dtype: type = np.uint8, seed: int = 0) -> np.ndarray:
    bounds = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def expected(found: onnx.ModelProto, feeds: dict[str, np.ndarray], fused: bool = True) -> list[np.ndarray]:
    options = ort.SessionOptions()
    if not fused:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(found.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, feeds)
    return results


def check(models: list[onnx.ModelProto], pattern: str, feeds: dict[str, np.ndarray]) -> None:
    """Compare each bit with onnxruntime, and tell whether each model is one match of a pattern."""
    regions = [whole_region(item, name=f"c_{i}") for i, item in enumerate(models)]
    for item, compiled in zip(models, compile_regions(regions, flags=["-O0"]), strict=True):
        assert [match.pattern for match in compiled.region.matches] == [pattern]
        results = compiled(*(feeds[str(value.name)] for value in compiled.region.inputs))
        for got, wanted in zip(results, expected(item, feeds), strict=True):
            np.testing.assert_array_equal(got, wanted)


# Scales with few digits, so that many results are halfway between two integers.
X, Y = {"xs": np.float32(0.75), "xz": np.uint8(7)}, {"ys": np.float32(1.5), "yz": np.uint8(11)}
W = {"ws": np.float32(0.5), "wz": np.int8(0)}
OTHER = {"ws": np.float32(1.25), "wz": np.uint8(100)}
IN, OUT = "X = DequantizeLinear(x, xs, xz)", "y = QuantizeLinear(Y, ys, yz)"
RIGHT = "V = DequantizeLinear<axis = {axis}>(w, ws, wz)"


def columns(count: int) -> dict[str, np.ndarray]:
    return {"ws": narrow(count, seed=5).astype(np.float32) / 64, "wz": np.zeros(count, np.int8)}


def test_convolutions() -> None:
    x, w = narrow(1, 4, 7, 6), seven_bits(8, 4, 3, 3, seed=1)
    head = "(uint8[1, 4, 7, 6] x) => (uint8[1, 8, h, k] y)"
    right, bias = RIGHT.format(axis=0), "B = DequantizeLinear<axis = 0>(b, bs)"
    models = []
    for scales, with_bias in itertools.product((W, columns(8)), (False, True)):
        add = {"b": narrow(8, seed=2).astype(np.int32) * 9, "bs": X["xs"] * scales["ws"]} if with_bias else {}
        conv = f"Y = Conv<pads = [1, 0, 1, 1]>(X, V{', B' * with_bias})"
        text = f"{head} {{ {IN} {right} {bias * with_bias} {conv} {OUT} }}"
        models.append(model(text, w=w, **X, **scales, **Y | {"ys": np.float32(96)}, **add))
    floats = {"b": narrow(8, seed=2).astype(np.float32) / 3}
    text = f"{head} {{ {IN} {right} Y = Conv<pads = [1, 0, 1, 1]>(X, V, b) {OUT} }}"
    models.append(model(text, w=w, **X, **columns(8), **Y | {"ys": np.float32(96)}, **floats))
    check(models, "qlinear_conv", {"x": x})


def test_products_of_matrices() -> None:
    x, w = narrow(5, 12), seven_bits(12, 9, seed=1)
    head, large = "(uint8[5, 12] x) => (uint8[5, 9] y)", Y | {"ys": np.float32(192)}
    right = RIGHT.format(axis=1)
    product = [
        model(f"{head} {{ {IN} {right} Y = MatMul(X, V) {OUT} }}", w=w, **X, **scales, **large)
        for scales in (W, columns(9))
    ]
    check(product, "qlinear_matmul", {"x": x})
    to_float = f"(uint8[5, 12] x) => (float[5, 9] Y) {{ {IN} {right} Y = MatMul(X, V) }}"
    check([model(to_float, w=w, **X, **W)], "matmul_integer_to_float", {"x": x})
    bias = {"b": narrow(9, seed=2).astype(np.int32) * 9, "bs": X["xs"] * W["ws"] * np.float32(1.5)}
    gemm = "B = DequantizeLinear(b, bs) Y = Gemm<transB = 1, alpha = 1.5>(X, V, B)"
    turned = f"{head} {{ {IN} {RIGHT.format(axis=0)} {gemm} {OUT} }}"
    plain = model(f"{head} {{ {IN} {right} Y = Gemm(X, V) {OUT} }}", w=w, **X, **columns(9), **large)
    found = model(turned, w=w.T.copy(), **X, **W, **large, **bias)
    check([found, plain], "qlinear_gemm", {"x": x})


def test_sums_means_and_moves() -> None:
    x, second = (
        narrow(2, 3, 4, 8),
        {"w": narrow(2, 3, 4, 8, seed=1), "ws": np.float32(1.25), "wz": np.uint8(100)},
    )
    head, right = "(uint8[2, 3, 4, 8] x) => (uint8[a, b, c, d] y)", RIGHT.format(axis=1)
    both = f"{head} {{ {IN} {right} Y = %s(X, V) {OUT} }}"
    check([model(both % "Add", **X, **second, **Y)], "qlinear_add", {"x": x})
    check([model(both % "Mul", **X, **second, **Y | {"ys": np.float32(90)})], "qlinear_mul", {"x": x})
    check([model(both % "Concat<axis = 1>", **X, **second, **Y)], "qlinear_concat", {"x": x})
    mean = f"{head} {{ {IN} Y = GlobalAveragePool(X) {OUT} }}"
    check([model(mean, **X, **Y)], "qlinear_global_average_pool", {"x": x})
    same = {"ys": X["xs"], "yz": X["xz"]}
    moves = ["MaxPool<kernel_shape = [2, 2], pads = [1, 0, 0, 1]>(X)", "Transpose<perm = [0, 2, 3, 1]>(X)"]
    moved = [model(f"{head} {{ {IN} Y = {text} {OUT} }}", **X, **same) for text in moves]
    shaped = f"(uint8[2, 3, 4, 8] x) => (uint8[2, 96] y) {{ {IN} Y = Reshape(X, shape) {OUT} }}"
    check([*moved, model(shaped, shape=[2, 96], **X, **same)], "quantized_move", {"x": x})


@pytest.mark.parametrize(
    "activation, low, high", [("Relu(A)", 11, 255), ("Clip(A, zero, six)", 11, 15), ("Clip(A, , six)", 0, 15)]
)
def test_an_activation_becomes_bounds(activation: str, low: int, high: int) -> None:
    """Also where 0 is not the least quantized value: the bounds are quantized as other numbers are."""
    second = {"w": narrow(9, seed=1), **OTHER}
    limits = {"zero": np.float32(0), "six": np.float32(6)}
    text = f"(uint8[9] x) => (uint8[9] y) {{ {IN} {RIGHT.format(axis=0)} %s {OUT} }}"
    found = model(text % f"A = Add(X, V) Y = {activation}", **X, **second, **Y, **limits)
    (compiled,) = compile_regions([whole_region(found)])
    assert [match.pattern for match in compiled.region.matches] == ["qlinear_add"]
    (plain,) = expected(model(text % "Y = Add(X, V)", **X, **second, **Y), {"x": narrow(9)})
    np.testing.assert_array_equal(compiled(narrow(9))[0], np.clip(plain, low, high))


def test_softmax() -> None:
    text = f"(uint8[2, 3, 4, 8] x) => (uint8[2, 3, 4, 8] y) {{ {IN} Y = Softmax<axis = AXIS>(X) {OUT} }}"
    steps = {"ys": np.float32(0.0039), "yz": np.uint8(3)}
    models = [model(text.replace("AXIS", axis), **X, **steps) for axis in ("-1", "1")]
    check(models, "qlinear_softmax", {"x": narrow(2, 3, 4, 8)})


def test_what_integers_cannot_compute_stays_float() -> None:
    """A bias on another scale, a move to another scale, and weights with scales of another axis."""
    x, w = narrow(1, 4, 6, 6), narrow(8, 4, 1, 1, dtype=np.int8, seed=1)
    head = "(uint8[1, 4, 6, 6] x) => (uint8[a, b, c, d] y)"
    bias = {"b": np.arange(8, dtype=np.int32), "bs": np.float32(2)}
    other = "B = DequantizeLinear(b, bs) Y = Conv(X, V, B)"
    models = [
        model(f"{head} {{ {IN} {RIGHT.format(axis=0)} {other} {OUT} }}", w=w, **X, **W, **Y, **bias),
        model(f"{head} {{ {IN} {RIGHT.format(axis=1)} Y = Conv(X, V) {OUT} }}", w=w, **X, **columns(4), **Y),
        model(f"{head} {{ {IN} Y = MaxPool<kernel_shape = [2, 2]>(X) {OUT} }}", **X, **Y),
    ]
    regions = [whole_region(item, name=f"c_{i}") for i, item in enumerate(models)]
    for item, compiled in zip(models, compile_regions(regions), strict=True):
        assert not any("q" in match.pattern and "_" in match.pattern for match in compiled.region.matches)
        (wanted,) = expected(item, {"x": x}, fused=False)
        assert abs(compiled(x)[0].astype(int) - wanted).max() <= 1


def test_each_reader_dequantizes_for_itself() -> None:
    second = {"w": narrow(9, seed=1), **OTHER}
    body = f"{IN} {RIGHT.format(axis=0)} Y = Add(X, V) {OUT} Z = Mul(X, V) z = QuantizeLinear(Z, ys, yz)"
    found = model(f"(uint8[9] x) => (uint8[9] y, uint8[9] z, float[9] X) {{ {body} }}", **X, **second, **Y)
    (compiled,) = compile_regions([whole_region(found)])
    assert {match.pattern for match in compiled.region.matches} == {
        "qlinear_add",
        "qlinear_mul",
        "DequantizeLinear",
    }
    results = dict(zip([value.name for value in compiled.region.outputs], compiled(narrow(9)), strict=True))
    for name, wanted in zip("yzX", expected(found, {"x": narrow(9)}), strict=True):
        np.testing.assert_array_equal(results[name], wanted)


def test_weights_stay_integers_only_for_products_of_integers() -> None:
    weights = {"w": narrow(4, 5, dtype=np.int8), **W}
    mixed = f"(float[3, 4] X) => (float[3, 5] Y) {{ {RIGHT.format(axis=1)} Y = MatMul(X, V) }}"
    (node,) = load_model(model(mixed, **weights)).graph
    assert node.op_type == "MatMul"
    whole = f"(uint8[3, 4] x) => (float[3, 5] Y) {{ {IN} {RIGHT.format(axis=1)} Y = MatMul(X, V) }}"
    assert len(load_model(model(whole, **X, **weights)).graph) == 3


class Samples:
    """Data for onnxruntime's calibration."""

    def __init__(self) -> None:
        self._left = iter(images(2, seed) for seed in range(3))

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(({"x": item} for item in self._left), None)


def images(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 3, 16, 16)).astype(np.float32)


def residual_network() -> onnx.ModelProto:
    """Convolutions with and without an activation, depthwise too, a residual sum, pools, and a classifier."""
    rng = np.random.default_rng(0)
    weights = {
        name: (rng.standard_normal(shape) * 0.3).astype(np.float32)
        for name, shape in [
            ("w0", (4, 3, 3, 3)), ("b0", (4,)), ("w1", (8, 4, 3, 3)), ("b1", (8,)), ("w2", (8, 8, 3, 3)),
            ("b2", (8,)), ("w3", (8, 4, 1, 1)), ("b3", (8,)), ("w4", (8, 1, 3, 3)), ("b4", (8,)),
            ("w5", (5, 16)), ("b5", (5,)),
        ]
    }  # fmt: skip
    body = """(float[n, 3, 16, 16] x) => (float[n, 5] y) {
        a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w0, b0)  ar = Relu(a)
        p = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(ar)
        c = Conv<pads = [1, 1, 1, 1]>(p, w1, b1)  cr = Relu(c)
        d = Conv<pads = [1, 1, 1, 1]>(cr, w2, b2)  e = Conv(p, w3, b3)
        s = Add(d, e)  t = Relu(s)
        u = Conv<pads = [1, 1, 1, 1], group = 8>(t, w4, b4)  v = Concat<axis = 1>(t, u)
        g = GlobalAveragePool(v)  f = Flatten(g)
        y = Gemm<transB = 1>(f, w5, b5)
    }"""
    found = parser.parse_model('<ir_version: 8, opset_import: ["" : 13]> g ' + body)
    found.graph.initializer.extend(numpy_helper.from_array(data, name) for name, data in weights.items())
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("activations, weights, each", [("QUInt8", "QInt8", True), ("QInt8", "QInt8", False)])
def test_a_quantized_network_gives_onnxruntimes_bits(
    tmp_path: Path, form: str, activations: str, weights: str, each: bool
) -> None:
    tools = pytest.importorskip("onnxruntime.quantization")
    onnx.save(residual_network(), tmp_path / "float.onnx")
    tools.quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "quantized.onnx",
        Samples(),
        quant_format=tools.QuantFormat[form],
        activation_type=tools.QuantType[activations],
        weight_type=tools.QuantType[weights],
        per_channel=each,
        reduce_range=activations != weights,  # to seven bits: see exact_bytes.py
    )
    found = onnx.load(tmp_path / "quantized.onnx")
    plan = fc.partition(found, backends=["c"])
    floats = {"Conv", "Gemm", "Add", "GlobalAveragePool"}
    assert floats.isdisjoint(match.pattern for region in plan.regions for match in region.matches)
    x = images(3, 9)
    np.testing.assert_array_equal(plan.build().load()["main"](x), expected(found, {"x": x})[0])


def test_why_names_the_pattern() -> None:
    body = f"{IN} {RIGHT.format(axis=0)} [conv] Y = Conv(X, V) {OUT}"
    text = f"(uint8[1, 4, 6, 6] x) => (uint8[a, b, c, d] y) {{ {body} }}"
    plan = fc.partition(model(text, w=narrow(8, 4, 1, 1, dtype=np.int8), **X, **W, **Y), backends=["c"])
    assert plan.why("conv").pattern == "qlinear_conv"
    assert "qlinear_conv" in str(plan.why("conv"))
