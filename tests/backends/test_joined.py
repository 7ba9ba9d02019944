"""Convolutions of several images whose windows are one matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import farcall as fc
from farcall.backends.c import _joined

from .cases import Case, check
from .harness import NATIVE
from .test_threads import COUNTS, with_weights
from .test_windows import normal

# The input, the weights, and the attributes.
CONVS = {
    "1x1": ((5, 24, 3, 3), (40, 24, 1, 1), {}),
    "groups": ((4, 24, 5, 2), (32, 12, 1, 1), {"group": 2}),
    "windows": ((9, 20, 7, 6), (33, 20, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "a dilated line": ((40, 16, 17), (24, 16, 3), {"pads": [2, 3], "dilations": [2]}),
    "a pixel": ((300, 64, 1, 1), (31, 64, 1, 1), {}),
    "a volume": ((7, 12, 2, 3, 3), (18, 12, 2, 2, 2), {"pads": [1, 0, 0, 0, 1, 1]}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_joined, "_GAIN", float("inf"))


def conv(name: str, **more: Any) -> Case:
    x, w, attributes = CONVS[name]
    operands = [normal(*x), normal(*w, seed=1), normal(w[0], seed=2)]
    return Case("Conv", operands, attributes, [1, 2], rtol=1e-4, atol=1e-4, **more)


def test_blocks_of_images() -> None:
    check([conv(name) for name in CONVS], flags=("-O3", *NATIVE))


@pytest.mark.parametrize("name", ["1x1", "groups", "windows", "a pixel"])
def test_any_number_of_images(name: str) -> None:
    x, *_ = CONVS[name]
    case = conv(name, symbolic={0: ["n", *x[1:]]})
    (region,) = check([case])
    for count in (0, 1, 2, 29, 257):
        given = normal(count, *x[1:], seed=count)
        (expected,) = case.expected([given, *case.operands[1:]])
        np.testing.assert_allclose(region(given)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", ["n", 3, 40])
def test_results_do_not_depend_on_the_number_of_threads(n: int | str) -> None:
    model = with_weights(
        f"j (float[{n}, 96, 6, 5] x) => (float[{n}, 200, 3, 3] y)"
        " <float[160, 96, 1, 1] w, float[160] b, float[200, 160, 3, 3] v>"
        " { a = Conv (x, w, b) r = Relu (a) y = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (r, v) }"
    )
    plan = fc.partition(model, backends=["c"])
    assert plan.source(plan.regions[0].name).count("const int is_one") == 2
    main = plan.build().load()["main"]
    for images in (1, 3, 40) if n == "n" else (int(n),):
        x = normal(images, 96, 6, 5, seed=images)
        alone = main(x, threads=1)
        for count in COUNTS:
            np.testing.assert_array_equal(alone, main(x, threads=count))
