"""Resize and Upsample against the reference evaluator, at random sizes, and with sizes that are computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

import farcall as fc

from .cases import Case, check, compare, refusal
from .harness import compile_regions, whole_region

PLACES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
DTYPES = (np.float32, np.float64, np.uint8, np.int8, np.int16, np.int32, np.int64)


def normal(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 30).astype(dtype)


def random_case(rng: np.random.Generator, mode: str) -> Case:
    rank = int(rng.integers(1, 4))
    shape = rng.integers(1, 9, rank)
    named = [int(axis) for axis in rng.permutation(rank)[: rng.integers(1, rank + 1)]]
    attributes: dict[str, object] = {
        "mode": mode, "coordinate_transformation_mode": str(rng.choice(PLACES)),
        "axes": named,
    }  # fmt: skip
    if mode == "nearest":
        attributes["nearest_mode"] = str(rng.choice(NEAREST))
    else:
        attributes |= {"antialias": int(rng.integers(0, 2)), "exclude_outside": int(rng.integers(0, 2))}
    if mode == "cubic":
        attributes["cubic_coeff_a"] = float(rng.choice([-0.5, -0.75]))
    scales = sizes = None
    if attributes["coordinate_transformation_mode"] == "pytorch_half_pixel":  # of one element, the reference
        sizes = rng.integers(2, 14, len(named)).astype(np.int64)  # takes another place than ONNX's text
    elif rng.integers(0, 2):  # of halves and quarters, so that ties are exact
        scales = rng.choice([0.25, 0.5, 0.75, 1, 1.25, 2, 3, 5.5], len(named)).astype(np.float32)
    else:
        sizes = rng.integers(1, 14, len(named)).astype(np.int64)
        # The reference mixes the wrong neighbours at a place that is almost a whole number.
        if rng.integers(0, 2) and mode == "nearest":
            attributes["keep_aspect_ratio_policy"] = str(rng.choice(["not_larger", "not_smaller"]))
    roi = None
    if attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        attributes["extrapolation_value"] = 7.0
        roi = np.concatenate([rng.uniform(-0.2, 0.4, len(named)), rng.uniform(0.5, 1.3, len(named))])
    dtype = np.float64 if mode == "nearest" else rng.choice(DTYPES)
    x = (rng.standard_normal(shape) * 30).astype(dtype)
    atol = 1.01 if np.issubdtype(dtype, np.integer) else 2e-4
    given = [2] if sizes is None else [3]
    return Case("Resize", [x, roi, scales, sizes], attributes, given, opset=19, rtol=2e-4, atol=atol)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_random(mode: str) -> None:
    rng = np.random.default_rng(len(mode))
    check([random_case(rng, mode) for _ in range(20)])


def test_one_element_is_the_first_one() -> None:
    """As ONNX's text has it, and onnxruntime."""
    import onnxruntime as ort

    case = Case("Resize", [normal(1, 1, 5, 5), None, None, np.int64([1, 1, 1, 1])],
                {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}, [3])  # fmt: skip
    session = ort.InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x0": case.operands[0]})
    (region,) = compile_regions([whole_region(case.model())])
    np.testing.assert_allclose(region(case.operands[0])[0], expected)
    np.testing.assert_allclose(expected, normal(1, 1, 5, 5)[:, :, :1, :1])


@pytest.mark.parametrize("place", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
def test_nearest_elements_are_those_of_onnxruntime(place: str) -> None:
    """At all of these sizes, also where a rounding error moves a place from the middle of two elements."""
    import onnxruntime as ort

    cases = [
        Case("Resize", [np.arange(14, dtype=np.float32), None, None, np.int64([8])],
             {"coordinate_transformation_mode": place, "nearest_mode": nearest},
             opset=18, symbolic={0: ["n"]}, shapes={0: ["m"]})
        for nearest in NEAREST
    ]  # fmt: skip
    sizes = [(n, m) for n in (7, 11, 13, 14, 18, 22, 23, 38) for m in (1, 2, 7, 8, 13, 27, 29, 39)]
    for case in cases:
        main = fc.partition(case.model()).build().load()["main"]
        session = ort.InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
        for n, m in sizes:
            feeds = {"x0": np.arange(n, dtype=np.float32), "x3": np.int64([m])}
            (expected,) = session.run(None, feeds)
            np.testing.assert_array_equal(np.from_dlpack(main(*feeds.values())), expected)


def test_negative_axes() -> None:
    x = normal(2, 5, 4)
    halves = np.float32([2, 0.5])
    pairs = [
        Case("Resize", [x, None, halves], {"axes": axes, "mode": mode}, [2])
        for mode in ("nearest", "linear")
        for axes in ([2, 1], [-1, -2])
    ]
    regions = compile_regions([whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(pairs)])
    for front, back in (regions[:2], regions[2:]):
        np.testing.assert_array_equal(front(x)[0], back(x)[0])


def test_symbolic_sizes() -> None:
    """The common cases: repeated elements, bilinear and antialiased rows, at sizes that a call decides."""
    image = {0: ["n", "c", "h", "w"]}
    scales = {"twice": np.float32([1, 1, 2, 2]), "half": np.float32([1, 1, 0.5, 0.25])}
    near = {"rtol": 1e-4, "atol": 1e-4}
    floor = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    cases = [
        Case("Resize", [normal(1, 2, 3, 5), None, scales[scale]], attributes, [2], symbolic=image, **near)
        for scale, attributes in [
            ("twice", {"mode": "nearest"}),
            ("twice", {"mode": "nearest", **floor}),
            ("twice", {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}),
            ("twice", {"mode": "linear"}),
            ("twice", {"mode": "cubic", "coordinate_transformation_mode": "align_corners"}),
            ("half", {"mode": "nearest", "nearest_mode": "ceil"}),
            ("half", {"mode": "linear", "antialias": 1}),
            ("half", {"mode": "cubic", "antialias": 1, "exclude_outside": 1}),
        ]
    ]  # fmt: skip
    cases += [
        replace(cases[0], operands=[normal(1, 2, 3, 5), None, None, np.int64([7, 4])], constants=[3],
                attributes={"axes": [2, 3], **attributes})
        for attributes in [{"mode": "nearest"}, {"mode": "linear", "antialias": 1}, {"mode": "cubic"}]
    ]  # fmt: skip
    for case, region in zip(cases, check(cases), strict=True):
        for shape in [(2, 1, 8, 4), (1, 3, 1, 17), (3, 2, 40, 9)]:
            x = normal(*shape)
            compare(case, region(x), case.expected([x, *case.operands[1:]]))
        assert region(normal(0, 2, 4, 4))[0].size == 0
        if case.operands[3:]:
            with pytest.raises(RuntimeError):  # nothing to make seven rows of
                region(normal(1, 1, 0, 4))
        else:
            assert region(normal(1, 1, 0, 4))[0].size == 0


def test_computed_sizes_and_scales() -> None:
    """They must make the output that the model declares."""
    x, shapes, near = normal(2, 3, 8), {0: [2, 6, 4]}, {"rtol": 1e-4, "atol": 1e-4}
    halves = np.float32([1, 2, 0.5])
    policy = {"mode": "linear", "antialias": 1, "axes": [1, 2], "keep_aspect_ratio_policy": "not_larger"}
    by_sizes = Case("Resize", [x, None, None, np.int64([2, 6, 4])], {"mode": "linear"}, shapes=shapes)
    by_scales = Case("Resize", [x, None, halves], {"mode": "cubic", "antialias": 1}, shapes=shapes, **near)
    fitted = Case("Resize", [x, None, None, np.int64([6, 9])], policy, shapes={0: [2, 3, 9]}, **near)
    sizes, scales, fit = check([by_sizes, by_scales, fitted])
    for wrong in ([2, 6, 5], [2, 6, -4], [2**62, 6, 4]):
        with pytest.raises(RuntimeError):
            sizes(x, np.int64(wrong))
    for wrong in ([1, 2, 0.7], [1, 2, np.nan], [1, 2, np.inf], [1, 2, -0.5], [1, 2, 1e30]):
        with pytest.raises(RuntimeError):
            scales(x, np.float32(wrong))
    for wrong in ([6, 12], [0, 9], [-1, -1]):
        with pytest.raises(RuntimeError):
            fit(x, np.int64(wrong))


LATE = """
<ir_version: 10, opset_import: ["" : 19]>
g (float[2, h, w] x, uint8[2, h, 600] b, float[3] scales, int64[2] sizes, float[2] roi) => (
    float[p, q, r] near, float[p, q, r] mixed, float[p, q, r] cubes, uint8[2, h, t] bytes,
    float[2, u, v] fitted, float[2, k, w] cut) {
  near = Resize<mode="nearest">(x, , scales)
  mixed = Resize<mode="linear">(x, , scales)
  cubes = Resize<mode="cubic", antialias=1, exclude_outside=1>(x, , scales)
  one = Constant<value_ints=[0]>()
  two = Constant<value_ints=[1]>()
  last = Slice(sizes, one, two)
  bytes = Resize<mode="linear", axes=[2]>(b, , , last)
  fitted = Resize<mode="linear", axes=[2, 1], keep_aspect_ratio_policy="not_larger">(x, , , sizes)
  cut = Resize<mode="linear", axes=[1], coordinate_transformation_mode="tf_crop_and_resize">(x, roi, , last)
}
"""


@pytest.mark.parametrize("source", ["given", "computed"])
def test_sizes_by_scales_are_those_of_float32(source: str) -> None:
    """10 * 0.7 is 7 in float32, and 6 by the exact value of 0.7f; 30 * 2.1 is 62, and 20 * 2.1 is 42."""
    wide = {0.7: [7, 14, 21], 1.8: [18, 36, 54], 2.1: [21, 42, 62], 0.5: [5, 10, 15]}
    lines = [f'y{i} = Resize <mode = "linear"> (x, , s{i})' for i in range(len(wide))]
    lines += [f"k{i} = Constant <value_floats = [1.0, {scale}]> ()" for i, scale in enumerate(wide)]
    lines += [
        f"s{i} = {'Mul(k%d, one)' if source == 'computed' else 'Identity(k%d)'}" % i for i in range(len(wide))
    ]
    outputs = ", ".join(f"float[?, ?] y{i}" for i in range(len(wide)))
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 18]>
    g (float[1, n] x, float[1] one) => ({outputs}) {{ {" ".join(lines[::-1])} }}""")
    main = fc.partition(model, backends=["c"]).build().load()["main"]
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for place, size in enumerate((10, 20, 30)):
        feeds = {"x": normal(1, size), "one": np.ones(1, np.float32)}
        found = [np.from_dlpack(one) for one in main(*feeds.values())]
        assert [one.shape[1] for one in found] == [sizes[place] for sizes in wide.values()]
        for one, theirs in zip(found, session.run(None, feeds), strict=True):
            np.testing.assert_allclose(one, theirs, rtol=1e-4, atol=1e-4)


def test_sizes_that_only_the_node_knows() -> None:
    """Nothing declares the dims of the outputs: they are allocated."""
    model = onnx.parser.parse_model(LATE)
    main = fc.partition(model, backends=["c"]).build().load()["main"]
    rng = np.random.default_rng(0)
    for _ in range(6):
        height, width = (int(n) for n in rng.integers(1, 12, 2))
        feeds = {
            "x": normal(2, height, width), "b": rng.integers(0, 255, (2, height, 600)).astype(np.uint8),
            "scales": rng.choice([0.5, 0.75, 1, 1.5, 2.25], 3).astype(np.float32),
            "sizes": rng.integers(1, 9, 2) * (1, 3), "roi": np.float32([0.15, 0.8]),
        }  # fmt: skip
        feeds["sizes"][0] += 520 * rng.integers(0, 2)  # more than one run of elements
        for got, expected in zip(
            main(*feeds.values()), ReferenceEvaluator(model).run(None, feeds), strict=True
        ):
            assert got.shape == expected.shape
            atol = 1.01 if got.dtype == np.uint8 else 1e-4
            np.testing.assert_allclose(got.astype(float), expected, rtol=1e-4, atol=atol, err_msg=str(feeds))
    for wrong in (
        {"scales": np.float32([1, np.nan, 1])},
        {"scales": np.float32([1, -1, 1])},
        {"sizes": np.int64([-3, 3])},
    ):
        with pytest.raises(ValueError):
            main(*(feeds | wrong).values())
    with pytest.raises(MemoryError):
        main(*(feeds | {"scales": np.float32([1e8, 1e8, 1e8])}).values())


def test_crop_of_any_part() -> None:
    """A roi is data: what it asks for may lie anywhere."""
    x = normal(1, 4, 6)
    size = np.int64([1, 5, 7])
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -3.5}
    roi = np.float32([0, 0.2, 0.15, 1, 0.7, 1.2])
    cases = [
        Case("Resize", [x, roi, None, size], {"mode": mode, **crop}, [3], rtol=1e-4, atol=1e-4)
        for mode in ("nearest", "linear", "cubic")
    ]
    for region in check(cases):
        for far in (np.inf, -np.inf, np.nan, 1e30):
            (got,) = region(x, np.float32([0, far, 0, 1, far, 1]))
            assert (got == -3.5).all()


def test_upsample_and_the_first_resize() -> None:
    x = normal(1, 2, 3, 4)
    double, fewer = np.float32([1, 1, 2, 3]), np.float32([1, 1, 0.6, 0.6])
    cases = [
        Case("Upsample", [x, double], {"mode": "nearest"}, [1], opset=9),
        Case("Upsample", [(x * 3).astype(np.uint8), double], {"mode": "nearest"}, [1], opset=9),
    ]
    check(cases)
    same = [
        (Case("Upsample", [x], {"mode": "linear", "scales": double.tolist()}, opset=7), "linear", double),
        (Case("Resize", [x, double], {"mode": "linear"}, [1], opset=10), "linear", double),
        (Case("Resize", [x, fewer], {}, [1], opset=10), "nearest", fewer),
    ]
    regions = compile_regions(
        [whole_region(case.model(), name=f"c_{i}") for i, (case, *_) in enumerate(same)]
    )
    for region, (_, mode, scales) in zip(regions, same, strict=True):
        attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
        attributes["nearest_mode"] = "ceil"  # where it shrinks
        new = Case("Resize", [x, None, scales], attributes, [2])
        compare(new, region(x), new.expected())


@pytest.mark.parametrize("place", ["asymmetric", "half_pixel"])
def test_the_nearest_element_is_that_of_a_place_in_float32(place: str) -> None:
    """``3 / 0.6f`` is 5 in float32, as torch and onnxruntime compute it, and less than 5 in double."""
    x, shift = np.arange(40, dtype=np.float32), np.float32(0.5 if place == "half_pixel" else 0)
    attributes = {"mode": "nearest", "coordinate_transformation_mode": place, "nearest_mode": "floor"}
    scales = [np.float32([scale]) for scale in (0.6, 0.7, 1.3, 2.4)]
    cases = [Case("Resize", [x, None, scale], attributes, [2]) for scale in scales]
    regions = compile_regions([whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)])
    for scale, region in zip(scales, regions, strict=True):
        (got,) = region(x)
        places = (np.arange(len(got), dtype=np.float32) + shift) / scale - shift
        np.testing.assert_array_equal(got, x[np.floor(places).clip(0, 39).astype(int)])


def test_elements_that_are_not_mixed() -> None:
    """Nearest copies any type, and reads no neighbour that is not a number."""
    x = normal(1, 3, 4)
    x[0, 1, 2] = np.nan
    kinds = [x, x > 0, x.astype(np.float16), np.nan_to_num(x).astype(np.int64) << 40]
    scales = np.float32([1, 3, 2])
    cases = [Case("Resize", [data, None, scales], {"mode": "nearest"}, [2]) for data in kinds]
    regions = compile_regions([whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)])
    for data, region in zip(kinds, regions, strict=True):
        np.testing.assert_array_equal(region(data)[0], data.repeat(3, 1).repeat(2, 2))


def test_refusals_say_why() -> None:
    x = normal(2, 3)
    scales = np.float32([2, 2])
    assert refusal(Case("Resize", [x, None, scales], {"antialias": 1}, [2])).startswith("antialias")
    assert refusal(Case("Resize", [x, None, scales], {"mode": "area"}, [2])) == "mode=area"
    assert "bool" in refusal(Case("Resize", [x > 0, None, scales], {"mode": "linear"}, [2]))
