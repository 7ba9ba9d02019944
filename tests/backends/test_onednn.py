"""The oneDNN backend gives the results of the C backend."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import farcall as fc
from farcall.errors import UsageError

from .libraries import check_onnx_case, model, need, numbers, onnx_cases, same_as_c

need("libdnnl.so.3", "onednn-cpu-gomp")


@pytest.mark.slow
def test_onnx_node_tests() -> None:
    operators = {"MatMul", "Gemm", "Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "Softmax"}
    taken = [check_onnx_case(case, "onednn") for case in onnx_cases(operators)]
    assert sum(taken) >= 20


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ("n, 3, 9, 8", (16, 3, 3, 3), "pads = [1, 1, 1, 1]"),
        ("n, 3, 9, 8", (4, 3, 3, 3), "strides = [2, 2], pads = [0, 1, 2, 0]"),
        ("n, 4, 9, 8", (6, 2, 3, 2), "group = 2, dilations = [2, 3], pads = [2, 2, 2, 2]"),
        ("n, 8, 9, 8", (8, 1, 3, 3), "group = 8, pads = [1, 1, 1, 1]"),
        ("n, 3, h, 40", (4, 3, 3, 3), 'auto_pad = "SAME_UPPER", strides = [2, 1]'),
        ("n, 3, 11", (4, 3, 3), "pads = [4, 1]"),
        ("n, 2, 5, 6, 7", (4, 2, 2, 3, 3), "pads = [1, 1, 1, 0, 1, 1], strides = [1, 2, 2]"),
    ],
)
def test_convolutions(x: str, w: tuple[int, ...], attributes: str) -> None:
    text = f"g (float[{x}] x) => (float[1] y) {{ c = Conv <{attributes}> (x, w, b) y = LeakyRelu(c) }}"
    made = model(text, w=numbers(*w, seed=1), b=numbers(w[0], seed=2))
    shapes = [[n if d == "n" else 37 if d == "h" else int(d) for d in x.split(", ")] for n in (2, 1, 0, 2)]
    same_as_c(made, "onednn", *([numbers(*shape)] for shape in shapes))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (2, 3)])
def test_sizes_of_zero_and_operators_of_constants(shape: tuple[int, ...]) -> None:
    """An operator of a constant without elements is not folded, and oneDNN has no memory for it."""
    text = (
        f"g (float[{shape[0]}, {shape[1]}] x) => (float[1] y, float[1] z) {{ y = Softmax(x) z = Softmax(k) }}"
    )
    same_as_c(model(text, k=numbers(*shape)), "onednn", [numbers(*shape, seed=1)])


@pytest.mark.parametrize(
    "body",
    [
        "y = MaxPool <kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]> (x)",
        "y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)",
        "y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (x)",
        "y = GlobalAveragePool(x)",
        "y = Softmax(x)",
        "y = Softmax <axis = 1> (x)",
    ],
)
def test_pools_and_softmax(body: str) -> None:
    made = model(f"g (float[n, 6, h, 9] x) => (float[1] y) {{ {body} }}")
    same_as_c(made, "onednn", *([numbers(*shape)] for shape in ((2, 6, 8, 9), (1, 6, 5, 9), (0, 6, 5, 9))))


@pytest.mark.parametrize(
    "body",
    [
        "y = MatMul(x, w)",
        "m = MatMul(x, w) s = Add(b, m) y = Relu(s)",
        "m = MatMul(x, w) s = Add(m, r) y = Tanh(s)",
        "m = MatMul(x, w) y = Clip(m, lo, hi)",
    ],
)
@pytest.mark.parametrize("batch", ["", "2, "])
def test_products(body: str, batch: str) -> None:
    made = model(
        f"g (float[{batch}n, 8] x, float[{batch}n, 5] r) => (float[1] y) {{ {body} }}",
        w=numbers(8, 5),
        b=numbers(5, seed=1),
        lo=np.float32(-0.25),
        hi=np.float32(0.5),
    )
    outer = (2,) if batch else ()
    calls = [[numbers(*outer, n, 8), numbers(*outer, n, 5, seed=3)] for n in (3, 1, 0, 7)]
    same_as_c(made, "onednn", *calls)


@pytest.mark.parametrize("attributes", ["transB = 1, alpha = 0.5", "beta = 0.25"])
def test_gemm(attributes: str) -> None:
    w = numbers(5, 8) if "transB" in attributes else numbers(8, 5)
    text = f"g (float[n, 8] x) => (float[1] y) {{ m = Gemm <{attributes}> (x, w, b) y = Sigmoid(m) }}"
    same_as_c(model(text, w=w, b=numbers(1, 5)), "onednn", [numbers(3, 8)], [numbers(1, 8)])


RESIDUAL = """g (float[n, 3, h, 20] x) => (float[1] y, float[1] r) {
  a = Conv <pads = [1, 1, 1, 1]> (x, w, b) r = Relu(a)
  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
  c = Conv <pads = [1, 1, 1, 1]> (p, v) d = Relu(c)
  e = Conv <pads = [1, 1, 1, 1]> (d, v) s = Add(e, p) f = Relu(s)
  g = Conv(f, u) i = Conv(p, u) j = Add(g, i) y = GlobalAveragePool(j)
}"""


def residual() -> object:
    return model(
        RESIDUAL,
        w=numbers(16, 3, 3, 3),
        b=numbers(16, seed=1),
        v=numbers(16, 16, 3, 3, seed=2) / 8,
        u=numbers(32, 16, 1, 1, seed=3),
    )


def test_residuals_and_layouts_within_a_region() -> None:
    plan = fc.partition(residual(), backends=["onednn", "c"])
    assert [region.backend for region in plan.regions] == ["onednn"]
    assert {match.pattern for match in plan.regions[0].matches} >= {"conv_act", "conv_add_act", "conv_add"}
    calls = [[numbers(n, 3, h, 20)] for n, h in ((2, 10), (1, 6), (2, 10))]
    same_as_c(residual(), "onednn", *calls)


def test_calls_at_once_have_plans_of_their_own() -> None:
    main = fc.partition(residual(), backends=["onednn", "c"]).build().load()["main"]
    inputs = [numbers(1 + i % 3, 3, 8, 20, seed=i) for i in range(24)]
    expected = [main(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(main, inputs), expected, strict=True):
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one, other)


def test_many_sizes_do_not_pile_up_plans() -> None:
    text = "g (float[n, 8] x) => (float[1] y) { y = MatMul(x, w) }"
    same_as_c(model(text, w=numbers(8, 4)), "onednn", *([numbers(n, 8)] for n in range(1, 80)))


def test_threads_are_an_option() -> None:
    same_as_c(residual(), fc.backend("onednn", threads=2), [numbers(1, 3, 10, 20)])
    with pytest.raises(UsageError, match="expected 1 or more, got 0"):
        fc.partition(residual(), backends=[fc.backend("onednn", threads=0), "c"]).build()


def test_what_it_does_not_take_goes_to_c() -> None:
    made = model("g (float[n, 8] x, float[8, 4] w) => (float[1] y) { y = MatMul(x, w) }")
    plan = fc.partition(made, backends=["onednn", "c"])
    assert [region.backend for region in plan.regions] == ["c"]


@pytest.mark.parametrize("axis", [-1, 1, 3])
def test_softmax_before_opset_13_took_all_axes_from_one_on(axis: int) -> None:
    made = model(f"g (float[n, 6, 5, 9] x) => (float[1] y) {{ y = Softmax <axis = {axis}> (x) }}")
    made.opset_import[0].version = 12
    plan = fc.partition(made, backends=["onednn", "c"])
    assert [region.backend for region in plan.regions] == ["c"]
