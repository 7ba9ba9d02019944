"""RoiAlign, MaxRoiPool and DeformConv against the reference evaluator, onnxruntime and PyTorch."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from .cases import Case, check, compare, refusal
from .harness import compile_regions, whole_region


def normal(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def regions_of(count: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    """Corners inside and outside of an image of 7 x 9 elements, and one region without elements."""
    low = np.random.default_rng(seed).uniform(-6, 16, (count, 2))
    boxes = np.concatenate([low, low + np.random.default_rng(seed + 1).uniform(0, 14, (count, 2))], axis=1)
    boxes[0] = 2
    return boxes.astype(dtype)


IMAGES = np.int64([1, 0, 1, 0, 1])


def test_roi_align() -> None:
    x = normal(2, 3, 7, 9)
    cases = [
        Case(
            "RoiAlign",
            [x, regions_of(5), IMAGES],
            {"mode": mode, "coordinate_transformation_mode": shift, "sampling_ratio": ratio,
             "output_height": 2, "output_width": 3, "spatial_scale": scale},
            opset=22,
            rtol=1e-4,
            atol=1e-5,
        )
        for mode, (shift, scale), ratio in product(
            ("avg", "max"), (("half_pixel", 0.5), ("output_half_pixel", 0.625)), (0, 1, 3)
        )
    ]  # fmt: skip
    double = [x.astype(np.float64), regions_of(5, dtype=np.float64), IMAGES]
    cases.append(Case("RoiAlign", double, {"output_height": 4, "spatial_scale": 0.25}, opset=16))
    check(cases, ["-O0"])  # the time goes into the compiler


def test_roi_align_agrees_with_onnxruntime() -> None:
    ort = pytest.importorskip("onnxruntime")
    cases = [
        Case(
            "RoiAlign",
            [normal(2, 3, 7, 9), regions_of(5), IMAGES],
            {"sampling_ratio": ratio, "output_height": 3, "output_width": 2, "spatial_scale": 0.5},
            opset=opset,
            symbolic={0: ["b", 3, "h", "w"], 1: ["n", 4], 2: ["n"]},
            rtol=1e-4,
            atol=1e-5,
        )
        for ratio, opset in product((0, 2), (10, 16))
    ]
    cases += [
        Case(
            "MaxRoiPool",
            [normal(2, 3, 7, 9), np.concatenate([IMAGES[:, None].astype(np.float32), regions_of(5)], axis=1)],
            {"pooled_shape": shape, "spatial_scale": scale},
            symbolic={0: ["b", 3, "h", "w"], 1: ["n", 5]},
        )
        for shape, scale in (([2, 3], 0.5), ([1, 1], 1.0), ([7, 4], 0.3))
    ]
    compiled = compile_regions([whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)])
    for case, region in zip(cases, compiled, strict=True):
        session = ort.InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
        feeds = dict(zip(case.names(), case.operands, strict=True))
        compare(case, region(*case.operands), session.run(None, feeds))
        none = [case.operands[0], *(item[:0] for item in case.operands[1:])]
        assert region(*none)[0].shape[0] == 0
        outside = [item[:1].copy() for item in case.operands]
        outside[-1].ravel()[0] = 1  # of one image
        with pytest.raises(RuntimeError):
            region(*outside)


HOSTILE = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e9, -1e9, 2**31, 0]


@pytest.mark.parametrize("shape", [(1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 1, 1)])
def test_hostile_regions_read_nothing_else_and_take_no_time(shape: tuple[int, ...]) -> None:
    corners = np.float32(list(product(HOSTILE, repeat=4)))
    x, images = np.full(shape, 7, np.float32), np.zeros(len(corners), np.int64)
    cases = [
        Case(
            "RoiAlign", [x, corners, images],
            {"mode": mode, "sampling_ratio": ratio, "coordinate_transformation_mode": f"{shift}half_pixel"},
            opset=16,
        )
        for mode, ratio, shift in (("avg", 0, ""), ("max", 2, ""), ("avg", 0, "output_"))
    ]  # fmt: skip
    boxes = np.concatenate([images[:, None].astype(np.float32), corners], axis=1)
    cases.append(Case("MaxRoiPool", [x, boxes], {"pooled_shape": [2, 2]}))
    for case, region in zip(
        cases,
        compile_regions([whole_region(c.model(), name=f"c_{i}") for i, c in enumerate(cases)]),
        strict=True,
    ):
        (got,) = region(*case.operands)
        assert ((got >= 0) & (got <= 7.001)).all(), case.attributes
    boxes[0, 0] = np.nan
    with pytest.raises(RuntimeError):
        region(x, boxes)


def deform(
    x: np.ndarray, w: np.ndarray, bias: bool, mask: bool, groups: int = 1, **attributes: object
) -> Case:
    count, taps = x.ndim - 2, int(np.prod(w.shape[2:]))
    strides = attributes.get("strides", [1] * count)
    pads = attributes.get("pads", [0] * 2 * count)
    dilations = attributes.get("dilations", [1] * count)
    out = [
        (x.shape[2 + i] + pads[i] + pads[i + count] - (w.shape[2 + i] - 1) * dilations[i] - 1) // strides[i]
        + 1
        for i in range(count)
    ]
    offsets = normal(x.shape[0], groups * taps * count, *out, seed=3, dtype=x.dtype) * 2
    operands = [
        x,
        w,
        offsets,
        normal(w.shape[0], seed=4, dtype=x.dtype) if bias else None,
        normal(x.shape[0], groups * taps, *out, seed=5, dtype=x.dtype) if mask else None,
    ]
    while operands[-1] is None:
        operands.pop()
    attributes |= {"offset_group": groups}
    return Case("DeformConv", operands, attributes, opset=22, rtol=1e-3, atol=1e-4)


def test_deform_conv() -> None:
    x = normal(2, 4, 5, 6)
    cases = [
        deform(x, normal(3, 4, 2, 3), False, False),
        deform(x, normal(3, 4, 3, 3), True, True, 2, pads=[1, 1, 1, 0], strides=[2, 1], dilations=[1, 2]),
        deform(x, normal(8, 2, 2, 2), False, True, 4, group=2),
        deform(x.astype(np.float64), normal(2, 4, 1, 1, dtype=np.float64), True, False, 2),
    ]
    for case in cases:
        case.shapes = {0: (2, case.operands[1].shape[0], *case.operands[2].shape[2:])}
    check(cases, ["-O0"])  # the time goes into the compiler
    assert "3 channels are not divided by offset_group=2" in refusal(
        deform(normal(1, 3, 4, 4), normal(1, 3, 2, 2), False, False, 2)
    )


def test_deform_conv_of_other_ranks_and_sizes() -> None:
    """With whole offsets a convolution reads at moved positions, which the test does itself."""
    case = deform(normal(1, 2, 9), normal(3, 2, 2), False, False)
    volume = deform(normal(1, 2, 3, 4, 5), normal(2, 2, 2, 1, 2), False, True)
    many = deform(normal(1, 2, 20, 30), normal(3, 2, 3, 3), False, False)
    case.symbolic = {0: ["b", 2, "n"], 2: ["b", 2, "m"]}
    cases = [case, volume, many]
    line, box, plane = compile_regions([whole_region(c.model(), name=f"c_{i}") for i, c in enumerate(cases)])
    x, w = case.operands[:2]
    for offset in (-3, 0, 2):
        (got,) = line(x, w, np.full((1, 2, 8), offset, np.float32))
        padded = np.pad(x[0], ((0, 0), (3, 4)))
        expected = sum(w[:, :, k] @ padded[:, 3 + offset + k : 11 + offset + k] for k in range(2))
        np.testing.assert_allclose(got[0], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError):  # offsets for another number of elements
        line(x, w, np.zeros((1, 2, 7), np.float32))
    assert line(x[:0], w, np.zeros((0, 2, 8), np.float32))[0].shape == (0, 3, 8)
    zero = [*volume.operands[:2], 0 * volume.operands[2], 0 * volume.operands[4]]
    assert not box(*zero)[0].any()
    one = np.ones_like(volume.operands[4])
    (got,) = box(*zero[:3], one)
    vx, vw = volume.operands[:2]
    expected = sum(
        np.einsum("oc,bcxyz->boxyz", vw[:, :, i, 0, k], vx[:, :, i : i + 2, :, k : k + 4])
        for i in range(2) for k in range(2)
    )  # fmt: skip
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    for bad in (np.nan, np.inf, -np.inf, 3e38, 1e10):
        assert not plane(*many.operands[:2], np.full_like(many.operands[2], bad))[0].any()
