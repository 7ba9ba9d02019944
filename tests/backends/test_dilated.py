"""Convolutions whose windows are mostly outside of the input, in pieces; and those that are left whole."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import farcall as fc
from farcall.backends.c import CBackend
from farcall.toolchain import Target

from .harness import whole_region
from .test_threads import with_weights

# The input, the weights, the attributes, and how many pieces the output is in; 0: it is left whole.
CASES = {
    "only the middle": (
        "[1, 64, 14, 15]", "[48, 64, 3, 3]", "dilations = [24, 36], pads = [24, 36, 24, 36]", 1
    ),
    "nine pieces": ("[2, 40, 24, 25]", "[32, 40, 3, 3]", "dilations = [11, 9], pads = [11, 9, 11, 9]", 9),
    "uneven pads": ("[1, 40, 24, 25]", "[32, 40, 3, 3]", "dilations = [14, 11], pads = [13, 12, 15, 10]", 16),
    "strides": (
        "[1, 64, 41, 43]", "[32, 64, 3, 3]",
        "dilations = [22, 21], pads = [22, 21, 22, 21], strides = [2, 3]", 9
    ),
    "five taps": ("[1, 64, 30, 29]", "[32, 64, 5, 1]", "dilations = [10, 1], pads = [20, 0, 20, 0]", 3),
    "groups": (
        "[1, 80, 20, 21]", "[64, 40, 3, 3]", "dilations = [10, 11], pads = [10, 11, 10, 11], group = 2", 6
    ),
    "a line": ("[3, 64, 500]", "[64, 64, 3]", "dilations = [400], pads = [400, 400]", 3),
    "a volume": (
        "[1, 32, 6, 9, 8]", "[32, 32, 3, 3, 3]", "dilations = [4, 6, 5], pads = [4, 6, 5, 4, 6, 5]", 27
    ),
    "one axis": ("[2, 64, 24, 25]", "[32, 64, 3, 3]", "dilations = [11, 1], pads = [11, 1, 11, 2]", 3),
    "a frame": ("[2, 40, 1, 24, 25]", "[32, 40, 3, 3, 3]", "pads = [1, 1, 0, 1, 1, 2]", 1),
    "two frames": ("[1, 40, 2, 24, 25]", "[32, 40, 5, 3, 3]", "pads = [2, 1, 0, 2, 1, 2]", 1),
    "a frame with strides": (
        "[1, 40, 1, 24, 25]", "[32, 40, 5, 3, 3]", "pads = [3, 1, 1, 4, 1, 1], strides = [2, 2, 1]", 1
    ),
    "small planes": ("[2, 192, 4, 4]", "[192, 192, 3, 3]", "pads = [1, 1, 1, 1]", 0),
    "49 pieces": ("[1, 16, 30, 29]", "[16, 16, 7, 7]", "dilations = [7, 7], pads = [21, 21, 21, 21]", 0),
    "mostly inside": ("[1, 40, 24, 25]", "[32, 40, 3, 3]", "dilations = [2, 2], pads = [2, 2, 2, 2]", 0),
    "all outside": ("[1, 40, 20, 20]", "[40, 40, 3, 3]", "dilations = [25, 25], pads = [40, 25, 40, 25]", 0),
    "small": ("[1, 16, 14, 14]", "[16, 16, 3, 3]", "dilations = [12, 12], pads = [12, 12, 12, 12]", 0),
    "few channels": ("[1, 128, 24, 24]", "[8, 128, 3, 3]", "dilations = [9, 9], pads = [9, 9, 9, 9]", 0),
}  # fmt: skip


def model_of(case: str, end: str) -> onnx.ModelProto:
    x, w, attributes, _ = CASES[case]
    (batch, *_), (outs, _, *taps) = x[1:-1].split(", "), w[1:-1].split(", ")
    y = f"[{', '.join([batch, outs, *'abc'[: len(taps)]])}]"
    return with_weights(
        f"g (float{x} x) => (float{y} y) <float{w} w, float[{outs}] b> {{ {end.format(attributes)} }}"
    )


def steps(model: onnx.ModelProto) -> list[str]:
    code = CBackend().compile(whole_region(model), Target.host(), {"profile": True})
    return [work.operator.split("+")[0] for work in code.work]


LONG = ("a volume", "all outside", "49 pieces", "only the middle")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.long] if case in LONG else []) for case in CASES]
)
def test_pieces_are_the_whole(case: str) -> None:
    x, *_, pieces = CASES[case]
    shape = list(map(int, x[1:-1].split(",")))
    given = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    for end in ("y = Conv <{}> (x, w)", "c = Conv <{}> (x, w, b) y = Relu (c)"):
        model = model_of(case, end)
        assert steps(model).count("Conv") == (pieces or 1)
        found = np.from_dlpack(fc.partition(model).build().load()["main"](given))
        (expected,) = ReferenceEvaluator(model).run(None, {"x": given})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)


def test_batches_of_any_size_are_in_pieces() -> None:
    model = with_weights(
        "g (float[n, 40, 24, 25] x) => (float[n, 32, 24, 25] y) <float[32, 40, 3, 3] w>"
        " { y = Conv <dilations = [11, 9], pads = [11, 9, 11, 9]> (x, w) }"
    )
    assert steps(model).count("Conv") == 9
    main = fc.partition(model).build().load()["main"]
    for count in (1, 3, 0):
        given = np.random.default_rng(count).standard_normal((count, 40, 24, 25)).astype(np.float32)
        found = np.from_dlpack(main(given))
        (expected,) = (
            ReferenceEvaluator(model).run(None, {"x": given}) if count else (np.zeros((0, 32, 24, 25)),)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)
