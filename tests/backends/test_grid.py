"""GridSample and AffineGrid against the reference evaluator and onnxruntime."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import farcall as fc

from .cases import Case, check, compare, refusal
from .harness import Compiled, compile_regions, whole_region

MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")


def name(mode: str, opset: int) -> str:
    old = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}
    return mode if opset >= 20 else old[mode]


def normal(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def grid(*shape: int, seed: int = 1, dtype: type = np.float32) -> np.ndarray:
    """Coordinates inside and outside of the image, and some that fall onto the borders of elements."""
    points = np.random.default_rng(seed).uniform(-3, 3, shape).astype(dtype)
    points.ravel()[::3] = np.round(points.ravel()[::3] * 4) / 4
    return points


def samples(x: np.ndarray, at: np.ndarray, opset: int = 20, **extra: object) -> list[Case]:
    return [
        Case(
            "GridSample",
            [x, at],
            {"mode": name(mode, opset), "padding_mode": padding, "align_corners": align},
            opset=opset,
            rtol=1e-3,
            atol=1e-4,
            **extra,
        )
        for mode, padding, align in product(MODES, PADDINGS, (0, 1))
    ]  # fmt: skip


def disputed(case: Case) -> bool:
    """Whether the reference differs from torch and onnxruntime: it moves positions outside to the border."""
    return case.attributes.get("mode") == "cubic" and case.attributes.get("padding_mode") == "border"


def test_grid_sample() -> None:
    cases = samples(normal(2, 2, 4, 5), grid(2, 3, 6, 2))
    cases += samples(normal(1, 2, 2, 3, 4), grid(1, 2, 2, 2, 3))[:16:3]  # volumes
    cases += samples(normal(1, 1, 7), grid(1, 9, 1))[1::5]
    cases += samples(normal(1, 2, 3, 4, dtype=np.float64), grid(1, 3, 5, 2, dtype=np.float64))[::5]
    cases += [Case("GridSample", [normal(1, 1, 3, 4), grid(1, 2, 2, 2)], opset=o) for o in (16, 20, 22)]
    for kind in (np.int8, np.int64):
        numbers = np.arange(12, dtype=kind).reshape(1, 1, 3, 4)
        cases.append(Case("GridSample", [numbers, grid(1, 3, 3, 2)], {"mode": "nearest"}, opset=20))
    check([case for case in cases if not disputed(case)], ["-O0"])  # the time goes into the compiler


@pytest.fixture(scope="module")
def compiled() -> list[tuple[Case, Compiled]]:
    """All modes and paddings, for images and grids of any size."""
    cases = samples(
        normal(3, 5, 9, 8), grid(3, 11, 70, 2), opset=16, symbolic={0: "bchw", 1: ["b", "y", "x", 2]}
    )
    regions = compile_regions([whole_region(c.model(), name=f"c_{i}") for i, c in enumerate(cases)])
    return list(zip(cases, regions, strict=True))


def test_grid_sample_agrees_with_onnxruntime(compiled: list[tuple[Case, Compiled]]) -> None:
    ort = pytest.importorskip("onnxruntime")
    for case, region in compiled:
        model = case.model().SerializeToString()
        session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        for feeds in (case.operands, [normal(1, 1, 2, 3), grid(1, 4, 5, 2, seed=2)]):
            expected = session.run(None, dict(zip(("x0", "x1"), feeds, strict=True)))
            compare(case, region(*feeds), expected)


@pytest.mark.parametrize("shape", [(1, 2, 3, 4), (1, 2, 1, 1)])
def test_hostile_coordinates_read_nothing_else(
    compiled: list[tuple[Case, Compiled]], shape: tuple[int, ...]
) -> None:
    """Zeros or elements of the image, whatever the grid holds."""
    far = np.float32([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e10, -1e10, 2**31, -(2**31), 2**63, 1e-45])
    points = np.stack(np.meshgrid(far, far), axis=-1)[None]
    for case, region in compiled:
        (got,) = region(np.full(shape, 7, np.float32), points)
        wanted = [7] if case.attributes["padding_mode"] != "zeros" else [0, 7]
        inside = np.isclose(got[..., None], wanted, rtol=1e-5).any(-1)
        assert inside[..., :-1, :-1].all(), case.attributes  # the last is near 0: inside of the image


def test_empty_images_and_grids(compiled: list[tuple[Case, Compiled]]) -> None:
    for _, region in compiled:
        assert not region(normal(2, 3, 0, 4), grid(2, 3, 3, 2))[0].any()  # there is no element to read
        assert region(normal(2, 3, 2, 4), grid(2, 0, 3, 2))[0].shape == (2, 3, 0, 3)
        assert region(normal(0, 3, 2, 4), grid(0, 2, 3, 2))[0].shape == (0, 3, 2, 3)


def test_refusals() -> None:
    x, at = normal(1, 1, 3, 4), grid(1, 2, 2, 2)
    assert "input 0 (`x0`) is int32" in refusal(Case("GridSample", [x.astype(np.int32), at], opset=20))
    assert "mode=magic" in refusal(
        Case("GridSample", [x, at], {"mode": "magic"}, opset=20, shapes={0: (1, 1, 2, 2)})
    )


def test_affine_grid() -> None:
    theta = {4: normal(2, 2, 3), 5: normal(2, 3, 4)}
    sizes = [[2, 3, 4, 5], [2, 3, 2, 7], [2, 1, 3, 4, 5], [2, 1, 2, 2, 3]]
    cases = [
        Case("AffineGrid", [theta[len(size)], np.int64(size)], {"align_corners": align}, constants, 20)
        for size, align, constants in product(sizes, (0, 1), ((), (1,)))
    ]
    for case in cases:
        size = case.operands[1].tolist()
        case.shapes, case.rtol, case.atol = {0: [*size[:1], *size[2:], len(size) - 2]}, 1e-4, 1e-5
    cases.append(
        Case("AffineGrid", [theta[4].astype(np.float64), np.int64(sizes[0])], opset=20, constants=[1])
    )
    regions = check(cases[:-1], ["-O0"])
    with pytest.raises(RuntimeError):  # an image of another size than declared
        regions[0](theta[4], np.int64([2, 3, 4, 6]))
    with pytest.raises(RuntimeError):
        regions[0](theta[4], np.int64([3, 3, 4, 5]))


def test_affine_grid_of_a_computed_size() -> None:
    graph = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[n, 2, 3] theta, int64[4] size) => (float[] y)'
        " { y = AffineGrid (theta, size) }"
    )
    main = fc.partition(graph).build().load()["main"]
    for size in ([2, 1, 3, 5], [1, 4, 1, 2], [1, 1, 1, 1]):
        theta = normal(size[0], 2, 3)
        (expected,) = ReferenceEvaluator(graph).run(None, {"theta": theta, "size": np.int64(size)})
        np.testing.assert_allclose(main(theta, np.int64(size)), expected, rtol=1e-5, atol=1e-6)
    assert main(theta, np.int64([1, 1, 0, 3])).shape == (1, 0, 3, 2)
    with pytest.raises(ValueError, match="`AffineGrid_0`: its size is of 3 images, and theta of 1"):
        main(theta, np.int64([3, 1, 2, 2]))
    with pytest.raises(ValueError, match="-2"):
        main(theta, np.int64([1, 1, -2, 2]))
