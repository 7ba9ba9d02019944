"""The BLAS backend gives the results of the C backend."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import farcall as fc
from farcall.errors import UsageError
from farcall.library._libraries import open_library
from farcall.library._manifest import LibraryInfo

from .libraries import check_onnx_case, model, need, numbers, onnx_cases, same_as_c

need("libscipy_openblas.so", "scipy-openblas32")

ALL = fc.backend("blas", products="all", convolutions=True)


@pytest.mark.slow
def test_onnx_node_tests() -> None:
    taken = [check_onnx_case(case, ALL) for case in onnx_cases({"MatMul", "Gemm", "Conv"})]
    assert sum(taken) >= 20


@pytest.mark.parametrize(
    ("a", "b", "sizes"),
    [
        ("n, 5", "5, 7", [(3,), (1,), (0,)]),
        ("n, 4, 5", "5, 7", [(3,), (0,)]),
        ("n, 1, 4, 5", "n, 3, 5, 2", [(2,), (0,)]),
        ("4, 5", "n, 5, 6", [(3,)]),
        ("5", "5, k", [(3,), (0,)]),
        ("n, 5", "5", [(3,)]),
        ("5", "5", [()]),
        ("3, k", "k, 4", [(6,), (0,)]),
        ("n, 2, 1, 4, k", "3, k, 6", [(2, 5), (1, 0), (0, 2)]),
    ],
)
def test_products_broadcast(a: str, b: str, sizes: list[tuple[int, ...]]) -> None:
    dtype = "double" if a[0] == "n" else "float"
    made = model(f"g ({dtype}[{a}] a, {dtype}[{b}] b) => ({dtype}[1] y) {{ y = MatMul(a, b) }}")
    kind = np.float32 if dtype == "float" else np.float64
    names = [name for name in ("n", "k") if name in a + b]
    calls = []
    for values in sizes:
        bound = dict(zip(names, values, strict=True))
        shapes = [[bound.get(d, 0) or (0 if d in bound else int(d)) for d in t.split(", ")] for t in (a, b)]
        calls.append([numbers(*shape, seed=i, dtype=kind) for i, shape in enumerate(shapes)])
    same_as_c(made, ALL, *calls)


@pytest.mark.parametrize(
    ("attributes", "bias"),
    [("", ""), ("transA = 1", "6"), ("transB = 1", "4, 1"), ("transA = 1, transB = 1", "4, 6"), ("", "1")],
)
def test_gemm(attributes: str, bias: str) -> None:
    attributes = ", ".join(filter(None, [attributes, "alpha = 0.5", "beta = 0.25"]))
    a = (5, 4) if "transA" in attributes else (4, 5)
    b = (6, 5) if "transB" in attributes else (5, 6)
    more, name = (f", float[{bias}] c", ", c") if bias else ("", "")
    inputs = f"float[{a[0]},{a[1]}] a, float[{b[0]},{b[1]}] b{more}"
    made = model(f"g ({inputs}) => (float[4, 6] y) {{ y = Gemm <{attributes}> (a, b{name}) }}")
    arrays = [numbers(*a), numbers(*b, seed=1)]
    if bias:
        arrays.append(numbers(*map(int, bias.split(", ")), seed=2))
    same_as_c(made, ALL, arrays)


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ("n, 3, 9, 8", (4, 3, 3, 3), "pads = [1, 1, 1, 1]"),
        ("n, 3, 9, 8", (4, 3, 3, 3), "strides = [2, 2], pads = [0, 1, 2, 0]"),
        ("n, 4, 9, 8", (6, 2, 3, 2), "group = 2, dilations = [2, 3], pads = [2, 2, 2, 2]"),
        ("n, 3, h, 40", (4, 3, 3, 3), 'auto_pad = "SAME_UPPER", strides = [2, 1]'),
        ("n, 3, h, 40", (4, 3, 4, 4), 'auto_pad = "SAME_LOWER"'),
        ("n, 8, 5, 5", (4, 8, 1, 1), ""),
        ("n, 8, 5, 5", (4, 8, 1, 1), "strides = [2, 2]"),
        ("n, 3, 11", (4, 3, 3), "pads = [4, 1]"),
        ("n, 2, 5, 6, 7", (4, 2, 2, 3, 3), "pads = [1, 1, 1, 0, 1, 1], strides = [1, 2, 2]"),
    ],
)
def test_convolutions(x: str, w: tuple[int, ...], attributes: str) -> None:
    dtype = "double" if "group" in attributes else "float"
    kind = np.float32 if dtype == "float" else np.float64
    text = f"g ({dtype}[{x}] x) => ({dtype}[1] y) {{ y = Conv <{attributes}> (x, w, b) }}"
    text = text.replace(" <>", "")
    made = model(text, w=numbers(*w, seed=1, dtype=kind), b=numbers(w[0], seed=2, dtype=kind))
    shapes = [[n if d == "n" else 37 if d == "h" else int(d) for d in x.split(", ")] for n in (2, 1, 0)]
    same_as_c(made, ALL, *([numbers(*shape, dtype=kind)] for shape in shapes))


def test_a_model_of_both_backends_in_several_threads() -> None:
    made = model(
        "g (float[n, 3, 32, 32] x) => (float[n, 10] y) {"
        " c = Conv <pads = [1, 1, 1, 1]> (x, w) r = Relu(c) p = GlobalAveragePool(r) f = Flatten(p)"
        " y = Gemm(f, v, b) }",
        w=numbers(8, 3, 3, 3),
        v=numbers(8, 10, seed=1),
        b=numbers(10, seed=2),
    )
    same_as_c(made, ALL, [numbers(2, 3, 32, 32)])
    main = fc.partition(made, backends=[ALL, "c"]).build().load()["main"]
    x = numbers(3, 3, 32, 32)
    expected = main(x)
    with ThreadPoolExecutor(4) as pool:
        for y in pool.map(lambda _: main(x), range(32)):
            np.testing.assert_array_equal(y, expected)


def test_threads_are_an_option() -> None:
    made = model("g (float[n, 8] x) => (float[n, 4] y) { y = MatMul(x, w) }", w=numbers(8, 4))
    library = open_library(LibraryInfo("libscipy_openblas.so", "blas", (), (), "scipy-openblas32"))
    for threads in (1, 2):
        same_as_c(made, fc.backend(ALL, threads=threads), [numbers(3, 8)])
        assert library.scipy_openblas_get_num_threads() == min(
            threads, library.scipy_openblas_get_num_procs()
        )


def test_the_library_is_an_option() -> None:
    made = model("g (float[n, 8] x) => (float[n, 4] y) { y = MatMul(x, w) }", w=numbers(8, 4))
    artifact = fc.partition(made, backends=[fc.backend(ALL, library="system"), "c"]).build()
    assert [info.soname for info in artifact.manifest.libraries] == ["libopenblas.so.0"]
    with pytest.raises(UsageError, match="expected scipy-openblas32 or system, got 'mkl'"):
        fc.partition(made, backends=[fc.backend(ALL, library="mkl"), "c"]).build()


@pytest.mark.parametrize(
    ("x", "w", "body", "takes"),
    [
        ("n, 128", "128, 1", "MatMul(x, w)", True),  # one column: the product with a vector
        ("n, 512", "512, 1", "MatMul(x, w)", False),
        ("512, 64", "64", "MatMul(x, w)", True),
        ("n, 8, 64", "n, 64, 4", "MatMul(x, w)", True),
        ("n, 64", "64, 8", "MatMul(x, w)", False),
        ("1, 4096", "4096, 4096", "MatMul(x, w)", False),  # one row
        ("64, 1024", "1024, 512", "MatMul(x, w)", True),  # a long inner sum
        ("2, 16, 1024", "1024, 512", "MatMul(x, w)", True),
        ("2, 16, 1024", "2, 1024, 512", "MatMul(x, w)", False),
        ("n, 1024", "1024, 512", "MatMul(x, w)", False),  # n may be 1
        ("64, 512", "512, 512", "MatMul(x, w)", False),
        ("64, 512", "512, 512", "Gemm(x, w)", False),
        ("64, 512", "512, 512", "Gemm <transA = 1> (z, w)", True),
        ("64, 512", "512, 512", "Gemm <transB = 1> (x, w)", True),
        ("8, 512", "512, 512", "Gemm <transB = 1> (x, w)", False),  # `c` reads few rows as they are
        ("64, 512", "512, 512", "Gemm <transB = 1> (x, k)", False),  # `c` turns constants at the build
    ],
)
def test_products_that_c_computes_faster_are_left_to_it(x: str, w: str, body: str, takes: bool) -> None:
    text = f"g (float[{x}] x, float[{w}] w, float[512, 64] z) => (float[1] y) {{ y = {body} }}"
    plan = fc.partition(model(text, k=numbers(512, 512)), backends=["blas", "c"])
    assert [region.backend for region in plan.regions] == (["blas"] if takes else ["c"])
    if not takes:
        assert 'products="all" takes it' in str(plan.partition.whys[0])


def test_options_are_checked_and_convolutions_are_one() -> None:
    text = "g (float[n, 3, 9, 8] x) => (float[1] y, float[1] z) { y = Conv(x, w) z = MatMul(x, v) }"
    made = model(text, w=numbers(4, 3, 3, 3), v=numbers(8, 2))
    plan = fc.partition(made, backends=["blas", "c"])
    assert {region.backend: [match.pattern for match in region.matches] for region in plan.regions} == {
        "blas": ["MatMul"],
        "c": ["Conv"],
    }
    plan = fc.partition(made, backends=[fc.backend("blas", convolutions=True), "c"])
    assert {region.backend for region in plan.regions} == {"blas"}
    with pytest.raises(UsageError, match="option `products`: expected fast or all, got 'some'"):
        fc.partition(made, backends=[fc.backend("blas", products="some"), "c"])


def test_what_it_does_not_take_is_told() -> None:
    made = model("g (int32[n, 8] x, int32[8, 4] w) => (int32[n, 4] y) { y = MatMul(x, w) }")
    plan = fc.partition(made, backends=[ALL, "c"])
    assert [region.backend for region in plan.regions] == ["c"]
