"""Elementwise nodes that the kernel of a Conv computes: each way to convolve, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import farcall as fc
from farcall.backends.c import CBackend
from farcall.toolchain import Target

from .harness import NATIVE, Compiled, compile_model, whole_region
from .test_threads import with_weights

# One Conv of each kind: windows, a product without windows, one window, tiles, planes, rows; its x, w and
# attributes.
KINDS = {
    "windows": ("[2, 5, 9, 11]", "[13, 5, 3, 2]", "<strides = [2, 1]>", "[2, 13, 4, 10]"),
    "product": ("[2, 30, 9, 40]", "[70, 30, 1, 1]", "", "[2, 70, 9, 40]"),
    "rows of a product": ("[1, 30, 3, 3]", "[200, 30, 1, 1]", "", "[1, 200, 3, 3]"),
    "columns behind vectors": ("[2, 300, 7, 7]", "[29, 300, 1, 1]", "", "[2, 29, 7, 7]"),
    "one window": ("[3, 20, 2, 3]", "[90, 20, 2, 3]", "", "[3, 90, 1, 1]"),
    "one element": ("[1, 300, 1, 1]", "[70, 300, 1, 1]", "", "[1, 70, 1, 1]"),
    "tiles": ("[2, 16, 14, 15]", "[24, 16, 3, 3]", "<pads = [1, 1, 1, 1]>", "[2, 24, 14, 15]"),
    "planes": ("[2, 6, 9, 11]", "[6, 1, 3, 3]", "<group = 6, strides = [2, 2]>", "[2, 6, 4, 5]"),
    "planes of 8": ("[2, 6, 9, 12]", "[6, 1, 5, 5]", "<group = 6>", "[2, 6, 5, 8]"),
    "large planes": ("[1, 2, 130, 120]", "[4, 1, 3, 3]", "<group = 2>", "[1, 4, 128, 118]"),
    "loops": ("[2, 4, 9, 11]", "[2, 4, 3, 3]", "", "[2, 2, 7, 9]"),
    "no image": ("[0, 5, 9, 11]", "[13, 5, 1, 1]", "", "[0, 13, 9, 11]"),
}
ENDS = {
    "Relu": "y = Relu (c)",
    "Clip": "y = Clip (c, low, high)",
    "residual": "s = Add (c, r) y = Relu (s)",
    "silu": "s = Sigmoid (c) y = Mul (c, s)",
    "hard": "h = HardSwish (c) m = Max (h, r, r) y = Add (m, low)",
}


def steps(model: onnx.ModelProto) -> list[str]:
    code = CBackend().compile(whole_region(model), Target.host(), {"profile": True})
    return [work.operator for work in code.work]


def model_of(kind: str, end: str) -> onnx.ModelProto:
    x, w, attributes, y = KINDS[kind]
    return with_weights(
        f"g (float{x} x, float{y} r) => (float{y} y) <float{w} w, float low = {{-0.5}}, float high = {{2}}>"
        f" {{ c = Conv {attributes} (x, w) {end} }}"
    )


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    shapes = {item.name: [d.dim_value for d in item.type.tensor_type.shape.dim] for item in model.graph.input}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def results(region: Compiled, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    return region(*(given[str(value.name)] for value in region.region.inputs))


def matches(region: Compiled, model: onnx.ModelProto) -> None:
    given = feeds(model)
    expected = ReferenceEvaluator(model).run(None, given)
    for one, other in zip(results(region, given), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=3e-4, atol=3e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_convolution(kind: str) -> None:
    for number, end in enumerate(ENDS.values()):
        if number in (0, 2, len(kind) % len(ENDS)) or (number == 3 and "planes" in kind):
            model = model_of(kind, end)
            assert len(steps(model)) == 1
            if kind != "no image":
                matches(compile_model(model, ("-O3", *NATIVE)), model)
            else:
                assert results(compile_model(model), feeds(model))[0].size == 0


def graph(text: str) -> onnx.ModelProto:
    head = "float[1, 8, 6, 6] x, float[1, 8, 1, 1] one, float[1, 8, 6, 6] r"
    return with_weights(f"g ({head}) {text}")


LEFT_ALONE = {
    "the result is an output": "=> (float[1, 8, 6, 6] c, float[1, 8, 6, 6] y) <float[8, 8, 1, 1] w>"
    " { c = Conv (x, w) y = Relu (c) }",
    "two groups read it": "=> (float[1, 8, 6, 6] y, float[1, 8, 1, 1] z) <float[8, 8, 1, 1] w>"
    " { c = Conv (x, w) y = Relu (c) z = GlobalMaxPool (c) }",
    "an operand broadcasts": "=> (float[1, 8, 6, 6] y) <float[8, 8, 1, 1] w>"
    " { c = Conv (x, w) y = Mul (c, one) }",
    "the result broadcasts": "=> (float[1, 8, 6, 6] y) <float[8, 8, 6, 6] w>"
    " { c = Conv (x, w) y = Mul (c, r) }",
    "two results": "=> (float[1, 8, 6, 6] y, float[1, 8, 6, 6] z) <float[8, 8, 1, 1] w>"
    " { c = Conv (x, w) y = Relu (c) z = Neg (y) }",
    "another dtype": "=> (double[1, 8, 6, 6] y) <float[8, 8, 1, 1] w>"
    " { c = Conv (x, w) y = Cast <to = 11> (c) }",
}


@pytest.mark.parametrize("text", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_is_left_alone(text: str) -> None:
    model = graph(text)
    assert len(steps(model)) > 1
    matches(compile_model(model), model)


def test_one_of_two_convolutions_has_the_sum() -> None:
    """The other one runs before it, and is its operand. A Conv that reads the sum has an end of its own."""
    model = graph(
        "=> (float[1, 8, 6, 6] z) <float[8, 8, 1, 1] w, float[8, 8, 3, 3] v>"
        " { c = Conv (x, w) d = Conv <pads = [1, 1, 1, 1]> (r, v) s = Add (c, d) y = Relu (s)"
        "   e = Conv (y, w) t = Add (e, y) z = Tanh (t) }"
    )
    assert len(steps(model)) == 3
    matches(compile_model(model, ("-O3", *NATIVE)), model)


def test_threads_compute_the_same(tmp_path: Path) -> None:
    text = """g (float[n, 40, 33, 35] x) => (float[n, 40, 33, 35] y)
     <float[100, 40, 1, 1] w, float[100, 1, 3, 3] d, float[40, 100, 1, 1] u, float[40, 40, 3, 3] t>
     { a = Conv (x, w) b = Relu (a) c = Conv <group = 100, pads = [1, 1, 1, 1]> (b, d) e = HardSwish (c)
       f = Conv (e, u) g = Add (f, x) h = Conv <pads = [1, 1, 1, 1]> (g, t) i = Sigmoid (h)
       y = Mul (h, i) }"""
    path = fc.partition(with_weights(text), backends=["c"]).build().save(tmp_path / "model.so")
    main = fc.load_module(path)["main"]
    for batch in (1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, 40, 33, 35)).astype(np.float32)
        alone = main(x, threads=1)
        for count in (2, 3, 7):
            np.testing.assert_array_equal(alone, main(x, threads=count))
