"""The losses against the reference evaluator. ONNX's own tests have most combinations of attributes."""

from __future__ import annotations

import numpy as np
import pytest

from .cases import Case, check, compare

LOSS, CROSS = "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"


def scores(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_losses_of_symbolic_sizes() -> None:
    target = np.random.default_rng(1).integers(0, 5, (3, 4))
    weight = np.float32([1, 2, 0, 3, 0.5])
    symbolic = {0: ["b", 5, "n"], 1: ["b", "n"]}
    cases = [
        Case(
            op,
            [scores(3, 5, 4), target, weight],
            {"reduction": how, "ignore_index": 2},
            [2],
            symbolic=symbolic,
        )
        for op in (LOSS, CROSS)
        for how in ("none", "mean", "sum")
    ]
    cases.append(
        Case(CROSS, [scores(3, 5), target[:, 0].astype(np.int32)], outputs=2, symbolic={0: ["b", 5]})
    )
    *regions, _ = check(cases)
    for case, item in zip(cases, regions, strict=False):
        operands = [scores(1, 5, 7), target.reshape(1, -1)[:, :7], weight]
        compare(case, item(*operands[:2]), case.expected(operands))


def test_targets_are_checked() -> None:
    ignored = -(2**63)
    case = Case(LOSS, [scores(2, 5), np.int64([4, ignored])], {"ignore_index": ignored, "reduction": "none"})
    (region,) = check([case])
    for wrong in (-1, 5, 2**62):
        with pytest.raises(RuntimeError):
            region(scores(2, 5), np.int64([0, wrong]))


def test_the_mean_of_no_targets_is_not_a_number() -> None:
    case = Case(LOSS, [scores(2, 5), np.int64([3, 3])], {"ignore_index": 1})
    (region,) = check([case])
    assert np.isnan(region(scores(2, 5), np.int64([1, 1]))[0])
