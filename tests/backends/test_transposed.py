"""ConvTranspose and Col2Im against numpy, the reference evaluator and onnxruntime, at random geometry."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

import farcall as fc

from .cases import Case, check, compare, refusal
from .harness import compile_regions, whole_region


def normal(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def by_onnxruntime(case: Case, *values: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, dict(zip(case.names(), values or case.feeds(), strict=True)))
    return np.asarray(result)


def random_case(rng: np.random.Generator, spatial: int) -> Case:
    group = int(rng.choice([1, 1, 2, 3]))
    ins, outs = group * int(rng.integers(1, 4)), int(rng.choice([1, 2, 5, 8]))
    taps, sizes = rng.integers(1, 4, spatial), rng.integers(1, 6, spatial)
    strides, dilations = rng.integers(1, 4, spatial), rng.integers(1, 3, spatial)
    attributes: dict[str, object] = {
        "group": group, "strides": strides.tolist(), "dilations": dilations.tolist(),
        "kernel_shape": taps.tolist(),
    }  # fmt: skip
    whole = (sizes - 1) * strides + (taps - 1) * dilations + 1
    match rng.integers(0, 4):
        case 0:
            most = (whole - 1) // 2
            attributes["pads"] = [int(rng.integers(0, min(m, 3) + 1)) for m in np.tile(most, 2)]
        case 1:
            attributes["output_padding"] = (strides - 1).tolist()
        case 2:  # onnxruntime takes no negative padding for one that is not there
            attributes["output_shape"] = np.maximum(whole - rng.integers(0, 3, spatial), sizes).tolist()
            attributes["auto_pad"] = str(rng.choice(["NOTSET", "SAME_UPPER"]))
    operands = [normal(int(rng.integers(1, 3)), ins, *sizes), normal(ins, outs, *taps, seed=1)]
    if rng.integers(0, 2):
        operands.append(normal(group * outs, seed=2))
    return Case("ConvTranspose", operands, attributes, [1] if rng.integers(0, 2) else [])


@pytest.mark.parametrize(
    ("ins", "outs", "side", "taps", "group"),
    [(40, 96, 16, 4, 1), (3, 3, 9, 4, 1), (4, 1, 5, 3, 1), (6, 40, 6, 2, 2)],
)
def test_blocks_of_channels_that_threads_share(ins: int, outs: int, side: int, taps: int, group: int) -> None:
    operands = [normal(1, ins, side, side), normal(ins, outs, taps, taps, seed=1)]
    case = Case("ConvTranspose", operands, {"strides": [2, 2], "group": group}, [1])
    plan = fc.partition(case.model())
    main = plan.build().load()["main"]
    expected = by_onnxruntime(case)
    found = [np.from_dlpack(main(operands[0], threads=threads)) for threads in (1, 3)]
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_random_agrees_with_onnxruntime(spatial: int) -> None:
    rng = np.random.default_rng(spatial)
    cases = [random_case(rng, spatial) for _ in range(4)]
    regions = compile_regions([whole_region(case.model(), name=f"c_{i}") for i, case in enumerate(cases)])
    for case, region in zip(cases, regions, strict=True):
        expected = by_onnxruntime(case)
        np.testing.assert_allclose(
            region(*case.feeds())[0], expected, rtol=1e-4, atol=1e-4, err_msg=str(case.attributes)
        )


def test_many_channels_and_doubles() -> None:
    twice, near = {"strides": [2, 2]}, {"rtol": 1e-3, "atol": 1e-3}
    doubles = [normal(2, 2, 3, dtype=np.float64), normal(2, 1, 3, dtype=np.float64)]
    cases = [
        Case("ConvTranspose", [normal(1, 40, 9, 7), normal(40, 24, 4, 4)], twice, [1], **near),
        Case("ConvTranspose", [normal(1, 30, 12, 12), normal(30, 6, 2, 2)], twice, **near),
        Case("ConvTranspose", doubles, {"auto_pad": "SAME_LOWER", "strides": [3]}),
    ]
    check(cases)


def test_symbolic_in_every_dim() -> None:
    weights = normal(3, 5, 3, 4)
    cases = [
        Case(
            "ConvTranspose", [normal(1, 3, 2, 3), weights], attributes, [1], symbolic={0: ["n", 3, "h", "w"]}
        )
        for attributes in (
            {"strides": [2, 3], "pads": [1, 0, 1, 2], "output_padding": [1, 0]},
            {"strides": [2, 1], "dilations": [1, 2], "auto_pad": "SAME_UPPER"},
        )
    ]
    for case, region in zip(cases, check(cases), strict=True):
        for shape in [(2, 3, 6, 5), (1, 3, 1, 40)]:
            x = normal(*shape)
            np.testing.assert_allclose(region(x)[0], by_onnxruntime(case, x), rtol=1e-4, atol=1e-4)
        assert region(normal(0, 3, 2, 2))[0].size == 0


def test_an_output_of_a_given_shape() -> None:
    """Sizes of the input are symbols, and the padding follows from them; it may be negative."""
    x, w = normal(1, 2, 3, 4), normal(2, 2, 3, 3)
    case = Case(
        "ConvTranspose",
        [x, w],
        {"output_shape": [9, 8], "strides": [2, 2]},
        [1],
        symbolic={0: ["n", 2, "h", "w"]},
    )
    (region,) = compile_regions([whole_region(case.model())])
    for shape in [(1, 2, 4, 4), (2, 2, 5, 6)]:  # as pads, which the reference takes as they are
        image = normal(*shape)
        total = [2 * size + 1 - out for size, out in zip(shape[2:], (9, 8), strict=True)]
        pads = [item - item // 2 for item in total] + [item // 2 for item in total]
        same = Case(
            "ConvTranspose",
            [image, w],
            {
                "strides": [2, 2],
                "pads": [max(p, 0) for p in pads],
                "output_padding": [max(-p, 0) for p in pads[2:]],
            },
        )
        np.testing.assert_allclose(region(image)[0], same.expected()[0], rtol=1e-4, atol=1e-5)


def unfold(
    image: np.ndarray, block: list[int], strides: list[int], dilations: list[int], pads: list[int]
) -> np.ndarray:
    """The columns of an image, by numpy: what Col2Im is the transpose of."""
    spatial = len(block)
    padded = np.pad(image, [(0, 0), (0, 0), *[(pads[i], pads[i + spatial]) for i in range(spatial)]])
    counts = [
        (size - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i, size in enumerate(padded.shape[2:])
    ]
    columns = []
    for channel in range(image.shape[1]):
        for tap in product(*map(range, block)):
            cut = tuple(
                slice(
                    tap[i] * dilations[i],
                    tap[i] * dilations[i] + (counts[i] - 1) * strides[i] + 1,
                    strides[i],
                )
                for i in range(spatial)
            )
            columns.append(padded[(slice(None), channel, *cut)].reshape(image.shape[0], -1))
    return np.stack(columns, axis=1)


def col2im(rng: np.random.Generator, spatial: int, constants: list[int]) -> Case:
    block = rng.integers(1, 4, spatial).tolist()
    strides, dilations = rng.integers(1, 4, spatial).tolist(), rng.integers(1, 3, spatial).tolist()
    pads = rng.integers(0, 3, 2 * spatial).tolist()
    image = [(block[i] - 1) * dilations[i] + 1 + int(rng.integers(0, 5)) for i in range(spatial)]
    shape = [2, int(rng.integers(1, 4)), *image]
    columns = unfold(np.zeros(shape), block, strides, dilations, pads)
    x = (rng.standard_normal(columns.shape) * 50).astype(
        rng.choice([np.float32, np.float64, np.int8, np.int64])
    )
    return Case(
        "Col2Im", [x, np.int64(image), np.int64(block)],
        {"strides": strides, "dilations": dilations, "pads": pads}, constants, shapes={0: shape},
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("constants", [[], [1, 2]])
def test_col2im(constants: list[int]) -> None:
    rng = np.random.default_rng(len(constants))
    check([col2im(rng, spatial, constants) for spatial in (1, 2, 2, 3) for _ in range(2)])


def test_col2im_of_other_sizes() -> None:
    """What a call gives must make the columns; nothing is read beyond them."""
    x = normal(1, 12, 6)
    case = Case("Col2Im", [x, np.int64([3, 4]), np.int64([2, 2])], {}, shapes={0: [1, 3, 3, 4]})
    (region,) = check([case])
    for image, block in (
        ([3, 5], [2, 2]), ([3, 4], [2, 1]), ([3, 4], [1, 4]), ([3, 4], [0, 2]), ([3, 4], [-2, -2]),
        ([3, 4], [2**62, 4]), ([3, 4], [2**31 - 1, 2**31 - 1]), ([-3, -4], [2, 2]),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            region(x, np.int64(image), np.int64(block))
    symbolic = Case(
        "Col2Im", [x, np.int64([3, 4]), np.int64([2, 2])], {}, [1, 2], symbolic={0: ["n", "c", 6]}
    )
    (region,) = check([symbolic])
    other = normal(3, 8, 6)
    compare(symbolic, region(other), symbolic.expected([other, *symbolic.operands[1:]]))


def test_channels_that_windows_do_not_divide() -> None:
    """Fewer than one window has made an image without channels."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
    g (float[1, c, n] x) => (float[?, ?, ?, ?] y) <int64[2] image = {5, 3}, int64[2] block = {2, 3}> {
      y = Col2Im(x, image, block)
    }""")
    main = fc.partition(model, backends=["c"]).build().load()["main"]
    assert np.from_dlpack(main(normal(1, 12, 4))).shape == (1, 2, 5, 3)
    for channels in (1, 7):
        with pytest.raises(ValueError, match=f"Col2Im.*c must be a multiple of 6 with c={channels}"):
            main(normal(1, channels, 4))


def test_refusals_say_why() -> None:
    x, w = normal(1, 2, 4, 4), normal(2, 3, 3, 3)
    assert "channels" in refusal(Case("ConvTranspose", [x, normal(4, 3, 3, 3)], {}, shapes={0: [1, 3, 6, 6]}))
    assert "bias" in refusal(Case("ConvTranspose", [x, w, normal(4)]))
