"""The oneDNN backend gives the results of the C backend."""

from __future__ import annotations

import re
from collections.abc import Iterable
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


def test_products_of_one_row_read_their_weights_in_order() -> None:
    """The number of rows is known when it is called; a convolution of one pixel is such a product."""
    text = (
        "g (float[n, 67] x, float[n, 130] r) => (float[1] y, float[1] z) { m = MatMul(x, w) a = Add(m, b)"
        " h = Tanh(a) y = Sub(h, r) s = Unsqueeze(x, axes) c = Conv(s, v, d) z = Elu(c) }"
    )
    made = model(
        text,
        w=numbers(67, 130),
        b=numbers(130, seed=1),
        v=numbers(5, 67, 1, 1, seed=2),
        d=numbers(5, seed=3),
        axes=np.array([2, 3]),
    )
    calls = [[numbers(n, 67), numbers(n, 130, seed=3)] for n in (1, 2, 1, 0)]
    same_as_c(made, "onednn", *calls)
    same_as_c(made, fc.backend("onednn", threads=2), *calls)


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


@pytest.mark.parametrize(
    "body",
    [
        "y = Neg(x)",
        "y = Mul(x, x)",  # `c` computes several of these in one loop
        "s = Sigmoid(x) y = Mul(x, s)",
        "y = ReduceMean <keepdims = 0> (x)",
    ],
)
def test_what_it_does_not_take_goes_to_c(body: str) -> None:
    made = model(f"g (float[n, 8, 4, 4] x) => (float[1] y) {{ {body} }}")
    plan = fc.partition(made, backends=["onednn", "c"])
    assert [region.backend for region in plan.regions] == ["c"]


def test_elementwise_operators_behind_no_convolution_are_left_to_c() -> None:
    made = model(
        "g (float[n, 8] x) => (float[1] y) { m = MatMul(x, w) t = Mul(m, m) e = Elu(t) y = MatMul(e, w) }",
        w=numbers(8, 8),
    )
    plan = fc.partition(made, backends=["onednn", "c"])
    assert [region.backend for region in plan.regions] == ["onednn", "c", "onednn"]
    same_as_c(made, "onednn", [numbers(3, 8)], [numbers(0, 8)])


def joined(bodies: Iterable[str]) -> tuple[str, str]:
    """Bodies as one, whose outputs are y0, y1 and so on, and the list of these: fewer builds."""
    texts = []
    for number, body in enumerate(bodies):
        names = "|".join(re.findall(r"(?:^| )(\w+) = [A-Z]", body))
        texts.append(re.sub(rf"\b({names})\b", rf"\g<1>{number}", body))
    return " ".join(texts), ", ".join(f"float[1] y{number}" for number in range(len(texts)))


def test_convolutions_with_weights_that_are_inputs() -> None:
    kinds = {
        "v": ("6, 4, 3, 3", "Conv <pads = [1, 1, 1, 1]> (x, v, b) y = Relu(c)"),
        "w": ("6, 2, 3, 3", "Conv <group = 2, strides = [2, 2]> (x, w, b) y = Tanh(c)"),
        "u": ("4, 1, 3, 3", "Conv <group = 4> (x, u) y = Neg(c)"),
        "s": ("4, 6, 3, 3", "ConvTranspose <strides = [2, 2]> (x, s, b) y = Relu(c)"),
        "t": ("4, 3, 3, 2", "ConvTranspose <group = 2, dilations = [1, 2]> (x, t) y = Elu(c)"),
    }
    body, outputs = joined(f"c = {text}" for _, text in kinds.values())
    weights = "".join(f", float[{sizes}] {name}" for name, (sizes, _) in kinds.items())
    made = model(f"g (float[n, 4, 9, 8] x, float[6] b{weights}) => ({outputs}) {{ {body} }}")
    arrays = [numbers(*map(int, sizes.split(", ")), seed=i) for i, (sizes, _) in enumerate(kinds.values())]
    same_as_c(made, "onednn", *([numbers(n, 4, 9, 8), numbers(6), *arrays] for n in (2, 1, 0)))


def test_transposed_convolutions() -> None:
    body, outputs = joined(
        [
            "c = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w, b) y = Sigmoid(c)",
            "c = ConvTranspose <group = 2, strides = [2, 1], output_padding = [1, 0],"
            " pads = [1, 0, 1, 0]> (x, v) y = Relu(c)",
            "y = ConvTranspose <dilations = [2, 2]> (x, w)",
        ]
    )
    made = model(
        f"g (float[n, 4, 5, 6] x) => ({outputs}) {{ {body} }}",
        w=numbers(4, 6, 3, 3, seed=1),
        v=numbers(4, 3, 2, 3, seed=2),
        b=numbers(6, seed=3),
    )
    assert {region.backend for region in fc.partition(made, backends=["onednn", "c"]).regions} == {"onednn"}
    same_as_c(made, "onednn", *([numbers(n, 4, 5, 6)] for n in (2, 1, 0)))


def test_products_of_inputs_broadcast_and_may_be_empty() -> None:
    shapes = [
        ("n, 5", "5, k"),
        ("n, 4, 5", "5, k"),
        ("2, n, 4, 5", "2, n, 5, k"),
        ("n, 1, 4, 5", "3, 5, k"),
        ("4, 5", "n, 5, k"),
        ("5", "n, 5, k"),
        ("n, 4, 5", "5"),
        ("5", "5"),
        ("3, n", "n, k"),  # without elements, the sum is 0
        ("2, 3, n", "n, 4"),
    ]
    bodies = [f"p = MatMul(a_{i}, b_{i}) y = Add(z, p)" for i in range(len(shapes))]
    body, outputs = joined([*bodies, "p = MatMul(a_6, b_6) y = Mul(p, r)"])  # r is no row of the matrix
    inputs = "".join(f", float[{a}] a_{i}, float[{b}] b_{i}" for i, (a, b) in enumerate(shapes))
    made = model(f"g (float z{inputs}) => ({outputs}) {{ {body} }}", r=numbers(4))
    calls = []
    for n, k in ((3, 2), (1, 1), (0, 2), (2, 0)):
        texts = [text.replace("n", str(n)).replace("k", str(k)) for pair in shapes for text in pair]
        calls.append([numbers(), *(numbers(*map(int, t.split(", ")), seed=i) for i, t in enumerate(texts))])
    same_as_c(made, "onednn", *calls)


def test_gemm_of_inputs() -> None:
    body, outputs = joined(
        f"m = Gemm <{attributes}> (a, b, {c}) y = Gelu(m)"
        for attributes in ("transA = 1", "transB = 1", "transA = 1, transB = 1, alpha = 0.5")
        for c in "cde"
    )
    inputs = "float[4, 4] a, float[4, 4] b, float[4, 4] c, float[4] d, float[1, 1] e"
    made = model(f"g ({inputs}) => ({outputs}) {{ {body} }}")
    arrays = [numbers(*shape, seed=i) for i, shape in enumerate([(4, 4), (4, 4), (4, 4), (4,), (1, 1)])]
    same_as_c(made, "onednn", arrays)


@pytest.mark.parametrize("constant", [True, False])
def test_normalizations(constant: bool) -> None:
    body, outputs = joined(
        [
            "y = LayerNormalization <axis = -1> (x, s, t)",
            "y = LayerNormalization <axis = -1, epsilon = 0.1> (x, s)",
            "y = LayerNormalization <axis = 2> (x, u, v)",
            "y = BatchNormalization <epsilon = 0.01> (x, d, e, d, p)",
        ]
    )
    sizes = {"s": (7,), "t": (7,), "u": (5, 7), "v": (5, 7), "d": (6,), "e": (6,), "p": (6,)}
    used = {name: abs(numbers(*shape, seed=i)) for i, (name, shape) in enumerate(sizes.items())}
    inputs = "".join(f", float[{', '.join(map(str, shape))}] {name}" for name, shape in sizes.items())
    text = f"g (float[n, 6, 5, 7] x{'' if constant else inputs}) => ({outputs}) {{ {body} }}"
    made = model(text, **(used if constant else {}))
    assert {region.backend for region in fc.partition(made, backends=["onednn", "c"]).regions} == {"onednn"}
    same_as_c(
        made, "onednn", *([numbers(n, 6, 5, 7), *([] if constant else used.values())] for n in (2, 1, 0))
    )


BEHIND = [
    "y = Relu(c)",
    "y = HardSwish(c)",
    "y = HardSigmoid <alpha = 0.3> (c)",
    "y = Elu <alpha = 0.5> (c)",
    'y = Gelu <approximate = "tanh"> (c)',
    "y = Mish(c)",
    "s = Sigmoid(c) y = Mul(s, c)",
    "s = Mul(c, k) t = Add(s, k) y = Sub(t, k)",
    "m = ReduceMean <keepdims = 1> (c, axes) e = Sigmoid(m) y = Mul(c, e)",
    "a = Add(c, x) r = Relu(a) d = Add(r, x) y = Max(d, c)",
    "a = Add(c, c) y = Sub(x, a)",
    "a = Mul(x, c) y = Conv(a, v)",
    "y = Div(o, c)",
]


def test_what_follows_a_convolution() -> None:
    """A convolution each, with one activation, several operations, or another convolution."""
    body, outputs = joined(f"c = Conv <pads = [1, 1, 1, 1]> (x, w, b) {text}" for text in BEHIND)
    made = model(
        f"g (float[n, 8, 6, 5] x) => ({outputs}) {{ {body} }}",
        w=numbers(8, 8, 3, 3, seed=1),
        b=numbers(8, seed=2) + np.float32(9),
        k=numbers(8, 1, 1, seed=3),
        v=numbers(4, 8, 1, 1, seed=4),
        o=numbers(1, seed=5),
        axes=np.array([2, 3]),
    )
    same_as_c(made, "onednn", *([numbers(n, 8, 6, 5, seed=n)] for n in (2, 1, 0)))


@pytest.mark.parametrize(("height", "width"), [(9, 11), (26, 27)])  # tiles of 2x2, and of 4x4 outputs
def test_convolutions_by_tiles(height: int, width: int) -> None:
    made = model(
        f"g (float[n, 64, {height}, {width}] x) => (float[1] y, float[1] z) {{"
        " c = Conv <pads = [2, 0, 1, 1]> (x, w, b) r = Relu(c) d = Conv <pads = [1, 1, 1, 1]> (r, v)"
        " y = Sigmoid(d) z = Add(r, d) }",
        w=numbers(80, 64, 3, 3, seed=1) / 24,
        v=numbers(80, 80, 3, 3, seed=2) / 24,
        b=numbers(80, seed=3),
    )
    source = fc.partition(made, backends=["onednn", "c"]).source("onednn_0")
    direct = fc.partition(made, backends=[fc.backend("onednn", winograd=False), "c"]).source("onednn_0")
    assert source.count("{WINOGRAD, ") == 2 and "{WINOGRAD, " not in direct
    calls = [[numbers(n, 64, height, width, seed=n)] for n in (2, 1, 0)]
    same_as_c(made, "onednn", *calls)


@pytest.mark.parametrize(("size", "backends"), [(56, ["c", "onednn"]), (28, ["onednn"])])
def test_a_swish_of_a_large_image_is_left_to_c_with_what_leads_to_it(size: int, backends: list[str]) -> None:
    made = model(
        f"g (float[n, 16, {size}, {size}] x) => (float[1] y) {{ a = Conv(x, w) r = Relu(a) c = Conv(r, w)"
        " s = Sigmoid(c) m = Mul(c, s) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (m)"
        " d = Conv(p, w) t = Sigmoid(d) y = Mul(t, d) }",
        w=numbers(16, 16, 1, 1),
    )
    plan = fc.partition(made, backends=["onednn", "c"])
    assert [region.backend for region in plan.regions] == backends
    same_as_c(made, "onednn", [numbers(1, 16, size, size)])


def test_an_empty_result_beside_one_with_elements() -> None:
    text = (
        "g (float[n, 8] x, float[3, 8] z) => (float[1] y, float[1] s) { y = MatMul(x, w) s = MatMul(z, w) }"
    )
    same_as_c(model(text, w=numbers(8, 4)), "onednn", [numbers(0, 8), numbers(3, 8)])


def test_a_transposed_convolution_of_no_elements_may_have_some() -> None:
    text = "g (float[1, 2, n, m] x) => (float[1] y) { y = ConvTranspose <strides = [2, 1]> (x, w, b) }"
    made = model(text, w=numbers(2, 3, 3, 2), b=numbers(3))
    same_as_c(made, "onednn", *([numbers(1, 2, *size)] for size in ((0, 4), (2, 0), (0, 0), (2, 4))))


@pytest.mark.parametrize("axis", [-1, 1, 3])
def test_softmax_before_opset_13_took_all_axes_from_one_on(axis: int) -> None:
    made = model(f"g (float[n, 6, 5, 9] x) => (float[1] y) {{ y = Softmax <axis = {axis}> (x) }}")
    made.opset_import[0].version = 12
    plan = fc.partition(made, backends=["onednn", "c"])
    assert [region.backend for region in plan.regions] == ["c"]
