"""Elementwise nodes that the kernel of a Conv or of a product computes, and what is left alone."""

from __future__ import annotations

from collections.abc import Sequence
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


# The x, w, y and the node of products, and what follows.
PRODUCTS = {
    "matrices": ("[30, 40]", "[40, 70]", "[30, 70]", "MatMul (x, w)"),
    "columns for threads": ("[128, 384]", "[384, 1536]", "[128, 1536]", "MatMul (x, w)"),
    "rows for threads": ("[700, 200]", "[200, 33]", "[700, 33]", "MatMul (x, w)"),
    "one row": ("[300]", "[300, 90]", "[90]", "MatMul (x, w)"),
    "a few rows": ("[2, 300]", "[300, 90]", "[2, 90]", "Gemm (x, w)"),
    "one column": ("[2, 20, 30]", "[30, 1]", "[2, 20, 1]", "MatMul (x, w)"),
    "batches": ("[2, 3, 5, 7]", "[7, 19]", "[2, 3, 5, 19]", "MatMul (x, w)"),
    "turned": ("[40, 30]", "[70, 40]", "[30, 70]", "Gemm <transA = 1, transB = 1> (x, w)"),
    "with a bias": ("[30, 40]", "[40, 70]", "[30, 70]", "Gemm (x, w, b)"),
    "nothing to add": ("[30, 0]", "[0, 70]", "[30, 70]", "MatMul (x, w)"),
    "no rows": ("[0, 40]", "[40, 70]", "[0, 70]", "MatMul (x, w)"),
}
ENDS_OF_PRODUCTS = {
    "bias": "y = Add (c, b)",
    "bias first": "s = Add (b, c) y = Abs (s)",
    "residual": "s = Add (c, b) t = Add (s, r) y = Relu (t)",
    "row of one matrix": "s = Add (c, q) y = Mul (s, q)",
    "read twice": "s = Add (c, b) y = Mul (s, c)",
    "scaled": "s = Mul (c, b) y = Neg (s)",
    "one element": "s = Add (c, a) y = Max (s, low)",
}


def product_of(kind: str, end: str) -> onnx.ModelProto:
    x, w, y, node = PRODUCTS[kind]
    row = f"[{y[1:-1].split(', ')[-1]}]"
    matrix = row if y == row else f"[1, {row[1:]}"
    return with_weights(
        f"g (float{x} x, float{y} r, float[1] a, float{matrix} q) => (float{y} y)"
        f" <float{w} w, float{row} b, float low = {{-0.5}}> {{ c = {node} {end} }}"
    )


@pytest.mark.parametrize("kind", PRODUCTS)
def test_each_kind_of_product(kind: str) -> None:
    for number, end in enumerate(ENDS_OF_PRODUCTS.values()):
        if number in (0, 2, len(kind) % len(ENDS_OF_PRODUCTS)) or kind in ("matrices", "with a bias"):
            model = product_of(kind, end)
            assert len(steps(model)) == 1
            matches(compile_model(model, ("-O3", *NATIVE)), model)


@pytest.mark.parametrize("kind", ["matrices", "a few rows"])
def test_an_added_row_is_what_sums_start_with(kind: str) -> None:
    """No loop over the results follows the product."""
    assert "struct farcall_range done;" not in source(product_of(kind, ENDS_OF_PRODUCTS["bias"]))
    assert "struct farcall_range done;" in source(product_of(kind, ENDS_OF_PRODUCTS["scaled"]))


def source(model: onnx.ModelProto) -> str:
    return "".join(CBackend().compile(whole_region(model), Target.host(), {}).sources.values())


def test_products_of_integers_wrap_with_their_bias() -> None:
    model = with_weights(
        "g (int32[30, 40] x) => (int32[30, 70] y) <float[40, 70] w, float[70] b>"
        " { v = Cast <to = 6> (w) a = Cast <to = 6> (b) c = MatMul (x, v) s = Add (c, a) y = Max (s, a) }"
    )
    assert len(steps(model)) == 1
    given = {"x": np.random.default_rng(3).integers(-(2**31), 2**31, (30, 40)).astype(np.int32)}
    (found,) = results(compile_model(model), given)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, ReferenceEvaluator(model).run(None, given)[0])


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
    "the right operand is not constant": "=> (float[1, 8, 6, 6] y) { c = MatMul (x, r) y = Relu (c) }",
    "a row of columns": "=> (float[1, 8, 6] y) <float[6] w, float[6] b> { c = MatMul (x, w) y = Add (c, b) }",
    "exponentials": "=> (float[1, 8, 6, 9] y) <float[6, 9] w> { c = MatMul (x, w) y = Tanh (c) }",
    "a scaled product": "=> (float[48, 9] y) <float[6, 9] w, int64[2] s = {48, 6}>"
    " { m = Reshape (x, s) c = Gemm <alpha = 2.0> (m, w) y = Relu (c) }",
    "another dtype": "=> (double[1, 8, 6, 6] y) <float[8, 8, 1, 1] w>"
    " { c = Conv (x, w) y = Cast <to = 11> (c) }",
}


@pytest.mark.parametrize("text", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_is_left_alone(text: str) -> None:
    model = graph(text)
    assert len(steps(model)) > 1
    matches(compile_model(model), model)


def test_a_result_that_is_read_as_a_row() -> None:
    """The Add broadcasts a view of the product, which so is an operand like any other."""
    model = with_weights(
        "g (float[1, 30] x, float[1, 70] r) => (float[1, 70] y) <float[30, 70] w, int64[1] s = {70}>"
        " { c = MatMul (x, w) v = Reshape (c, s) y = Add (v, r) }"
    )
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


def test_threads_compute_the_same_products(tmp_path: Path) -> None:
    text = """g (float[n, 200] x) => (float[n, 200] y) <float[200, 900] w, float[900] b, float[900, 200] u>
     { c = MatMul (x, w) d = Add (c, b) e = Relu (d) f = MatMul (e, u) y = Add (f, x) }"""
    _threads_agree(text, (1, 5, 300), (200,), tmp_path)


def test_threads_compute_the_same(tmp_path: Path) -> None:
    text = """g (float[n, 40, 33, 35] x) => (float[n, 40, 33, 35] y)
     <float[100, 40, 1, 1] w, float[100, 1, 3, 3] d, float[40, 100, 1, 1] u, float[40, 40, 3, 3] t>
     { a = Conv (x, w) b = Relu (a) c = Conv <group = 100, pads = [1, 1, 1, 1]> (b, d) e = HardSwish (c)
       f = Conv (e, u) g = Add (f, x) h = Conv <pads = [1, 1, 1, 1]> (g, t) i = Sigmoid (h)
       y = Mul (h, i) }"""
    _threads_agree(text, (1, 3), (40, 33, 35), tmp_path)


def _threads_agree(text: str, counts: Sequence[int], shape: tuple[int, ...], folder: Path) -> None:
    path = fc.partition(with_weights(text), backends=["c"]).build().save(folder / "model.so")
    main = fc.load_module(path)["main"]
    for count in counts:
        x = np.random.default_rng(count).standard_normal((count, *shape)).astype(np.float32)
        alone = main(x, threads=1)
        for threads in (2, 3, 7):
            np.testing.assert_array_equal(alone, main(x, threads=threads))
