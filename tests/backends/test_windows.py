"""Conv, pools and LRN against the reference evaluator and onnxruntime, at random geometry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

import farcall as fc
from farcall.backends.c._depthwise_text import tile_rows
from farcall.backends.c._gemm_text import gemm_kernels
from farcall.errors import UnsupportedOperatorError

from ..parsed import parsed
from .cases import Case, check, refusal
from .harness import NATIVE, compile_regions, whole_region


def normal(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def random_conv(rng: np.random.Generator, spatial: int) -> Case:
    group = int(rng.choice([1, 1, 2, 3]))
    ins, outs = int(rng.integers(1, 4)), int(rng.choice([1, 2, 5, 8]))
    taps = rng.integers(1, 4, spatial)
    dilations, strides = rng.integers(1, 3, spatial), rng.integers(1, 4, spatial)
    extent = (taps - 1) * dilations + 1
    sizes = extent + rng.integers(0, 7, spatial)
    attributes: dict[str, object] = {
        "group": group, "dilations": dilations.tolist(), "strides": strides.tolist(),
        "kernel_shape": taps.tolist(),
    }  # fmt: skip
    match rng.integers(0, 4):
        case 0:
            attributes["pads"] = rng.integers(0, 3, 2 * spatial).tolist()
        case 1 if (dilations == 1).all():  # the reference pads a dilated window as if it were not
            attributes["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER"]))
        case 2:
            attributes["auto_pad"] = "VALID"
    dtype = rng.choice([np.float32, np.float64])
    operands = [
        rng.standard_normal((int(rng.integers(0, 3)), group * ins, *sizes)).astype(dtype),
        rng.standard_normal((group * outs, ins, *taps)).astype(dtype),
    ]
    if rng.integers(0, 2):
        operands.append(rng.standard_normal(group * outs).astype(dtype))
    constants = [1] if rng.integers(0, 2) else []
    return Case("Conv", operands, attributes, constants, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_conv_random(spatial: int) -> None:
    rng = np.random.default_rng(spatial)
    cases = [random_conv(rng, spatial) for _ in range(16)]
    with_batch = [case for case in cases if case.operands[0].shape[0]]  # the reference needs one
    check(with_batch)
    assert len(with_batch) >= 8


def test_depthwise_conv_at_the_flags_of_builds() -> None:
    """At -O3, gcc 12 vectorized a loop over rows with a condition wrongly, for rows of 14."""
    rng = np.random.default_rng(0)
    cases = []
    for size in range(1, 34, 2):
        taps, stride = int(rng.choice([3, 5])), int(rng.choice([1, 1, 2]))
        attributes = {"group": 3, "strides": [stride] * 2, "pads": [taps // 2] * 4}
        operands = [normal(2, 3, size + 1, size + 1), normal(3, 1, taps, taps), normal(3)]
        cases.append(Case("Conv", operands, attributes, [1, 2], rtol=1e-4, atol=1e-4))
    check(cases, flags=("-O3", *NATIVE))


@pytest.mark.long
def test_products_by_packed_rows_of_all_widths() -> None:
    """Up to 4 columns behind the last vector have vectors of rows; an infinity or NaN stays in its column."""
    cases = []
    for number, n in enumerate((1, 2, 3, 4, 5, 16, 17, 20, 33, 49, 52, 65)):
        m, k = (5, 6, 13, 101)[number % 4], (1, 5, 259)[number % 3]
        dtype = np.float64 if number % 5 == 0 else np.float32
        x = normal(2, k, n, dtype=dtype)
        x[0, k // 2, n - 1], x[1, k - 1, 0] = np.inf, np.nan
        operands = [x, normal(m, k, 1, seed=1, dtype=dtype), normal(m, seed=2, dtype=dtype)]
        cases.append(
            Case("Conv", operands[: 2 + number % 2], {}, [1, 2][: 1 + number % 2], rtol=1e-3, atol=1e-3)
        )
    check(cases, flags=("-O3", *NATIVE))
    check(cases)


def test_products_by_packed_rows_of_all_heights() -> None:
    """The last tile is 4, 6, 8 or 12 rows high; what is behind the last row stays as it is."""
    cases = [
        Case("Conv", [normal(2, 9, n), normal(m, 9, 1, seed=m), normal(m)], {}, [1, 2], rtol=1e-3, atol=1e-3)
        for m in (4, 7, 8, 9, 10, 11, 12, 14, 16, 17, 32, 100)
        for n in (40, 64)
    ]
    check(cases, flags=("-O3", *NATIVE))
    check(cases)
    text = gemm_kernels("float", 4).text
    assert all(f"farcall_tile{rows}x2_float(" in text for rows in (4, 6, 8, 12))


def test_products_by_packed_rows_of_a_few_last_columns() -> None:
    """Up to 9 columns behind the last vector, of blocks of even and odd depth, and of several blocks."""
    shapes = [(m, 9, n) for m in (4, 7, 13, 24, 31) for n in (*range(1, 11), 25, 41)]
    shapes += [(20, depth, n) for depth in (8, 600, 1025) for n in (5, 9, 25)]
    cases = [
        Case("Conv", [normal(2, k, n), normal(m, k, 1, seed=m), normal(m)], {}, [1, 2], rtol=1e-3, atol=1e-3)
        for m, k, n in shapes
    ]
    check(cases, flags=("-O3", *NATIVE))
    check(cases)
    assert "farcall_narrow9_float(" in gemm_kernels("float", 4).text


def test_a_window_that_is_the_image() -> None:
    """Images are rows of a product, whose number may be known at the call only."""
    for images in (1, 2, 7):
        operands = [normal(images, 3, 4, 2), normal(50, 3, 4, 2, seed=1), normal(50, seed=2)]
        check([Case("Conv", operands, {}, [1, 2], rtol=1e-4, atol=1e-4)])
    operands = [normal(2, 3, 1, 1), normal(50, 3, 1, 1, seed=1)]
    case = Case("Conv", operands, {}, [1], symbolic={0: ["n", 3, 1, 1]}, rtol=1e-4, atol=1e-4)
    (conv,) = check([case])
    for images in (0, 1, 5):
        x = normal(images, 3, 1, 1)
        expected = x[:, :, 0, 0] @ operands[1][:, :, 0, 0].T
        np.testing.assert_allclose(conv(x)[0][:, :, 0, 0], expected, rtol=1e-4, atol=1e-4)


def test_conv_without_elements() -> None:
    regions = compile_regions(
        [
            whole_region(Case("Conv", [normal(0, 2, 4, 4), normal(5, 2, 3, 3)]).model(), name="c_0"),
            whole_region(
                Case("Conv", [normal(2, 0, 4, 4), normal(5, 0, 3, 3), normal(5)]).model(), name="c_1"
            ),
        ]
    )
    assert regions[0](normal(0, 2, 4, 4), normal(5, 2, 3, 3))[0].shape == (0, 5, 2, 2)
    (result,) = regions[1](normal(2, 0, 4, 4), normal(5, 0, 3, 3), normal(5))
    np.testing.assert_array_equal(result, np.broadcast_to(normal(5)[:, None, None], (2, 5, 2, 2)))


def test_conv_long_rows_and_many_channels() -> None:
    """More columns than a block holds, more depth than one block of K, channels that do not fill a tile."""
    check(
        [
            Case("Conv", [normal(1, 3, 2000), normal(7, 3, 5)], {"pads": [2, 2]}, rtol=1e-4, atol=1e-4),
            Case("Conv", [normal(1, 3, 3, 1100), normal(9, 3, 2, 3)], rtol=1e-4, atol=1e-4),
            Case("Conv", [normal(2, 70, 9, 9), normal(13, 70, 3, 3)], rtol=1e-3, atol=1e-3),
            Case("Conv", [normal(2, 300, 5, 5), normal(17, 300, 1, 1)], rtol=1e-3, atol=1e-3),
            Case(
                "Conv", [normal(1, 8, 14, 14), normal(8, 1, 3, 3)], {"group": 8, "strides": [2, 2]}, rtol=1e-4
            ),
        ]
    )


def test_depthwise() -> None:
    """Planes that are smaller than a vector, larger than a copy, and read in phases."""
    pads = {"pads": [2, 1, 2, 3]}
    check(
        [
            Case("Conv", [normal(*x), normal(*w), *bias], {"group": x[1], **more}, rtol=1e-4, atol=1e-4)
            for x, w, more in [
                ((2, 3, 7, 7), (3, 1, 5, 5), pads),
                ((1, 5, 14, 9), (10, 1, 3, 3), {"strides": [2, 3], **pads}),
                ((1, 2, 150, 170), (2, 1, 3, 3), {"dilations": [2, 3], **pads}),
                ((1, 2, 151, 90), (2, 1, 5, 3), {"strides": [3, 2], "dilations": [2, 1], **pads}),
                ((1, 2, 3, 5000), (2, 1, 3, 3), pads),
                ((2, 3, 40), (6, 1, 3), {"strides": [2]}),
                ((1, 4, 6, 6), (4, 1, 1, 1), {"strides": [5, 5]}),
                ((2, 70, 5, 6), (70, 1, 3, 3), {"pads": [1, 1, 1, 1]}),
                ((1, 2, 900, 5), (4, 1, 3, 3), {"pads": [1, 1, 1, 1]}),
                ((1, 2, 20, 90), (2, 1, 17, 11), pads),
                ((1, 2, 9, 300), (2, 1, 70, 3), {"pads": [40, 1, 40, 1]}),
                ((2, 3, 99), (3, 1, 9), {"strides": [1], "dilations": [2]}),
            ]
            for bias in ([], [normal(w[0], seed=1)])
        ]
    )


def test_depthwise_windows_of_five_rows_of_all_widths() -> None:
    """With AVX-512, whole vectors compute them. The last one may overlap the others, or end behind a row."""
    cases = []
    for width in range(1, 36):
        operands = [normal(1, 2, 2 + width % 9, width), normal(2, 1, 5, 3), normal(2)]
        cases.append(Case("Conv", operands, {"group": 2, "pads": [2, 1, 2, 1]}, rtol=1e-4, atol=1e-4))
    check(cases, flags=("-O1", *NATIVE))


def test_the_rows_of_a_tile() -> None:
    """As many as the registers have sums for, if they divide the rows of a plane; never more than it has."""
    assert [tile_rows(outs, outs) for outs in (1, 5, 7, 14, 28, 56, 16)] == [1, 5, 7, 7, 7, 8, 8]
    assert tile_rows(23, 3) == 3


def test_small_planes_are_finished_together() -> None:
    """The loop over the elements of one plane would have hardly a whole vector."""
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[1, 90, 7, 7] x) => (float[1, 90, 7, 7] y)
      <float[90, 1, 3, 3] w> { c = Conv <group = 90, pads = [1, 1, 1, 1]> (x, w) y = Relu (c) }"""
    source = fc.partition(parsed(text), backends=["c"]).source("c_0")
    assert "s < (g1 - g0) * 1 * 49" in source
    assert "farcall_depthwise_float_3x3_1x1_1x1_7(" in source


@pytest.mark.parametrize(
    "attributes", [{"pads": [1, 1, 1, 1]}, {"auto_pad": "SAME_LOWER", "strides": [2, 3]}]
)
def test_conv_symbolic_in_every_dim(attributes: dict[str, object]) -> None:
    weights = normal(6, 2, 3, 3)
    case = Case(
        "Conv",
        [normal(1, 2, 5, 5), weights],
        attributes,
        [1],
        symbolic={0: ["n", 2, "h", "w"]},
        rtol=1e-4,
        atol=1e-5,
    )
    (region,) = check([case])
    for shape in [(3, 2, 9, 7), (1, 2, 3, 600), (2, 2, 4, 130), (0, 2, 5, 5)]:
        x = normal(*shape)
        (got,) = region(x)
        if shape[0]:
            np.testing.assert_allclose(got, case.expected([x, weights])[0], rtol=1e-4, atol=1e-5)


def random_pool(rng: np.random.Generator, op: str, spatial: int) -> Case:
    taps, strides = rng.integers(1, 4, spatial), rng.integers(1, 4, spatial)
    dilations = rng.integers(1, 3, spatial)
    pads = np.minimum(rng.integers(0, 3, 2 * spatial), np.tile((taps + 1) // 2, 2) - (np.tile(taps, 2) < 2))
    sizes = (taps - 1) * dilations + 1 + rng.integers(1, 7, spatial)
    attributes: dict[str, object] = {
        "kernel_shape": taps.tolist(), "strides": strides.tolist(), "dilations": dilations.tolist(),
        "pads": np.maximum(pads, 0).tolist(), "ceil_mode": int(rng.integers(0, 2)),
    }  # fmt: skip
    if op == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(0, 2))
    if op == "LpPool":
        attributes["p"] = int(rng.integers(1, 6))
    return Case(op, [rng.standard_normal((2, 3, *sizes)).astype(np.float32)], attributes)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_pool_random_agrees_with_onnxruntime(op: str) -> None:
    import onnxruntime as ort

    rng = np.random.default_rng(len(op))
    cases = [random_pool(rng, op, spatial) for spatial in (1, 2, 3) for _ in range(8)]
    regions = compile_regions([whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)])
    for case, region in zip(cases, regions, strict=True):
        session = ort.InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
        (expected,) = session.run(None, {"x0": case.operands[0]})
        (got,) = region(*case.feeds())
        if got.shape != expected.shape:  # before opset 22, onnx counts windows that begin in the padding
            assert case.attributes["ceil_mode"]
            got = got[tuple(slice(size) for size in expected.shape)]
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6, err_msg=str(case.attributes))


def test_pools_of_long_rows_and_wide_windows() -> None:
    """Rows that fill vectors and do not, more rows than are joined at once, windows in the padding."""
    x = normal(2, 3, 19, 37)
    wide = {"kernel_shape": [11, 9], "strides": [2, 3], "pads": [5, 4, 5, 4]}
    far = {"kernel_shape": [2, 3], "strides": [3, 5], "pads": [1, 2, 1, 2], "dilations": [4, 7]}
    bytes_ = (normal(2, 3, 19, 37) * 50).astype(np.int8)
    regions = check(
        [
            *(Case(op, [x], attributes) for op in ("MaxPool", "AveragePool") for attributes in (wide, far)),
            *(
                Case("MaxPool", [data], wide)
                for data in (bytes_, bytes_.astype(np.uint8), x.astype(np.float64))
            ),
            Case("AveragePool", [x.astype(np.float64)], {**wide, "count_include_pad": 1}),
            Case("LpPool", [normal(1, 2, 19, 37, dtype=np.float64)], {"kernel_shape": [12, 1], "p": 64}),
            Case("LpPool", [normal(1, 2, 19)], {"kernel_shape": [3], "p": 1, "auto_pad": "VALID"}, opset=2),
        ]
    )
    x[0, 0, 3, 5] = x[1, 2, 18, 36] = np.nan  # makes every window that has it NaN, as in PyTorch
    (largest,), (mean,) = regions[0](x), regions[2](x)
    np.testing.assert_array_equal(np.isnan(largest), np.isnan(mean))
    assert np.isnan(largest).any()


def test_pools_of_many_small_planes() -> None:
    """Blocks of planes are joined at once, if no window reaches over the end of a row."""
    windows = [
        ((4, 4), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ((7, 5), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}),
        ((5, 9), {"kernel_shape": [2, 2], "strides": [1, 3], "dilations": [2, 2]}),
        ((16,), {"kernel_shape": [3], "strides": [4]}),
        ((3, 2, 8), {"kernel_shape": [2, 1, 2], "strides": [1, 1, 2], "pads": [1, 0, 0, 0, 0, 0]}),
    ]
    cases = [
        Case(op, [normal(3, 101, *sizes)], attributes, symbolic={0: ["n", 101, *sizes]}, rtol=1e-5, atol=1e-6)
        for sizes, attributes in windows
        for op in ("MaxPool", "AveragePool")
    ]
    for case, region in zip(cases, check(cases), strict=True):
        assert "n0_end" in region.code.texts[f"{region.region.name}.c"], case.attributes
    halves = {
        "kernel_shape": [2, 2],
        "strides": [2, 2],
    }  # computed row by row: a block would have one plane, or rows are long
    check(
        [
            Case("MaxPool", [normal(2, 3, *sizes)], halves)
            for sizes in ((128, 16), (64, 16), (66, 14), (4, 18))
        ]
    )


def test_pools_of_few_windows_far_apart() -> None:
    """The text and the working memory depend on the taps and the image, and not on the stride."""
    x = normal(2, 3, 7, 31)
    far = [{"kernel_shape": [2, 3], "strides": [1, stride]} for stride in (8, 29, 30, 31, 2**31 - 1)]
    rows = {"kernel_shape": [3, 2], "strides": [2**40, 2], "pads": [1, 1, 1, 1]}
    dilated = {"kernel_shape": [1, 4], "strides": [1, 5], "dilations": [1, 3]}
    check([Case("MaxPool", [x], attributes) for attributes in (*far, rows, dilated)])


def test_a_window_of_more_elements_than_can_be_written_is_refused() -> None:
    far = 2**31 - 1
    model = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[1,1,4] x) => (float[1,1,m] y)
        {{ y = MaxPool<kernel_shape=[{far}], pads=[{far - 1},{far - 1}], strides=[{far}]>(x) }}"""
    with pytest.raises(UnsupportedOperatorError, match="windows of 2147483647 elements in a row"):
        fc.partition(onnx.parser.parse_model(model))


def test_global_lp_pool() -> None:
    x = normal(2, 3, 4, 5)
    cases = [
        Case("GlobalLpPool", [x], {"p": p}, symbolic={0: ["n", 3, "h", "w"]}, shapes={0: ["n", 3, 1, 1]})
        for p in (1, 2, 3)
    ]
    regions = compile_regions([whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)])
    for p, region in enumerate(regions, start=1):
        expected = (abs(x) ** p).sum(axis=(2, 3), keepdims=True) ** (1 / p)
        np.testing.assert_allclose(region(x)[0], expected, rtol=1e-5)
    assert "p=0" in refusal(Case("GlobalLpPool", [x], {"p": 0}, shapes={0: [2, 3, 1, 1]}))


def test_unpooled() -> None:
    """Elements return to where MaxPool found them."""
    x = normal(2, 3, 6, 8)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    top, places = Case("MaxPool", [x], window, outputs=2).expected()
    symbolic = {0: ["n", 3, "h", "w"], 1: ["n", 3, "h", "w"]}
    larger = np.int64([2, 3, 7, 9])
    late = {0: [2, 3, 7, 9]}
    cases = [
        Case("MaxUnpool", [top, places], window, symbolic=symbolic),
        Case("MaxUnpool", [top, places, larger], window, [2], shapes=late),
        Case("MaxUnpool", [top, places, larger], window, shapes=late),
    ]
    plain, _, computed = check(cases)
    kept = plain(top, places)[0]
    assert kept.shape == x.shape
    np.testing.assert_array_equal(kept[kept != 0], x[kept != 0])
    for wrong in (2 * 3 * 6 * 8, 2**62, -(2 * 3 * 6 * 8) - 1):
        with pytest.raises(RuntimeError):
            plain(top, np.full_like(places, wrong))
    for shape in ([2, 3, 7, 8], [2, 3, -7, -9]):
        with pytest.raises(RuntimeError):
            computed(top, places, np.int64(shape))
    smaller = Case("MaxUnpool", [top, places, np.int64([2, 3, 5, 8])], window, [2], shapes={0: [2, 3, 5, 8]})
    (region,) = compile_regions([whole_region(smaller.model())])
    with pytest.raises(RuntimeError):  # a place in the sixth row
        region(top, np.full_like(places, 5 * 8))


def test_pool_corners() -> None:
    x = normal(2, 3, 7, 8)
    x[0, 0, 0, 0] = np.nan
    base = {"kernel_shape": [3, 2], "strides": [2, 2]}
    check(
        [
            Case("MaxPool", [normal(2, 3, 7, 8)], base, outputs=2),
            Case("MaxPool", [normal(2, 3, 7, 8)], {**base, "storage_order": 1}, outputs=2),
            Case("MaxPool", [(normal(1, 2, 6, 6) * 50).astype(np.int8)], base),
            Case("MaxPool", [normal(1, 2, 6, 6, dtype=np.float64)], {**base, "auto_pad": "SAME_UPPER"}),
            Case("AveragePool", [normal(1, 2, 6, 6)], {**base, "auto_pad": "SAME_LOWER"}),
            Case("GlobalAveragePool", [normal(2, 3, 4, 5)]),
            Case("GlobalMaxPool", [normal(2, 3, 4, 5, dtype=np.float64)]),
        ]
    )


def test_pool_symbolic() -> None:
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    cases = [
        Case(op, [normal(1, 2, 5, 5)], attributes, symbolic={0: ["n", "c", "h", "w"]})
        for op in ("MaxPool", "AveragePool")
    ]
    for case, region in zip(cases, check(cases), strict=True):
        for shape in [(2, 3, 9, 8), (1, 1, 1, 1), (4, 2, 2, 17)]:
            x = normal(*shape)
            np.testing.assert_allclose(region(x)[0], case.expected([x])[0], rtol=1e-5, atol=1e-6)


def test_lrn_agrees_with_onnxruntime() -> None:
    """The reference evaluator goes through as many channels as there are batches (onnx 1.23)."""
    import onnxruntime as ort

    cases = [
        Case("LRN", [normal(2, 7, 4, 5)], {"size": 5, "alpha": 0.1, "beta": 0.5, "bias": 2.0}),
        Case("LRN", [normal(1, 5, 7, 70)], {"size": 3}),
    ]
    regions = compile_regions([whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)])
    for case, region in zip(cases, regions, strict=True):
        session = ort.InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
        (expected,) = session.run(None, {"x0": case.operands[0]})
        np.testing.assert_allclose(region(*case.feeds())[0], expected, rtol=1e-5)


def test_refusals_say_why() -> None:
    conv = Case("Conv", [normal(1, 2, 4, 4), normal(3, 2, 3, 3)])
    assert "weight's shape" in refusal(
        replace(conv, symbolic={1: ["a", "b", 3, 3]}, shapes={0: ["p", "q", "r", "s"]})
    )
